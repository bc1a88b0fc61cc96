import csv
import errno
import threading
from pathlib import Path

import pytest
from lightning_utilities.core.rank_zero import rank_zero_only

from gapo_lit.callbacks import RunLogger
from gapo_lit.callbacks.history import read_history
from gapo_lit.files import replacing


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_runs_that_start_together_never_share_a_folder(tmp_path: Path) -> None:
    (tmp_path / "run" / "version_4").mkdir(parents=True)
    loggers = [RunLogger(str(tmp_path)) for _ in range(12)]
    start = threading.Barrier(len(loggers))

    def claim(logger: RunLogger) -> None:
        start.wait()
        _ = logger.experiment

    threads = [threading.Thread(target=claim, args=(logger,)) for logger in loggers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(int(logger.version) for logger in loggers) == list(range(5, 17))
    assert all(Path(logger.log_dir).is_dir() for logger in loggers)


def test_nothing_is_made_before_the_folder_is_asked_for(tmp_path: Path) -> None:
    logger = RunLogger(str(tmp_path / "runs"))
    assert not (tmp_path / "runs").exists()
    assert logger.log_dir == str(tmp_path / "runs" / "run" / "version_0")
    assert logger.version == 0
    _ = logger.experiment
    assert logger.version == 0


def test_other_ranks_make_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_zero_only, "rank", 1)
    logger = RunLogger(str(tmp_path))
    logger.log_metrics({"a": 1.0}, step=0)
    assert "unallocated" in logger.log_dir
    assert list(tmp_path.iterdir()) == []


def test_a_named_run_that_exists_is_refused(tmp_path: Path) -> None:
    first = RunLogger(str(tmp_path), version="seed1")
    first.log_metrics({"a": 1.0}, step=1)
    with pytest.raises(FileExistsError, match="give another version"):
        RunLogger(str(tmp_path), version="seed1").log_metrics({"a": 2.0}, step=1)
    assert rows(first.metrics_path) == [{"step": "1", "a": "1.0"}]


def test_a_remote_folder_is_refused() -> None:
    with pytest.raises(ValueError, match="s3://bucket is not a local folder"):
        RunLogger("s3://bucket")


def test_every_step_is_on_disk_at_once_and_new_metrics_may_appear(tmp_path: Path) -> None:
    logger = RunLogger(str(tmp_path))
    logger.log_metrics({"b": 1.0}, step=1)
    assert rows(logger.metrics_path) == [{"step": "1", "b": "1.0"}]
    logger.log_metrics({"b": 2.0, "a": 3.0}, step=2)
    logger.log_metrics({"a": 4.0}, step=3)
    assert rows(logger.metrics_path) == [
        {"step": "1", "a": "", "b": "1.0"},
        {"step": "2", "a": "3.0", "b": "2.0"},
        {"step": "3", "a": "4.0", "b": ""},
    ]
    logger.finalize("success")
    assert len(rows(logger.metrics_path)) == 3


def test_known_metrics_only_append(tmp_path: Path) -> None:
    logger = RunLogger(str(tmp_path))
    logger.log_metrics({"a": 0.0}, step=0)
    inode = logger.metrics_path.stat().st_ino
    for step in range(1, 50):
        logger.log_metrics({"a": float(step)}, step=step)
    assert logger.metrics_path.stat().st_ino == inode
    logger.log_metrics({"c": 1.0}, step=50)
    assert logger.metrics_path.stat().st_ino != inode


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_says_so_once(tmp_path: Path) -> None:
    logger = RunLogger(str(tmp_path))
    logger.log_metrics({"a": 0.0}, step=0)
    logger.metrics_path.unlink()
    logger.metrics_path.symlink_to("/dev/full")
    with pytest.raises(OSError, match="go on from the last checkpoint") as caught:
        logger.log_metrics({"a": 1.0}, step=1)
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == str(logger.metrics_path)
    logger.finalize("failed")  # what Lightning calls next must not hide the error behind another


def test_history_leaves_out_a_torn_last_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text("step,train/reward,train/policy_version\n1,0.5,0\n2,0.25,0\n3,0.12")
    history = read_history(path)
    assert history.series("train/reward") == ([1.0, 2.0], [0.5, 0.25])
    assert read_history(tmp_path / "absent.csv").rows == []


def test_history_knows_later_updates_and_validations(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text(
        "step,train/policy_version,val/pass@1,val/pass@16,val/pass@2\n"
        "0,,.1,.5,.2\n1,0,,,\n2,0,,,\n2,,.3,.6,.4\n3,2,,,\n4,2,,,\n5,2,,,\n"
    )
    history = read_history(path)
    assert [row["step"] for row in history.later_updates()] == [2, 4, 5]
    assert history.validations[0] == {"step": 0, "pass@1": 0.1, "pass@2": 0.2, "pass@16": 0.5}
    assert [row["step"] for row in history.validations] == [0, 2]
    assert history.names("val/pass@") == ["val/pass@1", "val/pass@2", "val/pass@16"]


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    path.write_text("old")

    def fail_half_way() -> None:
        with replacing(path) as partial:
            partial.write_text("half")
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        fail_half_way()
    assert path.read_text() == "old"
    with replacing(path) as partial:
        partial.write_text("new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]
