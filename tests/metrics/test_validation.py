"""A validation counts problems, not batches, and a missing verdict is no wrong answer."""

from __future__ import annotations

import pytest
import torch

from gapo_lit.metrics.validation import ValidationMetrics
from gapo_lit.types import Completion, Example, Prompt, Rollout, Verdict
from tests.test_batching import Alone


def problem(name: int, verdicts: str) -> list[Rollout]:
    """One letter a sample: r(ight), w(rong), n(one)."""
    prompt = Prompt(Example(str(name), "?", "1"), (1,), "?")
    kinds = {"r": Verdict.of(True), "w": Verdict.of(False), "n": Verdict.none("lost")}
    return [Rollout(prompt, Completion((1, 2), (-1.0, -1.0), "", "stop"), kinds[v], name, 0) for v in verdicts]


def test_pass_at_k_is_a_mean_over_problems() -> None:
    metrics = ValidationMetrics(4, torch.device("cpu"))
    metrics.update(problem(0, "rwww") + problem(1, "rrrr"))
    metrics.update(problem(0, "wwww"))
    values = metrics.compute(Alone())
    assert values["pass@1"] == pytest.approx((0.25 + 1 + 0) / 3)
    assert values["pass@2"] == pytest.approx((0.5 + 1 + 0) / 3)
    assert values["pass@4"] == pytest.approx(2 / 3)
    assert values["completions/mean_length"] == 2


def test_a_problem_that_lacks_a_verdict_is_left_out_and_counted() -> None:
    metrics = ValidationMetrics(2, torch.device("cpu"))
    metrics.update(problem(0, "rn") + problem(1, "rw"))
    values = metrics.compute(Alone())
    assert values["pass@1"] == 0.5
    assert values["verdicts/none_fraction"] == 0.25
    assert values["reward"] == pytest.approx(2 / 3)


def test_powers_of_two_and_the_number_of_samples() -> None:
    metrics = ValidationMetrics(6, torch.device("cpu"))
    metrics.update(problem(0, "rrrrrr"))
    assert sorted(k for k in metrics.compute(Alone()) if k.startswith("pass@")) == [
        "pass@1",
        "pass@2",
        "pass@4",
        "pass@6",
    ]
