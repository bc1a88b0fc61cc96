"""The process that grades mathematics: `python -m gapo_lit.rewards.math_worker`, started by WorkerPool.

It imports math-verify alone. Its time limit is the pool's, so math-verify's own, which work by SIGALRM, are off.
"""

from __future__ import annotations

import logging
import math
from decimal import Decimal
from functools import lru_cache
from itertools import accumulate
from typing import Any

import sympy  # type: ignore[import-untyped]
from math_verify import LatexExtractionConfig, parse, verify

from gapo_lit.rewards.math_answer import last_answer, same_text, tidy
from gapo_lit.rewards.text import whole_number_text
from gapo_lit.rewards.worker import serve

LONGEST_ANSWER = 2000  # characters
DEEPEST = 8  # brackets in brackets: parsing time grows steeply with them, and published golds have at most 4
MOST_DIGITS = 100_000  # of a number that an answer may evaluate to; 2004! has 5,752
_LATEX = (LatexExtractionConfig(boxed_match_priority=0),)


def judge(gold: str, text: str) -> tuple[bool, str]:
    """Whether the last answer of a completion equals the gold answer, and why not.

    Both are parsed as LaTeX inside a box: bare numbers are never picked out of something that does not parse, which is
    compared as text instead. Numbers agree to 6 decimals as in math-verify, and also to 1 % relative, so that 1/2004!
    is not 1/2006!. Python text is never evaluated.
    """
    answer = last_answer(text)
    if answer is None:
        return False, "no answer"
    if len(answer) > LONGEST_ANSWER:
        return False, f"answer longer than {LONGEST_ANSWER} characters"
    if _depth(answer) > DEEPEST:
        return False, f"answer with brackets more than {DEEPEST} deep"
    gold, answer = tidy(gold), tidy(answer)
    if same_text(gold, answer):
        return True, ""
    number, want = whole_number_text(answer), whole_number_text(gold)
    if number is not None and want is not None and (number == want or _integral(number, want)):
        right = number == want
    else:
        right = _same_mathematics(gold, answer)
    return right, "" if right else f"answer {answer[:80]!r}"


def digits(tree: Any) -> float:
    """About how many decimal digits the value of an unevaluated expression has, a variable counting as one; may be inf.

    For b^e it is digits(b)·|e|, for n! n·log10(n), for a product the sum, for anything else the largest part.
    """
    if isinstance(tree, sympy.Integer | sympy.Rational):
        return float(max(1, tree.p.bit_length(), tree.q.bit_length()) * math.log10(2) + 1)
    parts = [digits(a) for a in getattr(tree, "args", ())]
    if not parts:
        return 1.0
    if isinstance(tree, sympy.Pow) and len(parts) == 2:
        return parts[0] * max(1.0, _magnitude(tree.exp, parts[1]))
    if isinstance(tree, sympy.factorial | sympy.factorial2 | sympy.subfactorial | sympy.gamma):
        return max(1.0, _magnitude(tree.args[0], parts[0])) * parts[0]
    return sum(parts) if isinstance(tree, sympy.Mul | sympy.binomial) else max(parts) + 1


def _magnitude(tree: Any, size: float) -> float:
    """|value| of an exponent; its digits already bound it, so that a large one is never evaluated."""
    if size > 20:
        return math.inf
    try:
        return abs(float(tree.evalf(5)))
    except (TypeError, ValueError, OverflowError):
        return 1.0  # a symbolic exponent


def _same_mathematics(gold: str, answer: str) -> bool:
    golds, answers = _parse(gold), _parse(answer)
    if any(digits(t) > MOST_DIGITS for t in (*golds, *answers) if not isinstance(t, str)):
        return False
    if any(_same_for_positive(g, a) for g in golds[:1] for a in answers[:1]):
        return True
    same = verify(list(golds), list(answers), timeout_seconds=None)
    return bool(same) and not any(_far_apart(g, a) for g in golds[:1] for a in answers[:1])


@lru_cache(maxsize=256)
def _parse(answer: str) -> tuple[Any, ...]:
    return tuple(parse(rf"\boxed{{{answer}}}", _LATEX, parsing_timeout=None))


def _depth(answer: str) -> int:
    steps = (1 if c in "({[" else -1 if c in ")}]" else 0 for c in answer)
    return max(accumulate(steps), default=0)


def _integral(*numbers: Decimal) -> bool:
    return all(n == n.to_integral_value() for n in numbers)


def _far_apart(gold: Any, answer: Any) -> bool:
    """Two constants that agree after rounding only because both are tiny, or one is."""
    try:
        if not (gold.is_number and answer.is_number):
            return False
        a, b = gold.doit(), answer.doit()
        if (a == 0) != (b == 0) and not (a.is_Number and b.is_Number):
            return False  # an unsimplified zero: its numerical value is rounding noise
        a, b = (abs(v).evalf(15) if not v.is_Rational else abs(v) for v in (a, b))
        return bool(a != b and abs(a - b) > max(a, b) / 100)
    except Exception:  # whatever sympy cannot decide stays as math-verify decided it
        return False


def _same_for_positive(gold: Any, answer: Any) -> bool:
    r"""√(1/n) = 1/√n for n > 0 only; roots of variables are compared where they exist. An absolute value opts out."""
    try:
        trees = [gold.doit(), answer.doit()]
        if any(not _has_root(t) or t.has(sympy.Abs) for t in trees):
            return False
        positive = {s: sympy.Symbol(s.name, positive=True) for t in trees for s in t.free_symbols}
        return bool(trees[0].subs(positive) == trees[1].subs(positive))
    except Exception:
        return False


def _has_root(tree: Any) -> bool:
    return any(p.exp.is_Rational and not p.exp.is_Integer and p.base.free_symbols for p in tree.atoms(sympy.Pow))


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    right, reason = judge(request["gold"], request["text"])
    return {"right": right, "reason": reason}


def main() -> None:
    """Serve until the pool hangs up."""
    logging.disable(logging.CRITICAL)
    for gold, answer in ((r"\sqrt{x}", "2x"), ("2x+4y=3", "y=x"), ("(3, 1)", r"(3, \frac{1}{2})")):
        judge(gold, rf"\boxed{{{answer}}}")  # what is imported and built on first use is no part of a verdict's time
    serve(_answer)


if __name__ == "__main__":
    main()
