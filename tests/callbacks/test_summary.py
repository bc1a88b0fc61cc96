import json
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch

from gapo_lit.callbacks import PlotCurves, RunCheckpoint, RunSummary, SampleTable
from gapo_lit.callbacks.history import History
from gapo_lit.callbacks.report import ClipActivity, clip_sentence
from gapo_lit.callbacks.summary import clip_activity
from tests.callbacks.fake_run import FakePolicy, run


def written(folder: Path) -> dict:
    return json.loads(next(folder.rglob("summary.json")).read_text())


def test_before_and_after_clip_time_and_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = run(tmp_path, RunSummary(), SampleTable(), PlotCurves(every_validation=False, dpi=40))
    text = capsys.readouterr().out
    assert "4 updates, finished" in text
    assert "before training" in text
    assert "after update 4" in text
    assert [line.split()[1:5] for line in text.splitlines() if line.startswith("│ pass@")] == [
        ["pass@1", "0.250", "0.650", "+0.400"],
        ["pass@4", "0.550", "0.950", "+0.400"],
    ]
    assert "upper bound in 2 (100%)" in text
    for name in ("metrics.csv", "samples.html", "plots/", "summary.json"):
        assert name in text
    assert "model/" not in text
    summary = written(tmp_path)
    assert summary["folder"] == trainer.log_dir
    assert (summary["outcome"], summary["updates"]) == ("finished", 4)
    assert summary["before"] == {"step": 0.0, "pass@1": 0.25, "pass@4": 0.55}
    assert summary["after"]["pass@1"] == pytest.approx(0.65)
    assert summary["clip"] == {"updates": 2, "low": 0, "high": 2}
    seconds = summary["seconds"]
    assert (seconds["generate"], seconds["reward"], seconds["sync"]) == (3.0, 1.0, 0.5)  # of two rollout batches
    assert seconds["update"] > 0
    assert seconds["validation"] > 0


def test_a_clip_that_never_bound_is_said_plainly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, RunSummary(), policy=FakePolicy(clip=0.0))
    assert "never active" in capsys.readouterr().out


def test_without_validation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, RunSummary(), limit_val_batches=0)
    assert "There was no validation." in capsys.readouterr().out
    assert written(tmp_path)["after"] == {}


@pytest.mark.parametrize(
    ("error", "outcome"), [(RuntimeError("the engine died"), "RuntimeError"), (KeyboardInterrupt(), "interrupted")]
)
def test_a_run_that_ends_early_has_a_summary(tmp_path: Path, error: BaseException, outcome: str) -> None:
    with pytest.raises((RuntimeError, SystemExit)):
        run(tmp_path, RunSummary(), policy=FakePolicy(fail_at=3, error=error))
    summary = written(tmp_path)
    assert (summary["outcome"], summary["updates"]) == (outcome, 3)
    assert summary["after"]["step"] == 2


class Late(L.Callback):
    """Leaves a model behind as `ExportModel` does, and the recipe as the command does. Listed after the summary."""

    def setup(self, trainer: L.Trainer, *_: Any, **__: Any) -> None:
        (Path(str(trainer.log_dir)) / "config.yaml").write_text("{}")

    def on_exception(self, trainer: L.Trainer, *_: Any) -> None:
        (Path(str(trainer.log_dir)) / "model").mkdir()


@pytest.mark.parametrize("error", [RuntimeError("the engine died"), KeyboardInterrupt()])
def test_a_run_that_ends_early_says_what_it_left_and_how_to_go_on(
    tmp_path: Path, error: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = RunCheckpoint(save_last=True, save_on_exception=True)
    policy = FakePolicy(fail_at=3, error=error)
    folder = tmp_path / "my runs" / ("deep" * 30)  # longer than a terminal is wide, and with a space
    with pytest.raises((RuntimeError, SystemExit)):
        run(folder, RunSummary(), Late(), checkpoint, policy=policy, enable_checkpointing=True)
    said = capsys.readouterr().out
    assert said.count("Run folder") == 1
    assert "model/" in said
    assert "checkpoints/" in said
    (last,) = folder.rglob("last.ckpt")
    recipe = last.parents[1] / "config.yaml"
    assert said.splitlines()[-1] == f"To go on: gapo-lit fit --config '{recipe}' --ckpt_path '{last}'"
    assert torch.load(last, weights_only=False)["global_step"] == 3
    assert written(folder)["checkpoint"] == str(last)


def test_a_finished_run_is_not_told_to_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = run(tmp_path, RunSummary(), RunCheckpoint(save_last=True), enable_checkpointing=True)
    said = capsys.readouterr().out
    assert said.count("Run folder") == 1
    assert "To go on" not in said
    assert written(tmp_path)["checkpoint"] == str(Path(str(trainer.log_dir)) / "checkpoints" / "last.ckpt")


def test_without_a_checkpoint_there_is_nothing_to_go_on_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RuntimeError, match="the engine died"):
        run(tmp_path, RunSummary(), policy=FakePolicy(fail_at=1))
    assert "To go on" not in capsys.readouterr().out
    assert written(tmp_path)["checkpoint"] is None


def test_clip_activity_counts_later_updates_alone() -> None:
    rows = [
        {"step": s, "train/policy_version": v, "train/clip_fraction/high": h, "train/clip_fraction/low": 0.0}
        for s, v, h in ((1, 0, 0.5), (2, 0, 0.5), (3, 0, 0.0), (4, 3, 0.5), (5, 3, 0.1))
    ]
    assert clip_activity(History(rows)) == ClipActivity(updates=3, low=0, high=2)
    assert "in 2 (67%)" in clip_sentence(ClipActivity(3, 0, 2))
    assert "No clip could be active" in clip_sentence(ClipActivity(0, 0, 0))
