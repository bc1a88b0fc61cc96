"""An engine and a reward whose answers follow from seeds alone: the same rollouts whatever the weights or the ranks."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from torch import Tensor

from gapo_lit.prompts import PromptSource
from gapo_lit.rewards.base import Reward
from gapo_lit.rollout.engine import Engine
from gapo_lit.types import Completion, Example, Prompt, Sampling, Verdict


class ScriptedEngine(Engine):
    """Draws token ids from the request seed; counts what it was asked. lengths: shortest and longest completion."""

    def __init__(self, vocabulary: int = 200, lengths: tuple[int, int] = (1, 9)) -> None:
        self.vocabulary, self.lengths = vocabulary, lengths
        self.version = -1
        self.synced: list[int] = []
        self.generated_at: list[int] = []
        self.closed = 0

    def start(self) -> None:
        pass

    def generate(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, n: int, seeds: Sequence[int]
    ) -> list[list[Completion]]:
        self.generated_at.append(self.version)
        return [[self._completion(seed + i) for i in range(n)] for seed in seeds]

    def _completion(self, seed: int) -> Completion:
        draw = random.Random(seed)
        ids = tuple(draw.randrange(5, self.vocabulary) for _ in range(draw.randint(*self.lengths)))
        return Completion(
            ids, tuple(-draw.random() * 5 for _ in ids), str(seed), "stop" if draw.random() < 0.7 else "length"
        )

    def load_weights(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        assert sum(1 for _ in weights) > 0
        self.version = version
        self.synced.append(version)

    def close(self) -> None:
        self.closed += 1


class ScriptedReward(Reward):
    """Correct with a chance given by the example's answer (0 to 1), decided by the completion's own seed."""

    def __call__(self, prompts: Sequence[Prompt], completions: Sequence[Completion]) -> list[Verdict]:
        return [
            Verdict.of(random.Random(int(c.text) + 1).random() < float(p.example.answer))
            for p, c in zip(prompts, completions, strict=True)
        ]


class ScriptedPrompts(PromptSource):
    """`size` questions of different lengths; those whose index is in `hopeless` are never answered correctly."""

    def __init__(self, size: int, split: str = "train", hopeless: Sequence[int] = ()) -> None:
        self.size, self.split, self.hopeless = size, split, set(hopeless)

    def examples(self) -> list[Example]:
        return [
            Example(
                f"{self.split}-{i}", f"{self.split} question {i} " + "?" * (i % 5), "0" if i in self.hopeless else "0.5"
            )
            for i in range(self.size)
        ]
