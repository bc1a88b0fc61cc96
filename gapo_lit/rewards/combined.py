"""Several rewards as one: a weighted sum, one of whose parts says what is correct."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from gapo_lit.registry import near_misses, register
from gapo_lit.rewards.base import Reward, graded, paired
from gapo_lit.types import Completion, Example, Prompt, Verdict


@dataclass(frozen=True)
class Part:
    """One summand: its score counts `weight` times; with weight 0 it is logged and no more."""

    reward: Reward
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not math.isfinite(self.weight):
            raise ValueError(f"weight={self.weight} makes no sum; give a finite number, 0 to log the part alone")


@register(source="weighted sum, as DAPO adds its overlong punishment, arXiv:2503.14476")
class CombinedReward(Reward):
    """score = Σ weight·score over the parts; `correct` names the part that decides what is correct, else the first.

    The deciding part also gives reason and answer. Where it has no verdict, or any part of weight other than 0 has
    none, the whole has none, with that part's reason. components: each part's own score under its name, before the
    weight, and the components of a part under name/component; a whole without a verdict has none of them, so that the
    mean reward is the weighted sum of the logged means.
    Raises ValueError for no parts, for a `correct` that is no part and for a weight that is not finite.
    """

    def __init__(self, parts: dict[str, Part], correct: str | None = None) -> None:
        if not parts:
            raise ValueError("parts is empty; give at least one, such as parts: {right: {reward: MathVerify}}")
        if correct is not None and correct not in parts:
            raise ValueError(f"correct={correct!r} is no part{near_misses(correct, parts)}")
        self.parts = dict(parts)
        self.correct = next(iter(parts)) if correct is None else correct

    def __call__(self, prompts: Sequence[Prompt], completions: Sequence[Completion]) -> list[Verdict]:
        """See Reward."""
        paired(prompts, completions)
        columns = {name: graded(part.reward, prompts, completions) for name, part in self.parts.items()}
        return [self._whole({n: column[i] for n, column in columns.items()}) for i in range(len(completions))]

    def check(self, examples: Sequence[Example]) -> None:
        """Every part's own check; its ValueError begins with the part's name."""
        for name, part in self.parts.items():
            try:
                part.reward.check(examples)
            except ValueError as error:
                raise ValueError(f"part {name}: {error}") from error

    def close(self) -> None:
        """Close every part, also where one of them fails to."""
        with ExitStack() as stack:
            for part in self.parts.values():
                stack.callback(part.reward.close)

    def _whole(self, verdicts: Mapping[str, Verdict]) -> Verdict:
        score = 0.0
        components: dict[str, float] = {}
        for name, verdict in verdicts.items():
            weight = self.parts[name].weight
            if verdict.score is not None:
                score += weight * verdict.score
                components[name] = verdict.score
                components |= {f"{name}/{inner}": value for inner, value in verdict.components.items()}
            elif weight != 0 or name == self.correct:
                return Verdict.none(f"{name}: {verdict.reason}")
        deciding = verdicts[self.correct]
        return Verdict(deciding.kind, score, deciding.reason, components, deciding.answer)
