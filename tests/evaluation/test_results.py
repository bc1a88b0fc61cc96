"""Figures of a benchmark, each against a value worked out by hand."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch.loggers import CSVLogger, WandbLogger

from gapo_lit.callbacks.evaluation import difficulty_table, flat, into_summaries, table
from gapo_lit.evaluation import results
from gapo_lit.evaluation.problems import Problem
from gapo_lit.evaluation.results import BUCKETS
from tests.fakes import ScriptedReward

summarise = partial(results.summarise, figures=ScriptedReward().figures, resamples=1000)


def problem(position: int, correct: int, samples: int = 4, graded: int | None = None, **more: Any) -> Problem:
    number = samples if graded is None else graded
    return Problem("bench", position, f"p{position}", samples, number, correct, float(correct), 10, 1, **more)


def test_every_k_up_to_n_has_a_value_inside_its_interval() -> None:
    result = summarise([problem(0, 1), problem(1, 4), problem(2, 0)])
    assert list(result.pass_at) == [1, 2, 3, 4]
    assert result.pass_at[1].estimate == pytest.approx((0.25 + 1) / 3)
    assert result.pass_at[2].estimate == pytest.approx((0.5 + 1) / 3)
    assert result.pass_at[4].estimate == pytest.approx(2 / 3)
    for interval in result.pass_at.values():
        assert interval.low <= interval.estimate <= interval.high
    assert (result.problems, result.samples, result.mean_length, result.truncated) == (3, 4, 2.5, 0.25)


def test_problems_without_all_verdicts_are_counted_and_not_estimated() -> None:
    result = summarise([problem(0, 4), problem(1, 0, graded=3)], left_out=5)
    assert (result.unjudged, result.left_out, result.no_verdict) == (1, 5, 1 / 8)
    assert result.pass_at[1].estimate == 1
    nothing = summarise([problem(0, 0, graded=0)])
    assert dict(nothing.pass_at) == {}
    assert nothing.unjudged == 1


def test_majority_and_parts_of_the_reward() -> None:
    parts = {"format": (3.0, 4)}
    result = summarise([problem(0, 2, majority=1.0, components=parts), problem(1, 0, majority=0.5)])
    assert result.majority is not None
    assert result.majority.estimate == 0.75
    assert result.figures == {"format": 0.75}
    assert summarise([problem(0, 2)]).majority is None


def test_pass_at_1_by_initial_solve_rate() -> None:
    problems = [problem(i, c) for i, c in enumerate((4, 0, 2, 4, 4, 4))]
    initial = {"p0": 0.0, "p1": 0.0, "p2": 0.25, "p3": 0.5, "p4": 1.0}
    found = summarise(problems, initial=initial).by_difficulty
    assert {name: (count, interval.estimate) for name, (count, interval) in found.items()} == {
        "never": (2, 0.5),
        "up to 1/4": (1, 0.5),
        "up to 3/4": (1, 1.0),
        "always": (1, 1.0),
    }
    assert [name for name, _ in BUCKETS][3] == "below 1"


def test_problems_that_chose_the_checkpoint_are_named_everywhere() -> None:
    result = summarise([problem(0, 2)], shares={"validation": 1})
    assert result.label == "bench (also validation)"
    assert result.as_json()["label"] == result.label
    assert result.as_json()["shares"] == {"validation": 1}
    assert flat([result])["test/bench/also"] == "validation"
    assert list(table([result]).columns[0].cells) == [result.label]
    assert list(difficulty_table([result]).columns[0].cells) == [result.label]


def test_results_are_plain_json() -> None:
    tree = summarise([problem(0, 0, graded=0, components={})], initial={}).as_json()
    assert tree["reward"] is None
    assert json.loads(json.dumps(tree, allow_nan=False)) == tree
    full = summarise([problem(0, 2), problem(1, 3)], initial={"p0": 0.5}).as_json()
    assert math.isclose(full["pass_at"]["pass@1"]["estimate"], 0.625)
    assert full["by_difficulty"]["up to 3/4"]["problems"] == 1


def test_figures_reach_the_summary_of_a_wandb_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_SILENT", "true")
    logger = WandbLogger(save_dir=str(tmp_path), offline=True)
    result = summarise([problem(0, 2), problem(1, 3)])
    into_summaries([CSVLogger(str(tmp_path)), logger], [result])
    summary = logger.experiment.summary
    assert summary["test/bench/pass@1"] == result.pass_at[1].estimate
    assert summary["test/bench/pass@4/high"] == result.pass_at[4].high
    logger.experiment.finish()


def test_problems_of_two_benchmarks_are_refused() -> None:
    with pytest.raises(ValueError, match="no benchmark do not make one result"):
        summarise([])
