"""What an evaluation says of each benchmark, with intervals over its problems."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gapo_lit.analysis.bootstrap import Interval, bootstrap_mean, bootstrap_means
from gapo_lit.evaluation.problems import Problem
from gapo_lit.metrics.pass_at_k import pass_at_k

# Solve rates of the policy that training began with; a bucket holds its upper bound.
BUCKETS = (("never", 0.0), ("up to 1/4", 0.25), ("up to 3/4", 0.75), ("below 1", math.nextafter(1, 0)), ("always", 1.0))

Figures = Callable[[Mapping[str, tuple[float, int]]], Mapping[str, float]]


@dataclass(frozen=True)
class BenchmarkResult:
    """One benchmark's figures.

    problems: asked. unjudged: those that lack a verdict, left out of every pass@k. samples: n a problem. left_out: rows
    that were too long or had no usable gold. pass_at: k → mean over problems of unbiased pass@k, for every k up to n,
    with its 95 % bootstrap interval over problems. majority: majority@n, None where answers are not compared. reward:
    mean score. mean_length: tokens a sample; truncated: share of samples cut at the limit; no_verdict: share without a
    verdict. figures: what the reward reports of itself. by_difficulty: initial solve rate → (problems, pass@1).
    shares: other data that hold problems of this benchmark → how many.
    """

    name: str
    problems: int
    unjudged: int
    samples: int
    left_out: int
    pass_at: Mapping[int, Interval]
    majority: Interval | None
    reward: float
    mean_length: float
    truncated: float
    no_verdict: float
    figures: Mapping[str, float]
    by_difficulty: Mapping[str, tuple[int, Interval]]
    shares: Mapping[str, int]

    @property
    def label(self) -> str:
        """The name, with what else its problems were used for."""
        return f"{self.name} (also {' and '.join(self.shares)})" if self.shares else self.name

    def as_json(self) -> dict[str, Any]:
        """Plain numbers and mappings; a number that is not there is null."""
        tree = asdict(self) | {"label": self.label}
        tree["pass_at"] = {f"pass@{k}": asdict(interval) for k, interval in self.pass_at.items()}
        tree["by_difficulty"] = {
            name: {"problems": count, **asdict(interval)} for name, (count, interval) in self.by_difficulty.items()
        }
        return {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in tree.items()}


def summarise(
    problems: Sequence[Problem],
    *,
    figures: Figures,
    initial: Mapping[str, float] | None = None,
    shares: Mapping[str, int] | None = None,
    left_out: int = 0,
    resamples: int = 10_000,
) -> BenchmarkResult:
    """The figures of one benchmark.

    figures: the reward's own, from the components of all samples. initial: problem id → solve rate before training, for
    by_difficulty. Raises ValueError without problems, and for
    problems of several benchmarks.
    """
    names = {p.benchmark for p in problems}
    if len(names) != 1:
        raise ValueError(f"problems of {sorted(names) or 'no benchmark'} do not make one result; give one benchmark's")
    whole = [p for p in problems if p.whole]
    samples = sum(p.samples for p in problems)
    votes = [p.majority for p in whole if p.majority is not None]
    return BenchmarkResult(
        name=names.pop(),
        problems=len(problems),
        unjudged=len(problems) - len(whole),
        samples=max(p.samples for p in problems),
        left_out=left_out,
        pass_at=_pass_at(whole, resamples),
        # A problem none of whose samples gave an answer has no majority for the right one.
        majority=_interval([p.majority or 0.0 for p in whole], resamples) if votes else None,
        reward=_share(sum(p.reward for p in problems), sum(p.graded for p in problems)),
        mean_length=_share(sum(p.tokens for p in problems), samples),
        truncated=_share(sum(p.truncated for p in problems), samples),
        no_verdict=_share(samples - sum(p.graded for p in problems), samples),
        figures=figures(total_components(problems)),
        by_difficulty={} if initial is None else _by_difficulty(whole, initial, resamples),
        shares=dict(shares or {}),
    )


def scalars(problems: Sequence[Problem], figures: Figures) -> dict[str, float]:
    """The same figures of one benchmark without intervals, as they are logged during training.

    pass@k for powers of two and n. A figure without anything to count is left out.
    """
    whole = [p for p in problems if p.whole]
    samples = sum(p.samples for p in problems)
    n = min((p.samples for p in whole), default=0)
    values = {
        "completions/mean_length": _share(sum(p.tokens for p in problems), samples),
        "completions/truncated_fraction": _share(sum(p.truncated for p in problems), samples),
        "verdicts/none_fraction": _share(samples - sum(p.graded for p in problems), samples),
        "reward": _share(sum(p.reward for p in problems), sum(p.graded for p in problems)),
        **{f"reward/{name}": value for name, value in figures(total_components(problems)).items()},
        **{f"pass@{k}": math.fsum(p.pass_at(k) for p in whole) / len(whole) for k in logged_ks(n)},
    }
    if any(p.majority is not None for p in whole):
        values[f"majority@{n}"] = math.fsum(p.majority or 0.0 for p in whole) / len(whole)
    return {name: value for name, value in values.items() if math.isfinite(value)}


def logged_ks(n: int) -> list[int]:
    """1, 2, 4, … and n."""
    return sorted({*(1 << i for i in range(n.bit_length())), n} - {0})


def total_components(problems: Sequence[Problem]) -> dict[str, tuple[float, int]]:
    """Name → (sum, count) over all samples of all problems."""
    found: dict[str, tuple[float, int]] = {}
    for problem in problems:
        for name, (total, count) in problem.components.items():
            before = found.get(name, (0.0, 0))
            found[name] = (before[0] + total, before[1] + count)
    return found


def _by_difficulty(
    whole: Sequence[Problem], initial: Mapping[str, float], resamples: int
) -> dict[str, tuple[int, Interval]]:
    """Buckets that hold a problem; problems that the earlier evaluation does not have are in none."""
    buckets: dict[str, list[float]] = {name: [] for name, _ in BUCKETS}
    for problem in whole:
        rate = initial.get(problem.id, math.nan)
        name = next((name for name, most in BUCKETS if rate <= most), None)
        if name is not None:
            buckets[name].append(pass_at_k(problem.graded, problem.correct, 1))
    return {name: (len(values), _interval(values, resamples)) for name, values in buckets.items() if values}


def _pass_at(whole: Sequence[Problem], resamples: int) -> dict[int, Interval]:
    """Every k from the same draws of problems."""
    ks = range(1, min((p.samples for p in whole), default=0) + 1)
    if not whole:
        return {}
    values = np.array([[p.pass_at(k) for k in ks] for p in whole])
    return dict(zip(ks, bootstrap_means(values, resamples=resamples), strict=True))


def _interval(values: Sequence[float], resamples: int) -> Interval:
    return bootstrap_mean(np.asarray(values, dtype=float), resamples=resamples)


def _share(part: float, whole: float) -> float:
    return part / whole if whole else math.nan
