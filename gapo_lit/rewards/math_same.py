r"""Whether two answers are the same: their shapes part by part, formulas by value, the rest by math-verify.

What counts as equal, part by part:

- a list and a set in any order (a value listed twice counts once); brackets with the same ends in order; a list and
  ( … ) in order; a set and ( … ) never.
- "x = 5" is 5 where the left side is a name; every further part of a chain has to equal the gold ("4 = 5" is no 5).
- words as text in lower case, a single letter as itself; words are never products of letters.
- a number with a base as its digits and its base, which one of the two may leave out.
- a unit may be left out; two different units that a table knows make two different answers. 50 % is 50 and 0.5.
- equations whose two sides differ by the same values at every point up to a factor, or that solve to the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import sympy  # type: ignore[import-untyped]
from math_verify import LatexExtractionConfig, parse, verify

from gapo_lit.rewards.math_leaf import based, decimal, measured, near, number, word
from gapo_lit.rewards.math_text import Shape, squash
from gapo_lit.rewards.math_value import equation_print, fingerprint, read, same_solutions, same_value

_LATEX = (LatexExtractionConfig(boxed_match_priority=0),)
_MOST_PARTS = 64
# math-verify evaluates what it compares whole; towers, factorials and the like are left to their text.
_HEAVY = re.compile(
    r"\^\s*\{[^{}]*\^|\^\s*\w+\s*\^|\^\s*\{?\s*-?\d{3}|!|\d{40}|\\(?:binom|sum|prod|int|lim|gcd|lcm|operatorname|begin)"
)


def same(gold: Shape, answer: Shape) -> bool:
    """Whether an answer equals the gold; not symmetric where one of the two leaves something out."""
    if squash(gold.text) == squash(answer.text) != "":
        return True
    kinds = gold.kind, answer.kind
    if kinds == ("set", "chain"):
        return len(answer.parts) == 2 and _names(answer.parts[0]) and same(gold, answer.parts[1])
    if kinds == ("leaf", "leaf"):
        return _same_leaf(gold.text, answer.text)
    if "chain" in kinds and not {"list", "set"} & set(kinds):
        return _same_chain(gold, answer)
    if "other" in kinds:
        return set(kinds) <= {"other", "ordered"} and _same_whole(gold, answer)
    if "list" in kinds or "set" in kinds or kinds == ("ordered", "ordered"):
        return _same_parts(gold, answer)
    return False


def canonical(answer: Shape) -> str:
    """A text that answers which same() holds equal share, as far as it can tell."""
    if answer.kind == "leaf":
        return _canonical_leaf(answer.text)
    if answer.kind == "chain":
        if len(answer.parts) == 2 and not _names(answer.parts[0]) and (found := _equation(answer)) is not None:
            return found
        return canonical(answer.parts[-1])
    if answer.kind == "other":
        return squash(answer.text)
    parts = [canonical(p) for p in answer.parts]
    if answer.kind == "ordered":
        return f"{answer.brackets[0]}{', '.join(parts)}{answer.brackets[-1]}"
    distinct = sorted(set(parts))
    return distinct[0] if len(distinct) == 1 else "{" + ", ".join(distinct) + "}"


def _same_leaf(gold: str, answer: str) -> bool:
    words = word(gold), word(answer)
    if words[0] is not None and words[1] is not None:
        return words[0] == words[1]
    if any(w is not None and (len(w) > 4 or r"\text" in t) for w, t in zip(words, (gold, answer), strict=True)):
        return False
    bases = based(gold), based(answer)
    if bases[0] is not None or bases[1] is not None:
        digits = [b[0] if b else t.strip().upper().lstrip("0") for b, t in zip(bases, (gold, answer), strict=True)]
        return digits[0] == digits[1] and (None in bases or bases[0] == bases[1])
    (g, g_unit, g_percent), (a, a_unit, a_percent) = measured(gold), measured(answer)
    if g_unit and a_unit and g_unit != a_unit:
        return False
    return _same_formula(g, a) or (
        g_percent != a_percent and _same_formula(_hundredth(g, g_percent), _hundredth(a, a_percent))
    )


def _hundredth(text: str, percent: bool) -> str:
    return rf"\frac{{{text}}}{{100}}" if percent else text


def _same_formula(gold: str, answer: str) -> bool:
    if squash(gold) == squash(answer) != "":
        return True
    a, b = number(gold), number(answer)
    rounded = decimal(gold) or decimal(answer)
    if a is not None and b is not None:
        return a == b or (rounded and near(a, b))
    return same_value(read(gold), read(answer), rounded=rounded)


def _same_chain(gold: Shape, answer: Shape) -> bool:
    if gold.kind == answer.kind:
        names = _names(gold.parts[0]), _names(answer.parts[0])
        if all(names) and same(gold.parts[0], answer.parts[0]):
            return all(same(gold.parts[-1], p) for p in answer.parts[1:])
        return len(gold.parts) == len(answer.parts) == 2 and _same_equation(gold, answer)
    if gold.kind == "chain":
        return _names(gold.parts[0]) and same(gold.parts[-1], answer)
    if len(answer.parts) > _MOST_PARTS:
        return False
    values = answer.parts[1:] if _names(answer.parts[0]) else answer.parts
    if r"\approx" in answer.text:  # the exact value, then what it is about: only one of them can be equal to the gold
        return any(same(gold, v) for v in values) and all(_about(a, b) for a, b in pairwise(values))
    return all(same(gold, v) for v in values)


def _about(a: Shape, b: Shape) -> bool:
    values = [sympy.N(t, 15) for t in map(read, (measured(a.text)[0], measured(b.text)[0])) if t is not None]
    return len(values) == 2 and all(v.is_Float for v in values) and abs(values[0] - values[1]) <= abs(values[0]) / 20


def _names(part: Shape) -> bool:
    """Whether the left side of an equation names the right one: x, f(x), |AB|, (x, y), m + n; not 2x or x + 1."""
    if part.kind in ("ordered", "list"):
        return all(map(_names, part.parts))
    if part.kind != "leaf":
        return False
    if word(part.text) is not None:
        return True
    tree = read(part.text)
    if tree is None:
        return "\\angle" in part.text or "\\triangle" in part.text or (r"\text" in part.text and "{" in part.text)
    if not isinstance(tree, sympy.Expr) or not tree.free_symbols:
        return False
    if tree.is_Symbol or isinstance(tree, sympy.Function):
        return not isinstance(tree, sympy.Abs) or len(tree.free_symbols) > 1
    return len(tree.free_symbols) > 1 and all(n == -1 for n in tree.atoms(sympy.Number))


def _same_equation(gold: Shape, answer: Shape) -> bool:
    prints = _equation(gold), _equation(answer)
    if None not in prints and prints[0] == prints[1]:
        return True
    sides = _sides(gold), _sides(answer)
    return all(isinstance(t, sympy.Expr) for pair in sides for t in pair) and same_solutions(*sides)


def _sides(equation: Shape) -> tuple[Any, Any]:
    left, right = (read(p.text) for p in equation.parts)
    return left, right


def _equation(equation: Shape) -> str | None:
    sides = _sides(equation)
    return None if any(not isinstance(s, sympy.Expr) for s in sides) else equation_print(*sides)


def _same_whole(gold: Shape, answer: Shape) -> bool:
    """Unions and inequalities, as math-verify compares them."""
    if _HEAVY.search(gold.text) or _HEAVY.search(answer.text):
        return False
    golds, answers = _parse(gold.text), _parse(answer.text)
    return bool(golds and answers) and bool(
        verify(list(golds), list(answers), timeout_seconds=None, allow_set_relation_comp=True)
    )


@lru_cache(maxsize=256)
def _parse(text: str) -> tuple[Any, ...]:
    return tuple(t for t in parse(rf"\boxed{{{text}}}", _LATEX, parsing_timeout=None) if not isinstance(t, str))


def _same_parts(gold: Shape, answer: Shape) -> bool:
    ordered = [s for s in (gold, answer) if s.kind == "ordered"]
    golds, answers = _parts(gold), _parts(answer)
    if max(len(golds), len(answers)) > _MOST_PARTS or "…" in gold.text + answer.text:
        return False
    if len(ordered) == 2:
        long = len(golds) > 2  # [1, 2, 3] is no interval
        alike = gold.brackets == answer.brackets or (long and {gold.brackets, answer.brackets} == {"()", "[]"})
        return alike and _in_order(golds, answers)
    if ordered:
        other = answer if ordered[0] is gold else gold
        plain = ordered[0].brackets == "()" or (ordered[0].brackets == "[]" and len(golds) > 2)
        return other.kind == "list" and plain and _in_order(golds, answers)
    golds, answers = _distinct(golds), _distinct(answers)
    left = list(answers)
    for part in golds:
        match = next((a for a in left if same(part, a)), None)
        if match is None:
            return False
        left.remove(match)
    return not left


def _parts(answer: Shape) -> Sequence[Shape]:
    return answer.parts if answer.kind in ("list", "set", "ordered") else (answer,)


def _in_order(golds: Sequence[Shape], answers: Sequence[Shape]) -> bool:
    return len(golds) == len(answers) and all(map(same, golds, answers))


def _distinct(parts: Sequence[Shape]) -> list[Shape]:
    kept: dict[str, Shape] = {}
    for part in parts:
        kept.setdefault(canonical(part), part)
    return list(kept.values())


def _canonical_leaf(text: str) -> str:
    said = word(text)
    if said is not None and (len(said) > 1 or said not in "ie"):
        return said
    digits = based(text)
    if digits is not None:
        return "_".join(digits)
    value_text, _, _ = measured(text)
    value = number(value_text)
    if value is not None and value.numerator.bit_length() + value.denominator.bit_length() < 4000:
        return str(value)
    return fingerprint(read(value_text)) or squash(value_text)
