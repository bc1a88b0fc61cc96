"""Reading numbers out of text that a policy wrote, in time linear in its length."""

from __future__ import annotations

import re
from decimal import Decimal, localcontext

# A comma groups thousands only where every group has three digits: "1,234" is one number, "1,2,34" is three. A minus is
# a sign only where no operand stands before it: "7-3" ends in 3, "= -3" in −3.
_UNSIGNED = r"(?:(?<![\d.])\d{1,3}(?:,\d{3})+(?!,?\d)|\d+)(?:\.\d+)?|(?<!\d)\.\d+"
SIGNED = rf"(?:(?<![\w)\]}}])[-−])?(?:{_UNSIGNED})(?:[eE][+-]?\d{{1,4}}(?!\w))?"
_NUMBER = re.compile(SIGNED, re.ASCII)
_LONGEST = 1000


def tail(text: str, limit: int) -> str:
    """The last `limit` characters: an answer comes last, and what a policy may write before it has no bound."""
    return text[-limit:]


def last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """The last of a pattern's matches, found from the left; None without one."""
    return max(pattern.finditer(text), key=lambda m: m.start(), default=None)


def last_number(text: str, limit: int = 10_000) -> Decimal | None:
    """The last integer or decimal of the text's last `limit` characters; None without one.

    A number of more than 1,000 characters is no answer and gives None.
    """
    last = last_match(_NUMBER, tail(text, limit))
    return None if last is None else _decimal(last.group())


def whole_number_text(text: str) -> Decimal | None:
    """The number that the whole text is, blanks aside; None where it is anything else."""
    match = _NUMBER.fullmatch(text.strip().removesuffix("."))
    return None if match is None else _decimal(match.group())


def plain_number(value: Decimal) -> str:
    """A number in one spelling, whatever zeros, commas or exponent it was written with."""
    if value == 0:
        return "0"
    with localcontext() as context:
        context.prec = 2 * _LONGEST  # no digit is rounded off
        value = value.normalize()
        return f"{value:f}" if abs(value.adjusted()) < 30 else f"{value:e}"


def _decimal(digits: str) -> Decimal | None:
    return Decimal(digits.replace(",", "").replace("−", "-")) if len(digits) <= _LONGEST else None
