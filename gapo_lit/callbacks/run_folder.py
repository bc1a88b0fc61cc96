"""One folder a run, and the metrics in it."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lightning.fabric.loggers.logger import rank_zero_experiment
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.loggers.csv_logs import ExperimentWriter
from lightning_utilities.core.rank_zero import rank_zero_only

FIRST_COLUMNS = ("step", "epoch")


class RunLogger(CSVLogger):
    """Lightning's CSVLogger with a run folder that is this run's alone, and metrics that survive a kill.

    The folder is <save_dir>/<name>/version_<N>, made on rank 0 when the run begins: creating a folder is atomic, so two
    runs started together never share one. Every logged step is on disk before the next begins.

    save_dir: a local folder. name: what the runs have in common. version: name this run's folder instead of numbering
    it; one that exists raises FileExistsError, because its metrics would be mixed with these.
    """

    def __init__(self, save_dir: str = "runs", name: str = "run", version: int | str | None = None) -> None:
        if "://" in os.fspath(save_dir):
            raise ValueError(f"save_dir={save_dir} is not a local folder; log to one, and copy it where it should go")
        super().__init__(save_dir, name, version, flush_logs_every_n_steps=1)
        self._claimed = False

    @property
    def version(self) -> int | str:
        """What this run's folder is called; ranks other than 0 learn it from rank 0, by `Trainer.log_dir`."""
        if self._version is None:
            if getattr(rank_zero_only, "rank", 0) != 0:
                return "unallocated"
            self._version, self._claimed = self._claim_next(), True
        return self._version

    def _claim_next(self) -> int:
        os.makedirs(self.root_dir, exist_ok=True)
        number = self._get_next_version()
        while True:
            try:
                os.mkdir(os.path.join(self.root_dir, f"version_{number}"))
            except FileExistsError:
                number += 1  # another run was faster
            else:
                return number

    def _get_next_version(self) -> int:
        taken = (name.removeprefix("version_") for name in os.listdir(self.root_dir))
        return max((int(number) for number in taken if number.isdigit()), default=-1) + 1

    @property
    @rank_zero_experiment
    def experiment(self) -> ExperimentWriter:
        """The writer of metrics.csv."""
        if self._experiment is None:
            if self._version is not None and not self._claimed:
                self._claim_named()
            self._experiment = MetricsFile(self.log_dir)
        return self._experiment  # type: ignore[return-value]

    def _claim_named(self) -> None:
        try:
            os.makedirs(self.log_dir)
            self._claimed = True
        except FileExistsError as error:
            raise FileExistsError(
                f"the run folder {self.log_dir} exists; give another version, or none to have the next free number"
            ) from error

    @property
    def metrics_path(self) -> Path:
        """Where the metrics are, on rank 0."""
        return Path(self.log_dir) / ExperimentWriter.NAME_METRICS_FILE


class MetricsFile(ExperimentWriter):
    """Appends each row; only a metric that is new has the file written again, and then replaced whole."""

    def _check_log_dir_exists(self) -> None:
        """The folder was made for this run, so whatever is in it stays."""

    def save(self) -> None:
        """Write the rows that are not on disk yet. Raises OSError saying what to do where they cannot be."""
        rows, self.metrics = self.metrics, []
        if not rows:
            return
        path = Path(self.metrics_file_path)
        try:
            new = {name for row in rows for name in row} - set(self.metrics_keys)
            if new:
                self._add_columns(path, new)
            with path.open("a", encoding="utf-8", newline="") as file:
                self._writer(file).writerows(rows)
        except OSError as error:
            raise OSError(
                error.errno,
                f"metrics could not be written ({error.strerror}); free or mount what is missing and go on from the "
                "last checkpoint with --ckpt_path",
                str(path),
            ) from error

    def _add_columns(self, path: Path, new: Iterable[str]) -> None:
        names = {*self.metrics_keys, *new}
        self.metrics_keys = [n for n in FIRST_COLUMNS if n in names] + sorted(names - set(FIRST_COLUMNS))
        old: list[Mapping[str, Any]] = []
        if path.exists():
            with path.open(encoding="utf-8", newline="") as file:
                old = list(csv.DictReader(file))
        partial = path.with_name(f".partial-{path.name}")
        with partial.open("w", encoding="utf-8", newline="") as file:
            writer = self._writer(file)
            writer.writeheader()
            writer.writerows(old)
        partial.replace(path)

    def _writer(self, file: Any) -> csv.DictWriter[str]:
        return csv.DictWriter(file, self.metrics_keys, lineterminator="\n")
