"""Rewards that need no mathematics: the last number of a completion, or all of its text."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, localcontext

from gapo_lit.registry import register
from gapo_lit.rewards.base import Reward, paired, refuse_golds
from gapo_lit.rewards.text import last_number, plain_number, whole_number_text
from gapo_lit.types import Completion, Example, Prompt, Verdict


@register(source="last-number extraction as in GSM8K evaluations, arXiv:2110.14168")
class LastNumber(Reward):
    """1 where the last number of the completion equals the gold number, else 0.

    "1,234" is 1234, "3." is 3, "7-3" ends in 3. Numbers are compared exactly, at any size, unless tolerance > 0, the
    largest absolute difference still counted as equal. A completion without a number is incorrect. A verdict's answer
    is the number in one spelling: 1,000.0 and 1e3 are "1000".
    """

    def __init__(self, tolerance: float = 0.0) -> None:
        if not 0 <= tolerance < float("inf"):
            raise ValueError(f"tolerance={tolerance} is no distance; give 0 for exact comparison or a positive number")
        self.tolerance = Decimal(str(tolerance))

    def __call__(self, prompts: Sequence[Prompt], completions: Sequence[Completion]) -> list[Verdict]:
        """See Reward; never without a verdict."""
        return [self._verdict(p.example.answer, c.text) for p, c in paired(prompts, completions)]

    def check(self, examples: Sequence[Example]) -> None:
        """ValueError naming rows whose gold is not a number."""
        refuse_golds(examples, _no_number, "drop these rows or take a reward that can read them, such as MathVerify")

    def _verdict(self, gold: str, text: str) -> Verdict:
        want = whole_number_text(gold)
        if want is None:
            raise ValueError(f"gold answer {gold[:60]!r} is not a number; run check() on the examples before a run")
        got = last_number(text)
        if got is None:
            return Verdict.of(False, "no number")
        right = got == want or (self.tolerance > 0 and _apart(got, want) <= self.tolerance)
        return Verdict.of(right, "" if right else f"last number {str(got)[:40]}", answer=plain_number(got))


@register(source="exact match")
class ExactMatch(Reward):
    """1 where the completion is the gold answer, surrounding blanks aside; ignore_case compares case-folded."""

    def __init__(self, ignore_case: bool = False) -> None:
        self.ignore_case = ignore_case

    def __call__(self, prompts: Sequence[Prompt], completions: Sequence[Completion]) -> list[Verdict]:
        """See Reward; never without a verdict."""
        said = [(self._key(p.example.answer), self._key(c.text)) for p, c in paired(prompts, completions)]
        return [Verdict.of(gold == text, answer=text or None) for gold, text in said]

    def check(self, examples: Sequence[Example]) -> None:
        """ValueError naming rows with an empty gold."""
        refuse_golds(
            examples, lambda gold: None if gold.strip() else "empty", "drop these rows or fill in their answers"
        )

    def _key(self, text: str) -> str:
        return text.strip().casefold() if self.ignore_case else text.strip()


def _apart(a: Decimal, b: Decimal) -> Decimal:
    """|a − b|, exactly: 1,000 digits and exponents of four, as the numbers of a text may have, fit the precision."""
    with localcontext() as context:
        context.prec = 50_000
        return abs(a - b)


def _no_number(gold: str) -> str | None:
    if not gold.strip():
        return "empty"
    return None if whole_number_text(gold) is not None else "not a number"
