"""The laboratory's recipes: one task and budget, and nothing but the clip between them."""

from pathlib import Path

import pytest

from gapo_lit.cli import main
from gapo_lit.cli.recipe import compose
from gapo_lit.lab.task import ChainTask
from gapo_lit.lab.warm_start import WarmStart, warm_start

RECIPES = Path(__file__).resolve().parents[2] / "recipes" / "lab"
METHODS = {
    "gspo_symmetric": "ConstantClip",
    "gspo_asymmetric": "ConstantClip",
    "gapo": "GAPOClip",
    "matched_width": "MatchedWidthClip",
    "reversed": "ReversedClip",
    "exponential": "ExponentialClip",
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "lab"
    warm_start(WarmStart(steps=1, batch=4, layers=1, width=32), folder)
    return folder


def test_every_method_has_its_recipe() -> None:
    assert {path.stem for path in RECIPES.iterdir()} == {"base", *METHODS}


@pytest.mark.parametrize(("name", "clip"), METHODS.items())
def test_methods_differ_in_their_clip_alone(name: str, clip: str) -> None:
    base, method = compose([RECIPES / "base.yaml"]), compose([RECIPES / f"{name}.yaml"])
    bounds = method["model"]["clip"]["init_args"]
    assert method["model"]["clip"]["class_path"] == clip
    assert bounds["eps_lo"] == 3e-3
    assert bounds.get("eps_max", bounds.get("eps_hi")) == (3e-3 if name == "gspo_symmetric" else 5e-3)
    method["model"]["clip"] = base["model"]["clip"]
    assert method == base


def test_the_recipe_is_sound_and_teaches_what_the_warm_start_was_taught(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["fit", "--config", str(RECIPES / "gapo.yaml"), "--model.model", str(model), "--dry-run"]
    assert main(command) == 0, capsys.readouterr().err
    assert "no multiple of" not in capsys.readouterr().out
    data = compose([RECIPES / "gapo.yaml"])["data"]
    train, val = (ChainTask(**data[part]["init_args"]) for part in ("train", "val"))
    assert train.rule == val.rule == ChainTask().rule
    assert {len(e.question) for e in train.examples()} == {2 + length for length in WarmStart().lengths}
