"""The laboratory's questions, as any other source of prompts."""

from __future__ import annotations

import random
from collections.abc import Sequence

from gapo_lit.lab.rule import ASK, OPERATIONS, STATES, Rule, draw_question
from gapo_lit.prompts.base import PromptSource, Split, check_split, side
from gapo_lit.registry import register
from gapo_lit.types import Example

# Of the 64 facts, a quarter each: known, mostly known, doubtful, and exceptions that are mostly wrong.
RELIABILITIES = (0.98, 0.9, 0.7, 0.25)
LENGTHS = (2, 3, 4, 5)
RULE_SEED = 0


@register(source="gapo_lit: the laboratory")
class ChainTask(PromptSource):
    """`size` distinct questions of the laboratory's rule (see Rule); ExactMatch grades them.

    lengths: numbers of operations a question may have. reliabilities, rule_seed: those of the warm start; the answers
    depend on the seed, and `columns` hold length and the chance that the warm start was taught for the question.
    A hash of the question decides its split. Raises ValueError where the split has too few questions.
    """

    def __init__(
        self,
        split: Split = "train",
        size: int = 1024,
        seed: int = 0,
        lengths: Sequence[int] = LENGTHS,
        reliabilities: Sequence[float] = RELIABILITIES,
        rule_seed: int = RULE_SEED,
        validation_fraction: float = 0.25,
    ) -> None:
        check_split(split, size, validation_fraction)
        check_lengths(lengths)
        self.split, self.size, self.seed = split, size, seed
        self.lengths, self.validation_fraction = tuple(lengths), validation_fraction
        self.rule = Rule.drawn(rule_seed, reliabilities)
        self._examples = [self._example(question) for question in self._questions()]

    def examples(self) -> Sequence[Example]:
        """See PromptSource."""
        return self._examples

    def _questions(self) -> list[str]:
        held = sum(len(STATES) * len(OPERATIONS) ** length for length in set(self.lengths))
        rng, drawn = random.Random(self.seed), dict[str, None]()
        # Short questions run out, so that the last of a small split takes many draws: none is worth that wait.
        for _ in range(20 * held):
            question = draw_question(rng, self.lengths)
            if side(question, self.validation_fraction) == self.split:
                drawn[question] = None
            if len(drawn) == self.size:
                return list(drawn)
        raise ValueError(
            f"size={self.size}, but {len(drawn)} distinct {self.split} questions of lengths {list(self.lengths)} were "
            f"found among {held}; give a smaller size or longer questions"
        )

    def _example(self, question: str) -> Example:
        columns = {"length": len(question) - 1 - len(ASK), "chance": self.rule.chance(question)}
        return Example(f"chain: {question}", question, self.rule.answer(question), columns)


def check_lengths(lengths: Sequence[int]) -> None:
    """ValueError for numbers of operations that are no questions."""
    if not lengths or min(lengths) < 1:
        raise ValueError(f"lengths={list(lengths)} must name numbers of operations of at least 1")
