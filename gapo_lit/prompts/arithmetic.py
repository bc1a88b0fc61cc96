"""Arithmetic of mixed difficulty with integer answers: a task that a small untrained model gets partly right."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from gapo_lit.prompts.base import PromptSource, Split, check_split, side
from gapo_lit.registry import register
from gapo_lit.types import Example

KINDS = (
    "one-digit addition",
    "larger of two",
    "one-digit subtraction",
    "two-digit plus one-digit",
    "two-digit addition",
    "three one-digit numbers",
    "one-digit multiplication",
    "two-digit subtraction",
)
Question = tuple[str, str, int]  # canonical form, words, answer


@register(source="gapo_lit: generated arithmetic")
class ArithmeticTask(PromptSource):
    """`size` distinct questions, the levels in turn: level i is KINDS[i], its number grows with difficulty.

    Train and validation share no question: a hash of the canonical question (a + b and b + a are one) decides the
    split. suffix ends every question. A level whose questions run out leaves its turns to the others.
    Raises ValueError where the split has fewer than `size` questions, or for a level that does not exist.
    """

    def __init__(
        self,
        split: Split = "train",
        size: int = 1024,
        seed: int = 0,
        levels: Sequence[int] = (0, 1, 2, 3, 4, 5, 6, 7),
        suffix: str = " Answer with a number.",
        validation_fraction: float = 0.25,
    ) -> None:
        check_split(split, size, validation_fraction)
        unknown = sorted(set(levels) - set(range(len(KINDS))))
        if unknown or not levels or len(set(levels)) < len(levels):
            raise ValueError(f"levels={list(levels)} must name distinct levels between 0 and {len(KINDS) - 1}")
        self.split, self.size, self.seed = split, size, seed
        self.levels, self.suffix, self.validation_fraction = tuple(levels), suffix, validation_fraction
        self._examples = self._draw()

    def examples(self) -> Sequence[Example]:
        """See PromptSource; `columns` hold level and kind."""
        return self._examples

    def _draw(self) -> list[Example]:
        rng = random.Random(self.seed)
        pools = {}
        for level in self.levels:
            pool = [q for q in _questions(level) if side(q[0], self.validation_fraction) == self.split]
            rng.shuffle(pool)
            pool = list({q[0]: q for q in pool}.values())  # a + b or b + a, not both
            pools[level] = pool
        held = sum(map(len, pools.values()))
        if self.size > held:
            raise ValueError(
                f"size={self.size}, but levels {list(self.levels)} have {held} distinct {self.split} questions; "
                "give a smaller size or more levels"
            )
        drawn: list[Example] = []
        while True:
            for level, pool in pools.items():
                if pool:
                    drawn.append(self._example(level, pool.pop()))
                if len(drawn) == self.size:
                    return drawn

    def _example(self, level: int, question: Question) -> Example:
        _, words, answer = question
        columns = {"level": level, "kind": KINDS[level]}
        return Example(f"arithmetic: {words}", words + self.suffix, str(answer), columns)


def _questions(level: int) -> Iterator[Question]:
    """Every question of a level."""
    digit, tens = range(10), range(10, 100)
    if level == 1:
        yield from (
            (_key(">", a, b), f"Which number is larger, {a} or {b}?", max(a, b)) for a in tens for b in tens if a != b
        )
    elif level in (0, 3, 4):
        for a in digit if level == 0 else tens:
            yield from ((_key("+", a, b), f"What is {a} + {b}?", a + b) for b in (tens if level == 4 else digit))
    elif level in (2, 7):
        for a in digit if level == 2 else tens:
            yield from ((f"-:{a},{b}", f"What is {a} - {b}?", a - b) for b in (digit if level == 2 else tens) if b <= a)
    elif level == 5:
        for a in digit:
            yield from ((_key("+", a, b, c), f"What is {a} + {b} + {c}?", a + b + c) for b in digit for c in digit)
    else:
        yield from ((_key("*", a, b), f"What is {a} * {b}?", a * b) for a in digit for b in digit)


def _key(sign: str, *operands: int) -> str:
    return f"{sign}:{','.join(map(str, sorted(operands)))}"
