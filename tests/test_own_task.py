"""The example of a task of one's own trains, its rules are logged, and a failure costs one verdict."""

from __future__ import annotations

import importlib.util
import json
import shutil
from typing import Any

import pytest

from gapo_lit.cli import main
from gapo_lit.prompts.files import JsonlPrompts
from tests.processes import ROOT, Row, rows, run_folders, small_model

EXAMPLE = ROOT / "examples" / "own_task"
RULES = ("length", "brand", "colour", "claims", "capitals")
SMALL = (
    *("--data.engine", "TransformersEngine", "--data.group_size", "4", "--data.sampling.max_tokens", "24"),
    *("--data.val_samples", "2", "--trainer.max_steps", "2", "--trainer.val_check_interval", "2"),
    *("--trainer.num_sanity_val_steps", "0", "--trainer.callbacks", "[]", "--model.optimizer.lr", "1e-3"),
)
# The example's function, as somebody may have got it wrong.
FLAKY = """
from rewards import title_rules

def flaky(completion, brand, colour):
    if brand == {brand!r}:
        raise KeyError(brand)
    return title_rules(completion, brand, colour)
"""


@pytest.fixture(scope="module")
def rules() -> Any:
    spec = importlib.util.spec_from_file_location("own_task_rewards", EXAMPLE / "rewards.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.title_rules


@pytest.mark.parametrize(
    ("title", "broken"),
    [
        (" Halvard ceramic mug, sage green\n", set()),
        ("HALVARD MUG, SAGE GREEN", {"capitals"}),
        ("The best Halvard mug in sage green", {"claims"}),
        ("Ceramic mug, 350 ml", {"brand", "colour"}),
        ("Halvard sage green mug. " * 3, {"length"}),
        ("Halvard\nsage green mug", {"length"}),
        ("", {"length", "brand", "colour"}),
    ],
)
def test_the_rules(title: str, broken: set[str], rules: Any) -> None:
    kept = rules(title, "Halvard", "sage green")
    assert tuple(kept) == RULES
    assert {name for name, value in kept.items() if not value} == broken


def test_the_products() -> None:
    source = JsonlPrompts(str(EXAMPLE / "products.jsonl"), question="product", answer=None)
    examples = source.examples()
    assert len(examples) == len({e.question for e in examples}) == 40
    assert {tuple(e.columns) for e in examples} == {("brand", "colour")}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Row], str]:
    """metrics.csv of a run in which grading one training product always fails, and the product's id."""
    folder = tmp_path_factory.mktemp("run")
    shutil.copytree(EXAMPLE, folder / "examples" / "own_task")
    path = str(EXAMPLE / "products.jsonl")
    train = JsonlPrompts(path, "product", None, holdout="train", validation_fraction=0.25).examples()
    (folder / "examples" / "own_task" / "flaky.py").write_text(FLAKY.format(brand=train[0].columns["brand"]))
    model = small_model(folder / "model")
    # One rollout batch asks all training prompts, but for the last if they are odd: the one that fails is among them.
    flags = ("--data.reward.function", "examples/own_task/flaky.py:flaky", "--data.reward.settings", "null")
    size = str(len(train) // 2 * 2)
    sizes = ("--data.prompts_per_batch", size, "--data.prompts_per_update", str(int(size) // 2))
    drop = ("--data.train.drop", json.dumps([e.id for e in train[int(size) :]]))
    recipe = ("--config", str(EXAMPLE / "recipe.yaml"))
    command = ["fit", *recipe, "--model.model", str(model), *SMALL, *flags, *sizes, *drop]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        with pytest.warns(RuntimeWarning, match="gave no verdict") as said:
            assert main(command) == 0
    (run,) = run_folders(folder, "recipe")
    (warning,) = (str(w.message) for w in said if w.category is RuntimeWarning)
    assert f"for a completion of {train[0].id}: KeyError" in warning
    assert "flaky.py:6 in flaky: raise KeyError(brand)" in warning
    return rows(run), size


def test_it_trains_and_logs_every_rule(trained: tuple[list[Row], str]) -> None:
    steps = [row for row in trained[0] if "train/loss" in row]
    assert [row["step"] for row in steps] == [1, 2]
    assert any(not row["train/step_skipped"] for row in steps)
    for row in steps:
        parts = [row[f"train/reward/{name}"] for name in RULES]
        assert row["train/reward"] == pytest.approx(sum(parts))
        assert all(0 <= part <= 1 for part in parts)
    assert "val/reward/brand" in trained[0][-1]


def test_one_failing_product_costs_its_own_verdicts(trained: tuple[list[Row], str]) -> None:
    found, size = trained
    steps = [row["train/verdicts/none_fraction"] for row in found if "train/loss" in row]
    assert sorted(steps) == [0.0, pytest.approx(2 / int(size))], "one group of the two updates"
    assert found[-1]["val/verdicts/none_fraction"] == 0
