"""How each problem was answered: what an evaluation is made of, whatever is computed from it later."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gapo_lit.metrics.pass_at_k import pass_at_k
from gapo_lit.metrics.rollouts import Ranks
from gapo_lit.types import EvaluationBatch, Rollout


@dataclass(frozen=True)
class Problem:
    """One problem of one benchmark, by its position in it.

    samples: completions drawn. graded: those with a verdict, n of pass@k where they are all of them. correct: c.
    reward: sum of scores. tokens: of all samples. truncated: samples cut at the limit. components: name → (sum, count)
    of a combined reward's parts. majority: the chance that the most frequent answer is a correct one, ties drawn by
    lot; None where no sample has an answer to count.
    """

    benchmark: str
    position: int
    id: str
    samples: int
    graded: int
    correct: int
    reward: float
    tokens: int
    truncated: int
    components: Mapping[str, tuple[float, int]] = field(default_factory=dict)
    majority: float | None = None

    @property
    def whole(self) -> bool:
        """Whether every sample has a verdict; pass@k of fewer samples would estimate another quantity."""
        return self.graded == self.samples > 0

    @property
    def solve_rate(self) -> float:
        """c/n, NaN without a verdict."""
        return self.correct / self.graded if self.graded else math.nan

    def pass_at(self, k: int) -> float:
        """Unbiased pass@k of this problem."""
        return pass_at_k(self.graded, self.correct, k)


def problems_of(batch: EvaluationBatch) -> list[Problem]:
    """A record of each problem in a batch, which holds all samples of it."""
    groups: dict[int, list[Rollout]] = {}
    for rollout in batch.rollouts:
        groups.setdefault(rollout.group, []).append(rollout)
    return [_problem(batch.benchmark, batch.positions[group], samples) for group, samples in groups.items()]


def _problem(benchmark: str, position: int, samples: Sequence[Rollout]) -> Problem:
    verdicts = [r.verdict for r in samples]
    parts: dict[str, tuple[float, int]] = {}
    for verdict in verdicts:
        for name, value in verdict.components.items():
            total, count = parts.get(name, (0.0, 0))
            parts[name] = (total + value, count + 1)
    return Problem(
        benchmark,
        position,
        samples[0].prompt.id,
        samples=len(samples),
        graded=sum(v.kind != "none" for v in verdicts),
        correct=sum(v.kind == "correct" for v in verdicts),
        reward=math.fsum(v.score for v in verdicts if v.score is not None),
        tokens=sum(len(r.completion.token_ids) for r in samples),
        truncated=sum(r.completion.finish_reason == "length" for r in samples),
        components=parts,
        majority=majority(samples),
    )


def majority(samples: Iterable[Rollout]) -> float | None:
    """majority@n of one problem: the answer given most often is correct (arXiv:2203.11171); None without answers.

    Answers are equal where their verdicts' texts are. A tie counts the share of the tied answers that are correct.
    """
    votes: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for rollout in samples:
        if rollout.verdict.answer is not None:
            votes[rollout.verdict.answer] += 1
            right[rollout.verdict.answer] += rollout.verdict.kind == "correct"
    if not votes:
        return None
    most = max(votes.values())
    tied = [answer for answer, count in votes.items() if count == most]
    return sum(right[answer] / votes[answer] for answer in tied) / len(tied)


class Evaluation:
    """Problems as they come in, on this rank."""

    def __init__(self) -> None:
        self._mine: list[Problem] = []

    def update(self, batch: EvaluationBatch) -> None:
        """Add a batch."""
        self._mine += problems_of(batch)

    def compute(self, ranks: Ranks) -> list[Problem]:
        """The problems of all ranks, by benchmark and position; a collective.

        Raises RuntimeError for a problem that came in twice: it would count twice.
        """
        everybody = [problem for mine in ranks.gather(self._mine) for problem in mine]
        counts = Counter((problem.benchmark, problem.position) for problem in everybody)
        twice = [f"{name} {position}" for (name, position), count in counts.items() if count > 1]
        if twice:
            raise RuntimeError(f"{len(twice)} problems were evaluated twice, the first of them {twice[0]}")
        order = {name: i for i, name in enumerate(dict.fromkeys(p.benchmark for p in everybody))}
        return sorted(everybody, key=lambda p: (order[p.benchmark], p.position))
