"""The value of a formula: read by math-verify's LaTeX parser, compared exactly or at points, at a bounded cost.

sympy never simplifies, solves or expands here: rational constants are computed as fractions, everything else is
evaluated to 30 digits where two different expressions differ.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Any

import sympy  # type: ignore[import-untyped]
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, _Latex2Sympy  # type: ignore[import-untyped]
from latex2sympy2_extended.math_normalization import NormalizationConfig, normalize_latex  # type: ignore[import-untyped]
from sympy.core.function import AppliedUndef  # type: ignore[import-untyped]

from gapo_lit.rewards.math_exact import MOST_DIGITS, digits, exact
from gapo_lit.rewards.math_leaf import near
from gapo_lit.rewards.math_points import REAL, at, digits_of, same_at_points, variables

MOST_CELLS = 40  # of a matrix
DEEPEST = 8  # brackets in brackets: parsing time grows steeply with them, and published golds have at most 4
_CONFIG = NormalizationConfig(
    basic_latex=True, units=False, malformed_operators=False, nits=False, boxed="none", equations=False
)
_CASES = ConversionConfig(lowercase_symbols=False)  # R - r is not 0
_OPERATOR = re.compile(r"\\operatorname\s*\*?\s*\{([^{}]*)\}")
_OPERATORS = {"floor", "ceil", "arsinh", "arcosh", "artanh", "arcsinh", "arccosh", "arctanh", "lcm", "gcd", "sgn"}
_UNCLEAR = re.compile(r"\d\s+\d|\d\s*_|…|\\text\b[^{]|\\(?:det|xrightarrow|pmod|vmatrix)(?![a-zA-Z])|\{vmatrix\}")
_STANDING = (sympy.Sum, sympy.Product, sympy.Integral, sympy.Limit, sympy.Derivative)


class _Reader(_Latex2Sympy):  # type: ignore[misc]
    """math-verify's parser, with nothing evaluated while it reads and decimals exact."""

    def convert_binom(self, binom: Any) -> Any:
        return sympy.binomial(self.convert_expr(binom.upper), self.convert_expr(binom.lower), evaluate=False)

    def parse_number(self, text: str) -> Any:
        return sympy.Rational(text.replace(",", ""))

    def handle_gcd_lcm(self, f: str, args: Any) -> Any:
        values = [exact(a) for a in args]
        if any(v is None or v.denominator != 1 for v in values):
            raise ValueError("a common divisor of what are no integers")
        return sympy.Integer((math.gcd if f == "gcd" else math.lcm)(*(int(v) for v in values if v is not None)))

    def handle_exp(self, func: Any) -> Any:
        power = func.supexpr()
        if not power:
            return sympy.E
        return sympy.exp(
            self.convert_expr(power.expr()) if power.expr() else self.convert_atom(power.atom()), evaluate=False
        )

    def convert_postfix_list(self, arr: Any, i: int = 0) -> Any:
        # Upstream adds juxtaposed numbers, for mixed numbers such as 2\frac{1}{2}; but 2(3) is a product.
        if i + 1 < len(arr) and not arr[i + 1].getText().startswith(r"\frac"):
            left = self.convert_postfix(arr[i])
            if isinstance(left, sympy.Integer):
                return self.mul_flat(left, self.convert_postfix_list(arr, i + 1))
        return super().convert_postfix_list(arr, i)


@lru_cache(maxsize=512)
def read(text: str) -> Any:
    """The unevaluated sympy tree of a formula; None for what is none, or would cost too much to read."""
    operators = _OPERATOR.findall(text)
    if any(o.strip() not in _OPERATORS for o in operators) or _UNCLEAR.search(text) or text.count("&") > MOST_CELLS:
        return None
    if any(len(run) > 1000 for run in re.findall(r"\d+", text)) or text.count(r"\\") > MOST_CELLS:
        return None
    try:
        latex = normalize_latex(text, _CONFIG)
        tree = _Reader(convert_degrees=True, config=_CASES).parse(latex)
        if isinstance(tree, sympy.MatrixBase):
            return tree
        if not isinstance(tree, sympy.Expr) or isinstance(tree, sympy.MatrixExpr):
            return None
        imaginary = {s: sympy.I for s in tree.free_symbols if s.name == "i"}
        unknown = {f: sympy.Symbol(sympy.sstr(f)) for f in tree.atoms(AppliedUndef)}
        with sympy.evaluate(False):
            return tree.xreplace({**imaginary, **unknown})
    except Exception:  # whatever does not parse is text
        return None


def same_value(gold: Any, answer: Any, *, rounded: bool) -> bool:
    """Whether two trees are equal; rounded: one of them has a decimal point, so that constants agree as in near()."""
    matrices = [isinstance(t, sympy.MatrixBase) for t in (gold, answer)]
    if any(matrices):
        alike = all(matrices) and gold.shape == answer.shape
        return alike and all(same_value(a, b, rounded=rounded) for a, b in zip(gold, answer, strict=True))
    if gold is None or answer is None:
        return False
    if gold == answer:
        return True
    try:
        a, b = exact(gold), exact(answer)
    except (ValueError, ArithmeticError):
        return False
    if a is not None and b is not None:
        return a == b or (rounded and near(a, b))
    if any(digits(t) > MOST_DIGITS or t.has(*_STANDING) for t in (gold, answer)):
        return False
    return same_at_points(gold, answer, rounded)


def fingerprint(tree: Any) -> str | None:
    """A text that equal trees share: the exact value, or 12 digits of the value at a fixed point of the variables."""
    if isinstance(tree, sympy.MatrixBase):
        cells = [fingerprint(t) for t in tree]
        return None if None in cells else f"{tree.shape} {'; '.join(map(str, cells))}"
    if tree is None:
        return None
    try:
        value = exact(tree)
        if value is not None:
            return str(value) if value.numerator.bit_length() + value.denominator.bit_length() < 4000 else None
    except (ValueError, ArithmeticError):
        return None
    if digits(tree) > MOST_DIGITS or tree.has(*_STANDING):
        return None
    names = variables(tree)
    point = dict(zip(names, REAL, strict=False))
    found = at(tree, {s: point[s.name] for s in tree.free_symbols if s.name in point})
    if found is None or len(names) > len(REAL):
        return None
    if found.is_infinite:
        return str(found)
    parts = [digits_of(part) for part in found.as_real_imag()]
    value_text = parts[0] if parts[1] == "0" else f"{parts[0]}+{parts[1]}i"
    return f"{', '.join(names)}: {value_text}" if names else value_text


def equation_print(left: Any, right: Any) -> str | None:
    """A text that equations share whose sides differ by the same values up to a factor; None where it cannot be had."""
    names = variables(left, right)
    if not names or len(names) > len(REAL) or any(digits(t) > MOST_DIGITS or t.has(*_STANDING) for t in (left, right)):
        return None
    values = []
    for shift in range(3):
        point = dict(zip(names, REAL[shift:] + REAL[:shift], strict=False))
        sides = [at(t, {s: point[s.name] for s in t.free_symbols}) for t in (left, right)]
        if None in sides:
            return None
        values.append(sides[0] - sides[1])
    if any(abs(v) < sympy.Float("1e-20") for v in values):
        return None
    ratios = [(v / values[0]).as_real_imag() for v in values[1:]]
    return f"{', '.join(names)}: 0 = {' '.join(digits_of(p) for r in ratios for p in r)}"


def same_solutions(gold: tuple[Any, Any], answer: tuple[Any, Any]) -> bool:
    """Whether two equations, each as its sides, have the same solutions, and any."""
    if any(digits(t) > MOST_DIGITS or t.has(*_STANDING) for t in (*gold, *answer)):
        return False
    if variables(*gold) != variables(*answer) or not all(map(_polynomial, (*gold, *answer))):
        return False
    try:
        solved = [sympy.solve(sympy.Eq(*sides), dict=True) for sides in (gold, answer)]
    except NotImplementedError:
        return False
    return bool(solved[0]) and {frozenset(s.items()) for s in solved[0]} == {frozenset(s.items()) for s in solved[1]}


def _polynomial(tree: Any) -> bool:
    """Whether solving for a variable is cheap: powers of at most 4, and no function of a variable."""
    powers = all(p.exp.is_Rational and abs(p.exp) <= 4 for p in tree.atoms(sympy.Pow))
    return powers and not any(f.free_symbols for f in tree.atoms(sympy.Function)) and len(tree.free_symbols) <= 3
