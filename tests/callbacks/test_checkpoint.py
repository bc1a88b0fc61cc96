from pathlib import Path
from typing import Any

import pytest
import torch

from gapo_lit.callbacks import RunCheckpoint, RunSummary
from gapo_lit.callbacks.checkpoint import ReplacingCheckpointIO
from tests.callbacks.fake_run import FakePolicy, run


def steps(folder: Path) -> dict[str, int]:
    """The update of each checkpoint."""
    return {path.stem: torch.load(path, weights_only=False)["global_step"] for path in folder.rglob("*.ckpt")}


def best_and_last() -> RunCheckpoint:
    """The validation before training is not among them, pass@1 grows with the updates, and the lowest is the best."""
    best = {"monitor": "val/pass@1", "mode": "min", "filename": "best"}
    return RunCheckpoint(save_last=True, save_on_exception=True, **best)


@pytest.mark.parametrize(("trainer", "last"), [({}, 4), ({"max_steps": 3, "max_epochs": -1}, 3)])
def test_the_last_checkpoint_is_the_last_whatever_is_the_best(
    tmp_path: Path, trainer: dict[str, Any], last: int
) -> None:
    run(tmp_path, best_and_last(), enable_checkpointing=True, **trainer)
    assert steps(tmp_path) == {"best": 2, "last": last}


def test_a_checkpoint_that_cannot_be_written_hides_neither_error_nor_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise OSError("disk full")

    checkpoint = best_and_last()
    monkeypatch.setattr(checkpoint, "_save_checkpoint", fail)
    with (
        pytest.warns(UserWarning, match="no checkpoint was written after RuntimeError.*disk full"),
        pytest.raises(RuntimeError, match="the engine died"),
    ):
        run(tmp_path, RunSummary(), checkpoint, policy=FakePolicy(fail_at=1), enable_checkpointing=True)
    assert "1 updates, RuntimeError" in capsys.readouterr().out


def test_a_save_that_fails_leaves_the_good_checkpoint_and_no_litter(tmp_path: Path) -> None:
    class Unsaveable:
        def __reduce__(self) -> str:
            raise OSError("no space left on device")

    path = tmp_path / "last.ckpt"
    ReplacingCheckpointIO().save_checkpoint({"global_step": 1}, path)
    with pytest.raises(OSError, match="no space left"):
        ReplacingCheckpointIO().save_checkpoint({"global_step": 2, "weights": Unsaveable()}, path)
    assert steps(tmp_path) == {"last": 1}
    assert list(tmp_path.iterdir()) == [path]
