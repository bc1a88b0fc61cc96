"""The command line: overlays, flags, names, refusals in one message, and a run whose folder repeats it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning as L
import pytest
import torch
import yaml
from lightning.pytorch.callbacks import ModelCheckpoint

from gapo_lit.callbacks import RunCheckpoint
from gapo_lit.cli import main
from gapo_lit.cli.complete import check_given, complete
from gapo_lit.cli.flags import CommandLine, with_flags
from gapo_lit.cli.recipe import RecipeError, compose, overlay
from tests.tiny import tiny_model

ROOT = Path(__file__).resolve().parents[1]
QUICKSTART = str(ROOT / "recipes" / "quickstart.yaml")
FEW = ["--data.train.size", "64", "--data.train.levels", "[3]", "--data.val.size", "8", "--data.val.levels", "[3]"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_model(tmp_path_factory.mktemp("model")))


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def component(class_path: str, /, **settings: Any) -> dict[str, Any]:
    return {"class_path": class_path, "init_args": settings}


# Overlays


def test_settings_of_one_class_merge() -> None:
    below = {"clip": component("GAPOClip", eps_lo=1, eps_max=2), "other": 1}
    assert overlay(below, {"clip": component("GAPOClip", eps_max=3)}) == {
        "clip": component("GAPOClip", eps_lo=1, eps_max=3),
        "other": 1,
    }
    full = overlay(below, {"clip": component("gapo_lit.clipping.schedules.GAPOClip", eps_max=3)})
    assert full["clip"]["init_args"] == {"eps_lo": 1, "eps_max": 3}
    assert overlay(below, {"clip": {"init_args": {"eps_max": 3}}})["clip"] == component("GAPOClip", eps_lo=1, eps_max=3)
    assert below["clip"] == component("GAPOClip", eps_lo=1, eps_max=2), "the lower tree is left as it was"


@pytest.mark.parametrize("other", [component("ConstantClip", eps_hi=3), {"class_path": "ConstantClip"}, "ConstantClip"])
def test_another_class_drops_the_old_ones_settings(other: Any) -> None:
    """Also those of the same name: an eps_lo of 0.2 means nothing to a clip of sequence ratios."""
    merged = overlay({"clip": component("GAPOClip", eps_lo=1, eps_max=2)}, {"clip": other})["clip"]
    assert merged["class_path"] == "ConstantClip"
    assert merged.get("init_args", {}).keys() <= {"eps_hi"}


def test_what_is_no_component_is_replaced_or_merged() -> None:
    assert overlay({"a": {"x": 1, "y": 2}}, {"a": {"y": 3}}) == {"a": {"x": 1, "y": 3}}
    assert overlay({"a": [1, 2]}, {"a": [3]}) == {"a": [3]}
    assert overlay({"a": [1]}, {"a+": [2, 3]}) == {"a": [1, 2, 3]}
    assert overlay({"a": False}, {"a+": 2}) == {"a": [2]}
    assert overlay({"kl": component("K3")}, {"kl": None}) == {"kl": None}
    assert overlay({"kl": None}, {"kl": component("K3")}) == {"kl": component("K3")}
    assert overlay({"ratio": "TokenRatio"}, {"ratio": component("SequenceRatio")}) == {
        "ratio": component("SequenceRatio")
    }


def test_nested_components_merge_too() -> None:
    below = {"advantage": component("Focal", base=component("GroupStd", eps=1), gamma=1)}
    same = overlay(below, {"advantage": component("Focal", base=component("GroupStd"), gamma=2)})
    assert same["advantage"] == component("Focal", base=component("GroupStd", eps=1), gamma=2)
    changed = overlay(below, {"advantage": component("Focal", base=component("GroupMean"))})
    assert changed["advantage"] == component("Focal", base=component("GroupMean"), gamma=1)


# Bases


def test_a_base_lies_below_and_comes_once(tmp_path: Path) -> None:
    write(tmp_path / "base.yaml", "a: 0\nb: 0\nc: 0\n")
    one = write(tmp_path / "one.yaml", "extends: [base.yaml]\na: 1\nb: 1\n")
    (tmp_path / "sub").mkdir()
    two = write(tmp_path / "sub" / "two.yaml", "extends: ../base.yaml\nb: 2\n")
    three = write(tmp_path / "three.yaml", "extends: [sub/two.yaml]\nc: 3\n")
    assert compose([one]) == {"a": 1, "b": 1, "c": 0}
    assert compose([three]) == {"a": 0, "b": 2, "c": 3}
    assert compose([one, two]) == {"a": 1, "b": 2, "c": 0}, "base.yaml must not reset what one.yaml said"
    assert compose([one, three]) == {"a": 1, "b": 2, "c": 3}
    assert compose([two, one, str(tmp_path / "base.yaml")]) == {"a": 0, "b": 0, "c": 0}, "a file named last comes last"


def test_bases_that_go_round_are_refused(tmp_path: Path) -> None:
    one = write(tmp_path / "one.yaml", "extends: [two.yaml]\n")
    write(tmp_path / "two.yaml", "extends: [one.yaml]\n")
    with pytest.raises(RecipeError, match=r"one.yaml extends itself: one.yaml → two.yaml → one.yaml"):
        compose([one])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: [1", "could not be read as YAML"),
        ("a: 1\na: 2\n", "duplicate key a"),
        ("- 1\n", "holds a list; a recipe is a mapping"),
        ("extends: [bse.yaml]\n", "there is no recipe .*bse.yaml; did you mean base.yaml"),
    ],
)
def test_a_file_that_is_no_recipe(text: str, why: str, tmp_path: Path) -> None:
    write(tmp_path / "base.yaml", "a: 1\n")
    with pytest.raises(RecipeError, match=why):
        compose([write(tmp_path / "recipe.yaml", text)])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "model: null\n",
        "model: [1, 2]\n",
        "data: hello\n",
        "trainer: null\n",
        "extends: 3\n",
        "extends: [null]\n",
        "data: {3: 4}\n",
        'data: {seed: "${data.nope}"}\n',
    ],
)
def test_whatever_is_wrong_with_a_recipe_is_said_in_one_message(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = write(tmp_path / "recipe.yaml", text)
    assert main(["fit", "--config", str(recipe), "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert "error" in said
    assert "Traceback" not in said


def test_no_recipe_at_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit"]) == 2
    assert "--config recipes/quickstart.yaml" in " ".join(capsys.readouterr().err.split())


# Flags


def test_flags_lie_over_all_recipes_wherever_they_stand() -> None:
    line = CommandLine.split(["--a.b", "1", "--config", "x.yaml", "--config=y.yaml", "--c=[2, 3]", "-c", "z.yaml"])
    assert line.recipes == ("x.yaml", "y.yaml", "z.yaml")
    assert line.flags == ("--a.b", "1", "--c=[2, 3]")
    assert line.settings() == [(["a", "b"], 1), (["c"], [2, 3])]
    assert line.name == "x"
    with pytest.raises(RecipeError, match="--config needs a file"):
        CommandLine.split(["--config"])


def test_a_flag_with_another_class_drops_the_old_ones_settings() -> None:
    tree = {"model": {"clip": component("GAPOClip", eps_lo=1, eps_max=2)}}
    without, applied = with_flags(tree, CommandLine((), ("--model.clip", "ConstantClip", "--model.clip.eps_lo", "3")))
    assert without["model"]["clip"] == {"class_path": "ConstantClip"}
    assert applied["model"]["clip"] == component("ConstantClip", eps_lo=3)
    _, applied = with_flags(tree, CommandLine((), ("--model.clip", "GAPOClip", "--model.clip.eps_max=3")))
    assert applied["model"]["clip"] == component("GAPOClip", eps_lo=1, eps_max=3)
    without, _ = with_flags(tree, CommandLine((), ("--model.clip.class_path", "ConstantClip")))
    assert without["model"]["clip"] == {"class_path": "ConstantClip"}


def test_values_left_to_the_user() -> None:
    tree = {"model": {"model": "???", "advantage": component("Focal", gamma="???")}}
    with pytest.raises(RecipeError, match=r"model.model, model.advantage.gamma: .*--model.advantage.gamma VALUE"):
        check_given(tree)
    _, applied = with_flags(tree, CommandLine((), ("--model.model", "x", "--model.advantage.gamma", "1")))
    check_given(applied)
    complete(tree, applied, "run")
    assert tree["model"] == {"advantage": {"class_path": "Focal", "init_args": {}}}


def test_every_run_has_a_csv_folder_named_after_its_recipe() -> None:
    tree: dict[str, Any] = {"trainer": {"logger": [component("WandbLogger")]}}
    complete(tree, tree, "quickstart")
    ours, theirs = tree["trainer"]["logger"]
    assert ours == component("gapo_lit.callbacks.RunLogger", name="quickstart")
    assert theirs == component("WandbLogger")
    complete(tree, tree, "again")
    assert len(tree["trainer"]["logger"]) == 2


# Refusals: one message, status 2, before anything slow


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--model.clip GAPOClp", "model.clip: there is no clip called 'GAPOClp'; did you mean GAPOClip"),
        ("--model.clip SequenceRatio", "(SequenceRatio is a part of kind ratio)"),
        ("--model.clip.eps_mx 1", "model.clip.eps_mx: GAPOClip has no setting called 'eps_mx'; did you mean eps_max"),
        ("--model.clip.eps_max abc", "Problem with given class_path"),
        ("--model.clip.eps_max 1e-4", "eps_max=0.0001 is below eps_lo=0.003"),
        ("--model.clip ConstantClip", "the following arguments are required: eps_lo, eps_hi"),
        ("--model.clip nowhere.Clip", "model.clip: nowhere.Clip could not be imported"),
        (
            "--model.max_grad_norms 1",
            "model.max_grad_norms: PolicyModule has no setting called 'max_grad_norms'; did you",
        ),
        ("--data.sampling.max_token 3", "data.sampling.max_token: Sampling has no setting called 'max_token'"),
        ("--data.template.sufix x", "Template has no setting called 'sufix'; did you mean suffix"),
        ("--model.optimizer AdamX", "model.optimizer: there is no Optimizer called 'AdamX'; did you mean Adamax"),
        ("--trainer.max_step 3", "trainer.max_step: Trainer has no setting called 'max_step'; did you mean max_steps"),
        ("--trainr.max_steps 3", "a recipe has no section 'trainr'; did you mean trainer"),
        ("--trainer.devices two", "trainer: `devices` selected with `CPUAccelerator` should be an int > 0"),
        ("--trainer.gradient_clip_val 1", "set model.max_grad_norm: 1"),
        ("--data.prompts_per_update 16", "GAPO equals GSPO, and GAPOClip does nothing"),
        ("--data.group_size 1", "group_size=1"),
        ("--data.sampling.top_p 0.9", "sampling has top_p=0.9"),
        ("--trainer.precision bf16-true", "give 32-true or bf16-mixed"),
        ("--trainer.devices 3", "prompts_per_update=4 does not divide over 3 ranks"),
        ("--data.train.size 100000", "size=100000"),
        ("--data.val.split train", "ask questions of data.val"),
        ("--data.max_prompt_tokens 5", "no prompt of at most max_prompt_tokens=5"),
        ("--seed_everything true", "seed_everything is the seed of the whole run"),
        ("--config missing.yaml", "there is no recipe"),
    ],
)
def test_a_mistake_is_explained_in_one_message(
    flags: str, says: str, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", "--config", QUICKSTART, "--model.model", model, *FEW, *flags.split(), "--dry-run"]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("gapo-lit: error:") == 1
    assert len(error.strip().splitlines()) == 1


def test_a_misspelling_in_yaml_is_refused(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    callbacks = "{trainer: {callbacks+: [{class_path: SampleTable, init_args: {per_updat: 1}}]}}"
    for text, says in (
        (
            callbacks,
            "trainer.callbacks[6].per_updat: SampleTable has no setting called 'per_updat'; did you mean per_update",
        ),
        ("{model: {clip: {class_path: GAPOClip, eps_max: 1}}}", "settings of GAPOClip belong under init_args"),
        (
            "{trainer: {callbacks+: [{class_path: SampelTable}]}}",
            "there is no Callback called 'SampelTable'; did you mean",
        ),
        ("{extend: [base.yaml]}", "a recipe has no section 'extend'"),
    ):
        recipe = write(tmp_path / "typo.yaml", text)
        assert main(["fit", "--config", QUICKSTART, "--config", recipe, "--model.model", model, "--dry-run"]) == 2
        assert says in capsys.readouterr().err


def test_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fitt"]) == 2
    assert "there is no command 'fitt'; did you mean fit" in capsys.readouterr().err
    assert main([]) == 0
    assert "gapo-lit fit --config recipes/quickstart.yaml" in capsys.readouterr().out
    assert main(["--version"]) == 0
    assert main(["components", "--kind", "clop"]) == 2
    assert "no kind of component called 'clop'; did you mean clip" in capsys.readouterr().err


def test_components_lists_every_part(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["components"]) == 0
    listed = capsys.readouterr().out
    for name in ("GAPOClip", "SequenceRatio", "VLLMEngine", "MathVerify", "ArithmeticTask", "K3", "DualClip", "Focal"):
        assert f"\n  {name} — " in listed
    assert main(["components", "--kind", "clip"]) == 0
    clips = capsys.readouterr().out
    assert "eps_max: required\n    form: 'count'\n    source: arXiv:2609.00444, Eq. 11" in clips
    assert "TokenRatio" not in clips


def test_help_is_fast_and_listing_loads_no_engine() -> None:
    code = (
        "import sys; from gapo_lit.cli import main; main(['--help']); assert 'torch' not in sys.modules;"
        "main(['components']); assert not {'vllm', 'lightning', 'transformers'} & set(sys.modules)"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=120, capture_output=True)


# Values


def config_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    with pytest.raises(SystemExit) as stopped:
        main(["fit", *arguments, "--print_config"])
    assert not stopped.value.code
    return dict(yaml.safe_load(capsys.readouterr().out))


def test_numbers_in_e_notation_are_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = write(tmp_path / "norm.yaml", "{model: {max_grad_norm: 1e-5, clip: {init_args: {eps_max: 1e-2}}}}")
    by_file = config_of(capsys, "--config", QUICKSTART, "--config", recipe)["model"]
    by_flag = config_of(capsys, "--config", QUICKSTART, "--model.max_grad_norm", "1e-5")["model"]
    assert by_file["max_grad_norm"] == by_flag["max_grad_norm"] == 1e-5
    assert by_file["clip"]["init_args"]["eps_max"] == 1e-2


def test_interpolated_values_follow_flags(capsys: pytest.CaptureFixture[str]) -> None:
    flags = [
        "--data.group_size",
        "4",
        "--model.model",
        "m",
        "--seed_everything",
        "7",
        "--data.sampling.max_tokens",
        "5",
    ]
    config = config_of(capsys, "--config", QUICKSTART, *flags)
    assert config["model"]["group_size"] == config["data"]["group_size"] == 4
    assert config["data"]["tokenizer"] == config["data"]["engine"]["init_args"]["model"] == "m"
    assert config["data"]["seed"] == config["seed_everything"] == 7
    assert config["data"]["val_sampling"]["max_tokens"] == 5


def test_another_engine_needs_no_more_than_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    config = config_of(capsys, "--config", QUICKSTART, "--model.model", "m", "--data.engine", "TransformersEngine")
    engine = config["data"]["engine"]
    assert engine["class_path"].endswith("TransformersEngine")
    assert engine["init_args"]["model"] == "m"
    assert engine["init_args"]["dtype"] == "auto", "the other engine's dtype is gone"


def test_a_warning_is_loud_and_lets_the_recipe_pass(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["fit", "--config", QUICKSTART, "--model.model", model, *FEW, "--data.prompts_per_update", "16"]
    assert main([*command, "--allow_unbound_clip", "true", "--dry-run"]) == 0
    said = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert "no clip can ever bind; GAPO equals GSPO" in said


# A run


RUN = [
    *("--data.engine", "TransformersEngine", "--data.group_size", "2", "--data.prompts_per_batch", "4"),
    *("--data.prompts_per_update", "2", "--data.sampling.max_tokens", "4", "--data.val_samples", "2"),
    *("--trainer.max_steps", "2", "--trainer.val_check_interval", "2", "--trainer.enable_model_summary", "false"),
]


@pytest.fixture
def _run_warnings(recwarn: pytest.WarningsRecorder) -> None:
    import warnings

    for message in (
        ".*does not have many workers.*",
        ".*`?batch_size`?.*",
        ".*Checkpoint directory.*",
        ".*Trying to infer.*",
    ):
        warnings.filterwarnings("ignore", message=message)


@pytest.mark.usefixtures("_run_warnings")
def test_a_run_leaves_a_recipe_that_repeats_it(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    logger = write(tmp_path / "tb.yaml", (ROOT / "recipes" / "logger" / "tensorboard.yaml").read_text())
    command = ["fit", "--config", QUICKSTART, "--config", logger, "--model.model", model, *FEW, *RUN]
    assert main(command) == 0
    folder = tmp_path / "runs" / "quickstart" / "version_0"
    assert (folder / "metrics.csv").is_file()
    assert list((folder / "checkpoints").glob("*.ckpt"))
    assert list((tmp_path / "runs" / "tensorboard").rglob("events*"))
    saved = yaml.safe_load((folder / "config.yaml").read_text())
    assert saved["model"]["clip"]["class_path"].endswith("GAPOClip")
    assert saved["data"]["engine"]["init_args"]["model"] == model

    assert main(["fit", "--config", str(folder / "config.yaml")]) == 0
    again = tmp_path / "runs" / "quickstart" / "version_1"
    assert yaml.safe_load((again / "config.yaml").read_text()) == saved

    best = next((folder / "checkpoints").glob("last*.ckpt"))
    validate = ["validate", "--config", str(folder / "config.yaml"), "--out", str(tmp_path / "out")]
    assert main([*validate, "--ckpt_path", str(best)]) == 0
    assert json.loads((tmp_path / "out" / "results.json").read_text())["checkpoint"] == str(best)
    assert main(validate) == 2, "samples of a checkpoint are not those of the model that training began with"
    assert "(checkpoint " in capsys.readouterr().err


class Interrupt(L.Callback):
    """Presses Ctrl-C after a step."""

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        if trainer.global_step == 2:
            raise KeyboardInterrupt


@pytest.mark.usefixtures("_run_warnings")
def test_an_interrupted_run_leaves_a_checkpoint_to_go_on_from(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stop = write(tmp_path / "stop.yaml", "{trainer: {callbacks+: [{class_path: tests.test_cli.Interrupt}]}}")
    command = ["fit", "--config", QUICKSTART, "--model.model", model, *FEW, *RUN, "--trainer.max_steps", "4"]
    with pytest.raises(SystemExit) as stopped:
        main([*command, "--trainer.val_check_interval", "4", "--config", stop])
    assert stopped.value.code == 1
    (last,) = (tmp_path / "runs" / "quickstart" / "version_0" / "checkpoints").glob("last.ckpt")
    assert torch.load(last, weights_only=False)["global_step"] == 2
    assert main([*command, "--ckpt_path", str(last)]) == 0
    summary = json.loads((tmp_path / "runs" / "quickstart" / "version_1" / "summary.json").read_text())
    assert summary["outcome"] == "finished"


@pytest.mark.parametrize(
    ("ranks", "error", "saves"),
    [(1, ValueError(), True), (1, KeyboardInterrupt(), True), (2, KeyboardInterrupt(), True), (2, ValueError(), False)],
)
def test_an_error_on_one_of_several_ranks_waits_for_no_checkpoint(
    ranks: int, error: BaseException, saves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[BaseException] = []
    monkeypatch.setattr(
        ModelCheckpoint, "on_exception", lambda self, trainer, module, exception: saved.append(exception)
    )
    trainer: Any = SimpleNamespace(world_size=ranks)
    RunCheckpoint(save_on_exception=True).on_exception(trainer, L.LightningModule(), error)
    assert bool(saved) is saves
