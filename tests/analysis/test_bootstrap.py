"""Intervals over problems, against scipy, exact limits and simulation."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from gapo_lit.analysis.bootstrap import Interval, bootstrap_mean, bootstrap_means, paired_bootstrap

SHARES = np.array([0.0, 0.0, 0.125, 0.25, 0.25, 0.5, 0.75, 0.875, 1.0, 1.0, 1.0, 0.125])


def test_the_interval_is_scipys_bca() -> None:
    ours = bootstrap_mean(SHARES, resamples=20_000)
    rng = np.random.default_rng(1)
    theirs = stats.bootstrap((SHARES,), np.mean, n_resamples=20_000, method="BCa", rng=rng).confidence_interval
    assert ours.estimate == pytest.approx(SHARES.mean())
    assert ours.low == pytest.approx(theirs.low, abs=0.01)
    assert ours.high == pytest.approx(theirs.high, abs=0.01)


def test_many_columns_are_each_as_alone() -> None:
    values = np.stack([SHARES, SHARES**2, np.ones_like(SHARES)], axis=1)
    for together, column in zip(bootstrap_means(values), values.T, strict=True):
        alone = bootstrap_mean(column)
        assert together.estimate == alone.estimate
        # Sums are rounded in another order, and a quantile of a few values may be the next one then.
        assert (together.low, together.high) == pytest.approx((alone.low, alone.high), abs=0.02)


@pytest.mark.parametrize("problems", [5, 30, 500])
def test_where_no_problem_is_solved_the_limit_is_exact(problems: int) -> None:
    found = bootstrap_mean(np.zeros(problems))
    exact = stats.binomtest(0, problems).proportion_ci(method="exact")
    assert (found.estimate, found.low) == (0, 0)
    assert found.high == pytest.approx(exact.high)
    assert bootstrap_mean(np.ones(problems)).low == pytest.approx(1 - exact.high)


def test_intervals_hold_the_true_mean_about_as_often_as_they_say() -> None:
    """30 problems, as AIME has, with solve rates from a beta distribution of mean 0.3: 400 draws of them."""
    rng = np.random.default_rng(0)
    held = 0
    for seed in range(400):
        interval = bootstrap_mean(rng.beta(0.6, 1.4, 30), resamples=1000, seed=seed)
        held += interval.low <= 0.3 <= interval.high
    assert stats.binomtest(held, 400, 0.95).pvalue > 1e-4 or held > 380, held


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=2, max_size=20), st.randoms())
def test_the_order_of_problems_does_not_matter(values: list[float], random: object) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    found = bootstrap_mean(np.array(values), resamples=1000)
    assert found == bootstrap_mean(np.array(shuffled), resamples=1000)
    assert found.low <= found.estimate + 1e-12
    assert found.estimate <= found.high + 1e-12


def runs(a: np.ndarray, b: np.ndarray) -> tuple[dict[str, float], dict[str, float]]:
    return {str(i): float(v) for i, v in enumerate(a)}, {str(i): float(v) for i, v in enumerate(b)}


def test_a_paired_difference_changes_sign_with_the_runs() -> None:
    a, b = runs(SHARES, SHARES**2)
    there, back = paired_bootstrap(a, b), paired_bootstrap(b, a)
    mirrored = Interval(-there.difference.estimate, -there.difference.high, -there.difference.low)
    for ours, theirs in zip(asdict(back.difference).values(), asdict(mirrored).values(), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-9)
    assert back.p == pytest.approx(there.p)


def test_equal_runs_do_not_differ_and_clear_ones_do() -> None:
    a, b = runs(SHARES, SHARES)
    assert paired_bootstrap(a, b).p == 1
    a, b = runs(np.full(40, 0.9), np.linspace(0.1, 0.3, 40))
    found = paired_bootstrap(a, b)
    assert found.p < 0.001
    assert found.difference.low > 0.6


def test_the_null_is_rejected_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    rejected = 0
    for seed in range(300):
        rates = rng.beta(0.6, 1.4, 100)
        a, b = runs(rng.binomial(8, rates) / 8, rng.binomial(8, rates) / 8)
        rejected += paired_bootstrap(a, b, resamples=1000, seed=seed).p < 0.05
    assert stats.binomtest(rejected, 300, 0.05).pvalue > 1e-4 or rejected < 15, rejected


def test_runs_on_other_problems_are_refused_or_counted() -> None:
    a, b = {"1": 0.5, "2": 0.25, "3": 1.0}, {"2": 0.5, "3": 0.5, "4": 0.0}
    with pytest.raises(ValueError, match="1 problems are only in the first run and 1 only in the second, '1' for one"):
        paired_bootstrap(a, b)
    found = paired_bootstrap(a, b, unmatched="drop")
    assert (found.problems, found.only_a, found.only_b) == (2, 1, 1)
    with pytest.raises(ValueError, match="none of the 3 and 1 problems is in both runs"):
        paired_bootstrap(a, {"9": 1.0}, unmatched="drop")


@pytest.mark.parametrize(
    ("values", "more", "said"),
    [
        ([], {}, "no figure to resample"),
        ([0.5, float("nan")], {}, "not finite"),
        ([0.5, 1.5], {}, "a figure is 1.5, outside support"),
        ([0.5, 0.6], {"resamples": 10}, "resamples=10"),
        ([0.5, 0.6], {"level": 95}, "level=95"),
    ],
)
def test_what_cannot_be_resampled_is_refused(values: list[float], more: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        bootstrap_mean(np.array(values), **more)  # type: ignore[arg-type]
