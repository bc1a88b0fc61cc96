"""The protocol of every reward."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from gapo_lit.registry import kind
from gapo_lit.types import Completion, Example, Prompt, Verdict

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


def refuse_golds(examples: Sequence[Example], problem: Callable[[str], str | None], remedy: str) -> None:
    """Raise ValueError listing the rows whose gold answer has a problem, the first few with its description."""
    bad = [(e, why) for e in examples if (why := problem(e.answer)) is not None]
    if bad:
        rows = "; ".join(f"{e.id}: {why} ({e.answer[:60]!r})" for e, why in bad[:LISTED])
        more = f"; and {len(bad) - LISTED} more" if len(bad) > LISTED else ""
        raise ValueError(f"{len(bad)} of {len(examples)} gold answers cannot be graded: {rows}{more}; {remedy}")
