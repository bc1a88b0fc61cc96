"""Formulas evaluated at points, to 30 digits: two that agree wherever both have a value are equal.

One that has no variable is evaluated once. Where a formula counts (n!, a binomial, a floor, (−1)^n), agreement at
integers is enough; where both hold roots of variables, agreement at positive points.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import sympy  # type: ignore[import-untyped]

from gapo_lit.rewards.math_leaf import near

_WHOLE = (sympy.floor, sympy.ceiling, sympy.Mod, sympy.factorial, sympy.binomial)
REAL = [sympy.Rational(n, 1009) for n in (1733, 2389, 877, 3121, 541, 2777, 1361, 3691)]
_INTEGERS = [[7, 3, 11, 5, 13, 2, 17, 4], [12, 5, 9, 4, 8, 3, 10, 6], [30, 7, 16, 3, 21, 10, 14, 9]]


def variables(*trees: Any) -> list[str]:
    """The names of all variables, sorted."""
    return sorted({s.name for t in trees for s in t.free_symbols})


def same_at_points(gold: Any, answer: Any, rounded: bool) -> bool:
    """Whether two formulas agree; rounded: constants need to agree as in near() only. At most 8 variables."""
    names = variables(gold, answer)
    if len(names) > len(REAL) or variables(gold) == [] != variables(answer):
        return False
    if not names:
        a, b = at(gold, {}), at(answer, {})
        return a is not None and b is not None and _close(a, b, rounded)
    both = [gold, answer]
    positive = dict(zip(names, REAL, strict=False))
    # √(1/n) = 1/√n for n > 0 only: roots of variables are compared where they exist. An absolute value opts out.
    points = [positive, dict(zip(names, reversed(REAL), strict=False))]
    if not (all(map(_has_root, both)) and not any(t.has(sympy.Abs) for t in both)):
        points.append({n: -v for n, v in positive.items()})
    checked = [_agree(both, p) for p in points]
    if any(c is False for c in checked) and any(t.has(*_WHOLE) or _alternates(t) for t in both):
        checked = [_agree(both, dict(zip(names, map(sympy.Integer, row), strict=False))) for row in _INTEGERS]
    return True in checked and False not in checked


def _agree(trees: list[Any], point: Mapping[str, Any]) -> bool | None:
    a, b = (at(t, {s: point[s.name] for s in t.free_symbols}) for t in trees)
    return None if a is None or b is None else _close(a, b, False)


def at(tree: Any, point: Mapping[Any, Any]) -> Any:
    """The value of a tree at a point to 30 digits; None where it has no finite one."""
    try:
        value = tree.evalf(30, subs=dict(point)) if point else tree.evalf(30)
        if not value.is_number or value.has(sympy.nan, sympy.zoo, sympy.oo, -sympy.oo) or value.free_symbols:
            return tree if tree in (sympy.oo, -sympy.oo) else None
        parts = value.as_real_imag()
        return value if all(p.is_Float or p.is_Rational for p in parts) else None
    except Exception:  # sympy has many ways to say that it cannot
        return None


def _close(a: Any, b: Any, rounded: bool) -> bool:
    if a.is_infinite or b.is_infinite:
        return bool(a == b)
    differences = [_plain(x) - _plain(y) for x, y in zip(a.as_real_imag(), b.as_real_imag(), strict=True)]
    size = max(abs(_plain(p)) for v in (a, b) for p in v.as_real_imag())
    apart = max(map(abs, differences))
    if rounded:
        return near(size, size - apart)
    return apart <= size / 10**20


def _plain(part: Any) -> Fraction:
    """A real part as a fraction, rounding noise as 0."""
    if part.is_Float and part._prec < 20:
        return Fraction(0)
    value = sympy.Rational(part)
    return Fraction(int(value.p), int(value.q))


def digits_of(part: Any) -> str:
    """The first 12 digits of a real part of a value."""
    value = _plain(part)
    return f"{sympy.Float(part, 12)!s}" if value else "0"


def _has_root(tree: Any) -> bool:
    return any(p.exp.is_Rational and not p.exp.is_Integer and p.base.free_symbols for p in tree.atoms(sympy.Pow))


def _alternates(tree: Any) -> bool:
    return any(p.base.is_negative and p.exp.free_symbols for p in tree.atoms(sympy.Pow))
