"""Completions that are written anew for every test run, each by the rule of its kind and its problem's id.

What independent scorers said of these very texts lies in tests/golden/harness_*.json, without questions or golds: those
come from the data folder beside the repository. A kind makes a completion of the problem's gold and another problem's.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
GOLDEN = Path(__file__).resolve().parent / "golden"
EVERY = {"gsm8k": 3, "math500": 2, "humaneval": 1}
_FILES = {"gsm8k": "gsm8k_test", "math500": "math500", "humaneval": "humaneval"}
_OPENINGS = (
    "Let us work it out step by step.",
    "First I collect what is given.",
    "We write down an equation and solve it.",
    "Start with what the question asks for.",
)
_FORGED = """    class Equal(float):
        __eq__ = __le__ = __lt__ = lambda self, other: True
        __hash__ = float.__hash__
    return Equal(0)
"""

Kind = Callable[[str, str], str]

GSM8K: dict[str, Kind] = {
    "boxed": lambda gold, other: rf"So the total is \boxed{{{gold}}}.",
    "hashes": lambda gold, other: f"So that is the total.\n#### {gold}",
    "prose": lambda gold, other: f"The answer is {gold}.",
    "bold": lambda gold, other: f"**Answer: {gold}**",
    "last number": lambda gold, other: f"Altogether that makes {gold}",
    "one more": lambda gold, other: f"So that is the total.\n#### {_plus(gold, 1)}",
    "another's gold": lambda gold, other: f"The answer is {other}.",
    "right, then wrong": lambda gold, other: f"The answer is {gold}. No, that is a mistake. The answer is {other}.",
    "wrong, then right": lambda gold, other: f"The answer is {other}. No, that is a mistake. The answer is {gold}.",
    "two boxes, last right": lambda gold, other: rf"I get \boxed{{{other}}}. Wrong; it is \boxed{{{gold}}}.",
    "two boxes, last wrong": lambda gold, other: rf"I get \boxed{{{gold}}}. Wrong; it is \boxed{{{other}}}.",
    "two hashes, last right": lambda gold, other: f"#### {other}\nThat cannot be.\n#### {gold}",
    "number after the answer": lambda gold, other: f"The answer is {gold}. I checked it in {len(gold) + 20} ways.",
    "number after the box": lambda gold, other: rf"It is \boxed{{{gold}}}, checked in {len(gold) + 20} ways.",
    "truncated": lambda gold, other: "Adding these up and multiplying the sum by the number of",
    "no answer": lambda gold, other: "I do not know how to do this.",
    "dollars": lambda gold, other: f"The answer is ${gold}.",
    "units": lambda gold, other: f"#### {gold} marbles",
    "comma": lambda gold, other: f"The answer is {_plus(gold, 0, ',')}.",
    "no comma": lambda gold, other: f"#### {_plus(gold, 0)}",
    "cents": lambda gold, other: f"#### {_plus(gold, 0, ',')}.00",
    "fraction": lambda gold, other: rf"So the total is \boxed{{\frac{{{2 * int(_plus(gold, 0))}}}{{2}}}}.",
    "minus": lambda gold, other: f"#### {_plus('-' + gold, 0) if gold[0] != '-' else gold[1:]}",
}

MATH500: dict[str, Kind] = {
    "boxed": lambda gold, other: rf"Thus the result is $\boxed{{{gold}}}$.",
    "final answer": lambda gold, other: f"Final Answer: The final answer is ${gold}$. I hope it is correct.",
    "stated": lambda gold, other: f"The answer is ${gold}$.",
    "displayed": lambda gold, other: rf"This gives \[{gold}\]",
    "fbox": lambda gold, other: rf"Thus the result is $\fbox{{{gold}}}$.",
    "named": lambda gold, other: rf"Thus $\boxed{{k = {gold}}}$.",
    "another's gold": lambda gold, other: rf"Thus the result is $\boxed{{{other}}}$.",
    "another's, stated": lambda gold, other: f"Final Answer: The final answer is ${other}$. I hope it is correct.",
    "one more": lambda gold, other: rf"Thus the result is $\boxed{{{gold} + 1}}$.",
    "right, then wrong": lambda gold, other: rf"It is $\boxed{{{gold}}}$. No, a mistake: it is $\boxed{{{other}}}$.",
    "wrong, then right": lambda gold, other: rf"It is $\boxed{{{other}}}$. No, a mistake: it is $\boxed{{{gold}}}$.",
    "stated, then another boxed": lambda gold, other: rf"The answer is ${gold}$, so I write $\boxed{{{other}}}$.",
    "boxed, then another stated": lambda gold, other: rf"I write $\boxed{{{gold}}}$. For ten it would be ${other}$.",
    "truncated": lambda gold, other: rf"Thus the result is $\boxed{{{gold[: len(gold) // 2]}",
    "no answer": lambda gold, other: "I do not know how to do this.",
    "respelt": lambda gold, other: rf"Thus the result is $\boxed{{{_respelt(gold)}}}$.",
    "equal value": lambda gold, other: rf"Thus the result is $\boxed{{{_equal(gold)}}}$.",
    "units": lambda gold, other: rf"Thus the result is $\boxed{{{gold} \text{{ cm}}}}$.",
}

MATHEMATICS = {"gsm8k": GSM8K, "math500": MATH500}


def rows(name: str, every: int | None = None) -> list[dict[str, Any]]:
    """The rows of a data set for which completions are written, in file order; every=1 is all of them."""
    lines = (DATA / f"{_FILES[name]}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines[:: every or EVERY[name]]]


def completions(name: str, problems: Sequence[dict[str, Any]]) -> dict[str, list[str]]:
    """For each kind its completion of every problem."""
    return programs(problems) if name == "humaneval" else written(name, problems)


def written(name: str, problems: Sequence[dict[str, Any]]) -> dict[str, list[str]]:
    """For each kind of a mathematics set its completion of every problem."""
    golds = [row["answer"] for row in problems]
    others = [next(g for g in (*golds[i + 1 :], *golds) if g != gold) for i, gold in enumerate(golds)]
    return {
        kind: [_opening(row["id"]) + rule(g, o) for row, g, o in zip(problems, golds, others, strict=True)]
        for kind, rule in MATHEMATICS[name].items()
    }


def generated(name: str) -> dict[str, list[tuple[dict[str, Any], str]]]:
    """A language model's completions of some of a data set's problems, each with its row, as one or two more kinds."""
    known = {row["id"]: row for row in rows(name, every=1)}
    kinds: dict[str, list[tuple[dict[str, Any], str]]] = {}
    for line in map(json.loads, (GOLDEN / "harness_model.jsonl").read_text().splitlines()):
        if line["set"] == name:
            kind = f"language model at temperature {line['temperature']}"
            kinds.setdefault(kind, []).append((known[line["id"]], line["text"]))
    return kinds


def programs(problems: Sequence[dict[str, Any]]) -> dict[str, list[str]]:
    """For each kind of a function body its completion of every programming problem."""
    fenced = "Here is the whole function.\n```python\n{prompt}{answer}```\nIt does what was asked."
    return {
        "reference": [row["answer"] for row in problems],
        "pass": ["    pass\n" for _ in problems],
        "mutated": [mutated(row["id"], row["answer"]) for row in problems],
        "fenced": [fenced.format(**row) for row in problems],
        "exit": ["    raise SystemExit(0)\n" for _ in problems],
        "equal to everything": [_FORGED for _ in problems],
    }


def digest(texts: Sequence[str]) -> str:
    """What tells two lists of texts apart."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def mutated(id: str, body: str) -> str:
    """A body with one place changed: a comparison, an operator, a number or what is returned."""
    places = list(_mutations(body))
    start, end, text = random.Random(id).choice(places)
    return body[:start] + text + body[end:]


def _mutations(body: str) -> Iterator[tuple[int, int, str]]:
    code = re.sub(r"#.*|'[^'\n]*'|\"[^\"\n]*\"", lambda m: " " * len(m.group()), body)
    swaps = {"==": "!=", "<=": "<", ">=": ">", "<": "<=", ">": ">=", "+": "-", "and": "or", "or": "and"}
    for m in re.finditer(r"==|<=|>=|(?<!-)[<>]|(?<=\s)\+(?=\s)|\b(?:and|or)\b", code):
        yield m.start(), m.end(), swaps[m.group()]
    for m in re.finditer(r"(?<![\w.])\d+(?![\w.])", code):
        yield m.start(), m.end(), str(int(m.group()) + 1)
    for m in re.finditer(r"\breturn\b", code):
        yield m.start(), m.end(), "return not"


def _opening(id: str) -> str:
    draw = random.Random(id)
    a, b = draw.randrange(2, 60), draw.randrange(2, 60)
    return f"{draw.choice(_OPENINGS)} {a} + {b} = {a + b}.\n"


def _plus(number: str, more: int, grouping: str = "") -> str:
    return f"{int(number.replace(',', '')) + more:{grouping}}"


def _respelt(gold: str) -> str:
    if gold.isdigit():
        return f"{gold}.0"
    if fraction := re.fullmatch(r"(-?)\\frac\{(\d+)\}\{(\d+)\}", gold):
        return "{}{}/{}".format(*fraction.groups())
    text = gold.replace(r"\frac", r"\dfrac")
    return text if r"\left" in text else text.replace("(", r"\left(").replace(")", r"\right)")


def _equal(gold: str) -> str:
    if gold.isdigit():
        return rf"\frac{{{2 * int(gold)}}}{{2}}"
    if fraction := re.fullmatch(r"(-?)\\frac\{(\d+)\}\{(\d+)\}", gold):
        sign, a, b = fraction[1], int(fraction[2]), int(fraction[3])
        return f"{sign}{a / b}" if 1000 % b == 0 else rf"{sign}\frac{{{3 * a}}}{{{3 * b}}}"
    return rf"{{{gold}}}"
