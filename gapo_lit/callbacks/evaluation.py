"""The report of `validate` and `test`: samples, problems and results in a folder, and a table on the screen."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import Logger, WandbLogger
from rich.console import Console
from rich.table import Table

from gapo_lit.analysis.bootstrap import Interval
from gapo_lit.callbacks.run_folder import RunLogger
from gapo_lit.callbacks.terminal import terminal
from gapo_lit.evaluation.problems import Problem
from gapo_lit.evaluation.results import BUCKETS, BenchmarkResult, summarise
from gapo_lit.evaluation.store import SampleStore, StoreError, weights_on_disk, written
from gapo_lit.files import replacing

RESULTS, PROBLEMS, SAMPLES = "results.json", "problems.csv", "samples"
WIDE = 140  # characters of a table that goes to a file
COLUMNS = ("benchmark", "position", "id", "samples", "graded", "correct", "reward", "tokens", "truncated", "majority")


class EvaluationReport(Callback):
    """Keeps every sample of an evaluation and reports what they say.

    In `folder`: samples/<benchmark>/*.parquet as they are graded, problems.csv, and results.json with every figure. An
    evaluation that stopped goes on in the same folder. name: what a new folder is called, where folder is None.
    checkpoint: whose weights are evaluated; Lightning has not said it yet where samples are looked for. recipe: kept as
    config.yaml.
    initial: the folder of an earlier evaluation, of the policy that training began with; pass@1 is then reported by
    initial solve rate, too. Raises ValueError where the folder holds samples of other weights or settings, and
    FileNotFoundError where `initial` is no evaluation.
    """

    def __init__(
        self,
        name: str,
        folder: str | None = None,
        initial: str | None = None,
        checkpoint: str | None = None,
        recipe: str | None = None,
    ) -> None:
        self.name, self.checkpoint, self.recipe = name, checkpoint, recipe
        self.folder = None if folder is None else Path(folder).expanduser()
        self.initial = None if initial is None else solve_rates(Path(initial).expanduser())
        self.results: list[BenchmarkResult] = []

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Open the folder on every rank, before any of them answers a problem; Lightning waits for all after this."""
        folder = self.folder
        if folder is None:
            folder = Path(RunLogger(name=self.name).log_dir) if trainer.is_global_zero else Path()
        self.folder = trainer.strategy.broadcast(folder)
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        model: Any = pl_module
        policy = weights_on_disk(model.model_name, self.checkpoint) | {"seed": data.seed}
        data.store = SampleStore(self.folder / SAMPLES, policy)
        for task in data.tasks(stage):
            data.store.open(task, write=trainer.is_global_zero)
        if self.recipe is not None and trainer.is_global_zero:
            place = self.folder / "config.yaml"
            with written(place), replacing(place) as path:
                path.write_text(self.recipe, encoding="utf-8")

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Report."""
        self._report(trainer, pl_module, "validate")

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Report."""
        self._report(trainer, pl_module, "test")

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Say how to go on, where that is not what the exception is about."""
        if trainer.is_global_zero and self.folder is not None and not isinstance(exception, StoreError):
            print(f"graded samples are kept; the same command with --out {self.folder} goes on from them")

    def _report(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if not trainer.is_global_zero or self.folder is None:
            return
        data, module = trainer.datamodule, pl_module  # type: ignore[attr-defined]
        problems: Sequence[Problem] = module.problems  # type: ignore[assignment]
        tasks = {task.name: task for task in data.tasks(stage)}
        self.results = []
        for name, of_one in groupby(problems, key=lambda problem: problem.benchmark):
            task, own = tasks[name], list(of_one)
            if len(own) != len(task.prompts.prompts):
                raise RuntimeError(f"{name}: {len(own)} of {len(task.prompts.prompts)} problems were evaluated")
            initial = None if self.initial is None else self.initial.get(name, {})
            left_out, shares = len(task.prompts.left_out), data.shares(task)
            self.results.append(
                summarise(own, figures=task.reward.figures, initial=initial, shares=shares, left_out=left_out)
            )
        about = {"model": module.model_name, "checkpoint": self.checkpoint}
        write(self.folder, problems, self.results, about)
        into_summaries(trainer.loggers, self.results)
        console = terminal()
        if not console.is_terminal:
            console = Console(width=WIDE)
        console.print(table(self.results))
        if self.initial is not None:
            console.print(difficulty_table(self.results))
        console.print(f"{self.folder}: {RESULTS}, {PROBLEMS}, {SAMPLES}/", soft_wrap=True, highlight=False)


def write(
    folder: Path, problems: Sequence[Problem], results: Sequence[BenchmarkResult], about: Mapping[str, Any]
) -> None:
    """problems.csv, one row a problem, and results.json."""
    place = folder / PROBLEMS
    with written(place), replacing(place) as path, path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        rows.writeheader()
        rows.writerows({column: getattr(problem, column) for column in COLUMNS} for problem in problems)
    place = folder / RESULTS
    with written(place), replacing(place) as path:
        tree = {**about, "benchmarks": {result.name: result.as_json() for result in results}}
        path.write_text(json.dumps(tree, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def solve_rates(folder: Path) -> dict[str, dict[str, float]]:
    """Benchmark → problem id → solve rate, of an evaluation's folder; problems without a verdict are left out."""
    path = folder / PROBLEMS
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no {PROBLEMS}; give the --out folder of a finished evaluation")
    rates: dict[str, dict[str, float]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if int(row["graded"]):
                rates.setdefault(row["benchmark"], {})[row["id"]] = int(row["correct"]) / int(row["graded"])
    return rates


def into_summaries(loggers: Iterable[Logger], results: Sequence[BenchmarkResult]) -> None:
    """The figures into the summary of every W&B run."""
    for logger in loggers:
        if isinstance(logger, WandbLogger):
            logger.experiment.summary.update(flat(results))


def flat(results: Sequence[BenchmarkResult]) -> dict[str, Any]:
    """The figures under test/<benchmark>/, for loggers that keep a summary."""
    found: dict[str, Any] = {}
    for result in results:
        place = f"test/{result.name}"
        for k, interval in result.pass_at.items():
            found |= {f"{place}/pass@{k}": interval.estimate, f"{place}/pass@{k}/low": interval.low}
            found[f"{place}/pass@{k}/high"] = interval.high
        found |= {f"{place}/{name}": value for name, value in result.figures.items()}
        found[f"{place}/also"] = ", ".join(result.shares)
    return found


def table(results: Sequence[BenchmarkResult]) -> Table:
    """One row a benchmark."""
    shown = Table(title="pass@k with 95 % intervals over problems", title_justify="left")
    shown.add_column("benchmark", overflow="fold")
    for heading in ("problems", "n", "pass@1", "pass@n", "majority@n", "length", "cut", "no verdict"):
        shown.add_column(heading, justify="right")
    for r in results:
        out = ", ".join(
            text
            for count, text in ((r.left_out, f"{r.left_out} left out"), (r.unjudged, f"{r.unjudged} unjudged"))
            if count
        )
        shown.add_row(
            r.label,
            f"{r.problems}" + (f" ({out})" if out else ""),
            str(r.samples),
            _shown(r.pass_at.get(1)),
            _shown(r.pass_at.get(max(r.pass_at, default=0))),
            _shown(r.majority),
            f"{r.mean_length:.1f}",
            f"{r.truncated:.1%}",
            f"{r.no_verdict:.1%}",
        )
    return shown


def difficulty_table(results: Sequence[BenchmarkResult]) -> Table:
    """pass@1 by how often the first policy solved a problem."""
    shown = Table(title="pass@1 by initial solve rate (problems)", title_justify="left")
    shown.add_column("benchmark", overflow="fold")
    for name, _ in BUCKETS:
        shown.add_column(name, justify="right")
    for r in results:
        cells = [r.by_difficulty.get(name) for name, _ in BUCKETS]
        shown.add_row(r.label, *("–" if c is None else f"{c[1].estimate:.3f} ({c[0]})" for c in cells))
    return shown


def _shown(interval: Interval | None) -> str:
    if interval is None or not math.isfinite(interval.estimate):
        return "–"
    return f"{interval.estimate:.3f}\n[{interval.low:.3f}, {interval.high:.3f}]"
