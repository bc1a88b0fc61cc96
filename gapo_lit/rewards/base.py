"""The protocol of every reward."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

from gapo_lit.registry import kind
from gapo_lit.types import Completion, Example, Prompt, Verdict, VerdictKind

LISTED = 10


@kind("reward")
class Reward(ABC):
    """Grades completions. A verdict that cannot be had is `Verdict.none`, never a reward of 0."""

    @abstractmethod
    def __call__(self, prompts: Sequence[Prompt], completions: Sequence[Completion]) -> list[Verdict]:
        """One verdict a completion, in order; prompts[i] is the prompt that completions[i] answers.

        Raises ValueError where the two lengths differ.
        """

    def check(self, examples: Sequence[Example]) -> None:  # noqa: B027  (most rewards can grade any row)
        """Look at the gold answers before a run starts; raises ValueError naming the rows that cannot be graded."""

    def figures(self, components: Mapping[str, tuple[float, int]]) -> Mapping[str, float]:
        """What an evaluation reports beside pass@k, of the verdicts' components: their means, unless it overrides this.

        components: name → (sum, count) over all completions of a benchmark.
        """
        return {name: total / count for name, (total, count) in components.items() if count}

    def close(self) -> None:  # noqa: B027
        """Give back what the reward holds, such as worker processes. Calling it twice is harmless."""


def paired(prompts: Sequence[Prompt], completions: Sequence[Completion]) -> list[tuple[Prompt, Completion]]:
    """The two sequences side by side; ValueError where their lengths differ."""
    if len(prompts) != len(completions):
        raise ValueError(
            f"{len(prompts)} prompts but {len(completions)} completions; "
            "give the prompt of each completion, repeated k times for a group"
        )
    return list(zip(prompts, completions, strict=True))


def graded(reward: Reward, prompts: Sequence[Prompt], completions: Sequence[Completion]) -> list[Verdict]:
    """The reward's verdicts, looked at before anything is made of them: one a completion, each with finite numbers.

    A reward that fails here is a program with a mistake, not a completion without a verdict. Raises ValueError naming
    its class, the prompt and the value.
    """
    verdicts = reward(prompts, completions)
    name = type(reward).__name__
    if isinstance(verdicts, Verdict | str) or not isinstance(verdicts, Sequence):
        raise ValueError(f"{name} returned {_shown(verdicts)}; a reward returns a list, one Verdict a completion")
    if len(verdicts) != len(completions):
        raise ValueError(
            f"{name} gave {len(verdicts)} verdicts for {len(completions)} completions; a reward gives one each"
        )
    for prompt, verdict in zip(prompts, verdicts, strict=True):
        problem = _problem(verdict)
        if problem is not None:
            raise ValueError(f"{name} gave {problem} to a completion of {prompt.id}")
    return list(verdicts)


def _problem(verdict: Any) -> str | None:
    """What is wrong with one verdict, and what to give instead; None where nothing is."""
    if not isinstance(verdict, Verdict):
        return (
            f"{_shown(verdict)}, which is no Verdict; give Verdict.of(right), Verdict(kind, score) or Verdict.none(why)"
        )
    if verdict.kind not in get_args(VerdictKind):
        return f"a verdict of kind {verdict.kind!r}; give one of {', '.join(get_args(VerdictKind))}"
    if verdict.score is not None and not _finite(verdict.score):
        return f"the score {_shown(verdict.score)}; give a finite float, or Verdict.none(why) where there is no score"
    bad = next((name for name, value in verdict.components.items() if not _finite(value)), None)
    if bad is not None:
        return f"the component {bad!r} the value {_shown(verdict.components[bad])}; give a finite float"
    return None


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:60] + '…'} ({type(value).__name__})"


def refuse_golds(examples: Sequence[Example], problem: Callable[[str], str | None], remedy: str) -> None:
    """Raise ValueError listing the rows whose gold answer has a problem, the first few with its description."""
    bad = [(e, why) for e in examples if (why := problem(e.answer)) is not None]
    if bad:
        rows = "; ".join(f"{e.id}: {why} ({e.answer[:60]!r})" for e, why in bad[:LISTED])
        more = f"; and {len(bad) - LISTED} more" if len(bad) > LISTED else ""
        raise ValueError(f"{len(bad)} of {len(examples)} gold answers cannot be graded: {rows}{more}; {remedy}")
