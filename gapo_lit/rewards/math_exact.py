"""Exact rational values of sympy trees that were never evaluated, and how large such a value would be.

An answer costs what is written here, not what sympy would make of it: a number of more than 100,000 digits is refused
before it is computed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import sympy  # type: ignore[import-untyped]

MOST_DIGITS = 100_000  # of a number that an answer may evaluate to; 2004! has 5,752
MOST_TERMS = 1000  # of a sum or product that is written out


def digits(tree: Any) -> float:
    """About how many decimal digits the value of an unevaluated expression has, a variable counting as one; may be inf.

    For b^e it is digits(b)·|e|, for n! n·log10(n), for a binomial n·log10(2) at most, for a product the sum, for
    anything else the largest part.
    """
    if isinstance(tree, sympy.Rational):
        return math.log10(max(abs(int(tree.p)), int(tree.q), 2))
    parts = [digits(a) for a in getattr(tree, "args", ())]
    if not parts:
        return 1.0
    if isinstance(tree, sympy.Pow) and len(parts) == 2:
        return parts[0] * max(1.0, _magnitude(tree.exp, parts[1]))
    if isinstance(tree, sympy.exp | sympy.sinh | sympy.cosh):
        return max(1.0, _magnitude(tree.args[0], parts[0]))
    if isinstance(tree, sympy.factorial | sympy.factorial2 | sympy.subfactorial | sympy.gamma):
        return max(1.0, _magnitude(tree.args[0], parts[0])) * parts[0]
    if isinstance(tree, sympy.binomial):
        return max(1.0, min(_magnitude(tree.args[0], parts[0]), (_magnitude(tree.args[1], parts[1]) + 1) * parts[0]))
    return sum(parts) if isinstance(tree, sympy.Mul) else max(parts) + 1


def exact(tree: Any, given: Mapping[Any, int] | None = None) -> Fraction | None:
    """The rational value of a constant expression; None where it has none that integer arithmetic finds.

    Raises ValueError where that value, or one on the way, would have more than 100,000 digits.
    """
    if isinstance(tree, sympy.Rational):
        return Fraction(int(tree.p), int(tree.q))
    if isinstance(tree, sympy.Symbol):
        return Fraction(given[tree]) if given and tree in given else None
    if isinstance(tree, sympy.Sum | sympy.Product):
        return _written_out(tree, given)
    args = [exact(a, given) for a in getattr(tree, "args", ())]
    values = [a for a in args if a is not None]
    if not values or len(values) < len(args):
        return None
    return _apply(tree, values)


def _apply(tree: Any, values: list[Fraction]) -> Fraction | None:
    found: Fraction | int | None = None
    n, whole = int(values[0]), all(v.denominator == 1 for v in values)
    if isinstance(tree, sympy.Add):
        found = sum(values, Fraction(0))
    elif isinstance(tree, sympy.Mul):
        _refuse_beyond(sum(map(_size, values)))
        found = math.prod(values, start=Fraction(1))
    elif isinstance(tree, sympy.Pow):
        found = _power(*values)
    elif isinstance(tree, sympy.factorial) and whole and n >= 0:
        _refuse_beyond(n * math.log10(n + 1))
        found = math.factorial(n)
    elif isinstance(tree, sympy.binomial) and whole and n >= values[1] >= 0:
        k = min(int(values[1]), n - int(values[1]))
        _refuse_beyond(min(n * math.log10(2), k * math.log10(n + 1)))
        found = math.comb(n, k)
    elif isinstance(tree, sympy.Abs):
        found = abs(values[0])
    elif isinstance(tree, sympy.floor | sympy.ceiling):
        found = math.floor(values[0]) if isinstance(tree, sympy.floor) else math.ceil(values[0])
    elif isinstance(tree, sympy.UnevaluatedExpr):
        found = values[0]
    elif isinstance(tree, sympy.Mod) and values[1] != 0:
        found = values[0] % values[1]
    elif isinstance(tree, sympy.Max | sympy.Min):
        found = max(values) if isinstance(tree, sympy.Max) else min(values)
    return None if found is None else Fraction(found)


def _power(base: Fraction, power: Fraction) -> Fraction | None:
    if power.denominator == 1:
        if base == 0 and power <= 0:
            raise ZeroDivisionError("0 to the power of 0 or less")
        if base in (1, -1):
            power = power % 2
        _refuse_beyond(_size(base) * abs(power))
        return base**power.numerator
    root = power.denominator
    if base < 0 or root > 64 or abs(power.numerator) > MOST_DIGITS:
        return None
    above, below = (round(sympy.integer_nthroot(v, root)[0]) for v in (base.numerator, base.denominator))
    return _power(Fraction(above, below), Fraction(power.numerator)) if Fraction(above, below) ** root == base else None


def _written_out(tree: Any, given: Mapping[Any, int] | None) -> Fraction | None:
    """A sum or product of at most 1,000 terms between integers."""
    if len(tree.limits) != 1 or len(tree.limits[0]) != 3:
        return None
    name, low, high = tree.limits[0]
    start, end = exact(low, given), exact(high, given)
    if start is None or end is None or end - start >= MOST_TERMS or start.denominator != 1 or end.denominator != 1:
        return None
    total = Fraction(0 if isinstance(tree, sympy.Sum) else 1)
    for n in range(int(start), int(end) + 1):
        term = exact(tree.function, {**(given or {}), name: n})
        if term is None:
            return None
        total = total + term if isinstance(tree, sympy.Sum) else total * term
        _refuse_beyond(_size(total))
    return total


def _size(value: Fraction) -> float:
    return math.log10(max(abs(value.numerator), value.denominator, 2))


def _refuse_beyond(size: float | Fraction) -> None:
    if size > MOST_DIGITS:
        raise ValueError(f"more than {MOST_DIGITS} digits")


def _magnitude(tree: Any, size: float) -> float:
    """|value| of an exponent; its digits already bound it, so that a large one is never evaluated."""
    if size > 20:
        return math.inf
    try:
        return abs(complex(tree.evalf(5)))
    except (TypeError, ValueError, OverflowError):
        return 1.0  # a symbolic exponent
