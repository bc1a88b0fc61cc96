r"""The shape of an answer: what it lists, orders, equates or says in words. Standard library only.

A shape is read from the LaTeX text before any of it is parsed as a formula, because a parser of formulas makes "even" a
product of four symbols, (1, 2) an interval and \{1, 2\} the same thing as 1, 2::

    "x = 3 \text{ or } 4"   list of (chain of leaf "x", leaf "3") and leaf "4"
    "[0, \frac{1}{2})"      ordered, brackets "[)", of leaf "0" and leaf "\frac{1}{2}"
    "\{2, 1\}"              set
    "(0, 1) \cup (2, 3)"    other: unions, inequalities and whatever else is compared whole
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Literal

Kind = Literal["list", "set", "ordered", "chain", "other", "leaf"]

_SYMBOLS = {
    "−": "-", "–": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "÷": r"\div ", "π": r"\pi ", "∞": r"\infty ",
    "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "≈": r"\approx ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ",
    "±": r"\pm ", "°": r"^\circ ", "√": r"\sqrt", "\\%": "%", "{,}": ",", r"\colon": ":", "\\dots": "…",
}  # fmt: skip
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
_REWRITES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\(?:left|right|big[lr]?|Big[lr]?|displaystyle|limits)(?![a-zA-Z])\.?", " "),
        (r"\\!\s*", ""),
        (r"(?<=\d)\s*(?:\\[,;: ]|~)\s*(?=\d{3}(?!\d))", ""),
        (r"(?<!\\)\\(?:[,;:> ]|q?quad(?![a-zA-Z]))|~", " "),
        (r"\\[dtc]frac(?![a-zA-Z])", r"\\frac"),
        (r"\\(?:ldots|cdots|dotsc|dotsb)(?![a-zA-Z])", "…"),
        (r"\\(?:textbf|textit|textrm|textnormal|mbox|mathrm|mathsf|rm)\s*(?=\{)", r"\\text"),
        (r"\\(?:mathbf|boldsymbol|bm|mathit|phantom)\s*(?=\{)", ""),
        (r"\\text\s*\{\s*([^{}a-zA-Z]*)\}", r" \1 "),
        (r"\\(?:leq|leqslant)(?![a-zA-Z])|<=", r"\\le "),
        (r"\\(?:geq|geqslant)(?![a-zA-Z])|>=", r"\\ge "),
        (r"\\neq(?![a-zA-Z])|!=", r"\\ne "),
        (r"\\lbrace(?![a-zA-Z])", r"\\{"),
        (r"\\rbrace(?![a-zA-Z])", r"\\}"),
        (r"(?<![\w\\.])(\d+(?:\.\d+)?)[eE]([+-]?\d+)(?![\w.])", r"\1 \\times 10^{\2}"),
        (r"(?<=\d)\.(?![\d\s]|\\overline)|(?<=\d)\.(?=\s*$)", ""),
        (r"(?<![\d.])(\d+)\s+(\d+)\s*/\s*(\d+)(?!\d)", r"\1\\frac{\2}{\3}"),
        (r"\\frac\s*([\da-zA-Z])\s*([\da-zA-Z])", r"\\frac{\1}{\2}"),
        (r"\\frac\s*([\da-zA-Z])\s*(?=\{)", r"\\frac{\1}"),
        (r"\\frac\s*\{([^{}]*)\}\s*([\da-zA-Z])", r"\\frac{\1}{\2}"),
        (r"\\sqrt\s*([\da-zA-Z])", r"\\sqrt{\1}"),
        (r"(?<![\\a-zA-Z])sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}"),
        (r"\^\s*\(([^()]*)\)", r"^{(\1)}"),
        (r"\*\*", "^"),
        (r"\\log\s*_\s*(\d+)", r"\\log_{\1}"),
        *(
            (rf"(?<=\d)\s*(?:\\text\s*\{{\s*)?{name}(?:\s*\}})?(?![a-zA-Z])", rf" \\times 10^{{{power}}}")
            for name, power in (("thousand", 3), ("million", 6), ("billion", 9), ("trillion", 12))
        ),
    )
]
_AND_OR = re.compile(
    r"[,;]?\s*(?:\\text\s*\{\s*,?\s*(?:and|or)\s*,?\s*\}|(?<![A-Za-z\\])(?:and|or)(?![A-Za-z]))\s*", re.IGNORECASE
)
_GROUPED = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])", re.ASCII)
_SPACED = re.compile(r"\d{1,3}(?: \d{3})+(?:\.\d+)?", re.ASCII)
_TOKEN = re.compile(
    r"\\begin(?![a-zA-Z])|\\end(?![a-zA-Z])|\\langle|\\rangle|\\approx|\\in(?![a-zA-Z])|\\[a-zA-Z]+|\\.|[()\[\]{},;=<>]",
    re.DOTALL,
)
_OPEN = ("(", "[", "{", r"\{", r"\langle", r"\begin")
_CLOSE = (")", "]", "}", r"\}", r"\rangle", r"\end")
_WHOLE = ("<", ">", r"\le", r"\ge", r"\ne", r"\cup", r"\cap", r"\setminus", r"\equiv", r"\to", r"\subset", r"\mid",
          r"\lt", r"\gt", r"\notin", r"\pmod", r"\iff", r"\implies", r"\Rightarrow",
          r"\mathbb", r"\emptyset", r"\varnothing")  # fmt: skip
_MOST_SIGNS = 3  # ± in one element: 8 values


@dataclass(frozen=True)
class Shape:
    """One part of an answer. text: as normal() left it; parts and brackets where the kind has them."""

    kind: Kind
    text: str
    parts: tuple[Shape, ...] = ()
    brackets: str = field(default="", kw_only=True)


def normal(answer: str) -> str:
    """An answer in one spelling of LaTeX: no money signs, invisible characters, sizes or thin spaces; 1e5 as 1·10^5."""
    answer = _INVISIBLE.sub("", answer).replace(r"\$", "").replace("$", "")
    for symbol, latex in _SYMBOLS.items():
        answer = answer.replace(symbol, latex)
    answer = answer.strip()
    if answer[:2] in (r"\(", r"\[") and answer[-2:] in (r"\)", r"\]"):
        answer = answer[2:-2]
    for pattern, replacement in _REWRITES:
        answer = pattern.sub(replacement, answer)
    return answer.strip().rstrip(".,;").strip()


def shape(text: str, *, bracketed: bool = False) -> Shape:
    """The shape of a normal() text; bracketed: it stood in brackets, where 1,200 is two numbers."""
    text = _AND_OR.sub(";", text).strip().strip(";,").strip()
    if not (bracketed and _GROUPED.fullmatch(text)):
        text = _outside(text)
    tokens = list(_top(text))
    pieces = _split(text, [t for t in tokens if t[0] in ",;"])
    if len(pieces) > 1:
        return Shape("list", text, _flat(shape(p) for p in pieces))
    inside = _bracketed(text)
    if inside is not None:
        return inside
    if any(token in _WHOLE for token, _, _ in tokens):
        return Shape("other", text)
    signs = text.count(r"\pm")
    if 0 < signs <= _MOST_SIGNS and r"\mp" not in text:
        return Shape("list", text, tuple(shape(t) for t in _signs(text, signs)))
    if membership := [t for t in tokens if t[0] == r"\in"]:
        return shape(text[membership[0][2] :])
    equated = _split(text, [t for t in tokens if t[0] in ("=", r"\approx")])
    if len(equated) > 1:
        return Shape("chain", text, tuple(shape(p) for p in equated))
    return Shape("leaf", text.replace(" ", "") if _SPACED.fullmatch(text) else text)


def squash(text: str) -> str:
    r"""A normal() text without its layout: blanks where they mean nothing, braces of one character, \text{}."""
    text = re.sub(r"\\text\s*\{([^{}]*)\}", r"\1", text)
    # A blank between digits separates them ("2 2/3" is not 22/3), and one ends a command ("\pi r").
    text = re.sub(r"(?<=[\d.])\s+(?=[\d.])|(?<=[a-zA-Z])\s+(?=[a-zA-Z])", "␣", text.strip()).replace(" ", "")
    return re.sub(r"(?<=[_^])\{(\w)\}", r"\1", text)


def _outside(text: str) -> str:
    """1,234 as 1234, except in brackets of the text, which are looked at on their own."""
    if "," not in text:
        return text
    covered = [(start, end) for token, start, end in _top(text) if token == "…group"]
    return _GROUPED.sub(
        lambda m: m.group() if any(a < m.start() < b for a, b in covered) else m.group().replace(",", ""), text
    )


def _top(text: str) -> Iterator[tuple[str, int, int]]:
    """The tokens outside every bracket, with start and end; a bracketed group is one token "…group"."""
    depth, start = 0, 0
    for m in _TOKEN.finditer(text):
        token = m.group()
        if token in _OPEN:
            start = m.start() if depth == 0 else start
            depth += 1
        elif token in _CLOSE:
            depth -= 1
            if depth == 0:
                yield "…group", start, m.end()
            depth = max(depth, 0)
        elif depth == 0:
            yield token, m.start(), m.end()


def _split(text: str, cuts: list[tuple[str, int, int]]) -> list[str]:
    ends = [0, *(end for _, _, end in cuts)]
    starts = [*(start for _, start, _ in cuts), len(text)]
    return [text[a:b].strip() for a, b in zip(ends, starts, strict=True)]


def _bracketed(text: str) -> Shape | None:
    """The shape of a text that is one bracketed group; None for any other."""
    groups = list(_top(text))
    if len(groups) != 1 or groups[0] != ("…group", 0, len(text)) or text.startswith(r"\begin"):
        return None
    opened = next(t for t in (r"\{", r"\langle", "(", "[", "{") if text.startswith(t))
    closed = next((t for t in (r"\}", r"\rangle", ")", "]", "}") if text.endswith(t)), None)
    if closed is None:
        return None
    inner = shape(text[len(opened) : -len(closed)], bracketed=True)
    brackets = opened.replace(r"\langle", "(") + closed.replace(r"\rangle", ")")
    if opened == "{" or inner.kind != "list":
        return inner if brackets in ("{}", "()", "[]", r"\{\}") else Shape("other", text)
    if brackets == r"\{\}":
        return Shape("set", text, inner.parts)
    return Shape("ordered", text, inner.parts, brackets=brackets)


def _signs(text: str, count: int) -> list[str]:
    pieces = text.split(r"\pm")
    return [
        "".join(f"{piece}{sign}" for piece, sign in zip(pieces, (*signs, ""), strict=True)).strip().removeprefix("+")
        for signs in product("+-", repeat=count)
    ]


def _flat(shapes: Iterator[Shape]) -> tuple[Shape, ...]:
    return tuple(p for s in shapes for p in (s.parts if s.kind == "list" else (s,)))
