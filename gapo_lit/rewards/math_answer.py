"""Which part of a completion is its answer, and when two answers are the same text. Standard library only.

The last answer given counts: the last box (with the boxes listed beside it), else what follows the last "answer is" or
"####", else the whole of a short formula, else the last formula or number, else the whole of a short line.
"""

from __future__ import annotations

import re

from gapo_lit.rewards.text import SIGNED, last_match, tail

TAIL = 20_000  # characters; every pattern below is linear in this, or bounded

_BOX = re.compile(r"\\f?box(?:ed)?\s*\{")
_BETWEEN_BOXES = re.compile(
    r"(?:[\s$,;&]|\\[()\[\] ,;]|\\q?quad\b|\\text\s*\{[\s,]*(?:and|or)\s*\}|\band\b|\bor\b|[a-zA-Z](?:_\{?\w\}?)?\s*=)*"
)
_LISTS = re.compile(r"[,;]|\band\b|\bor\b")
_STATED = re.compile(r"\banswers?\b[^.\n]{0,60}?(?:\b(?:is|are)\b|[:=])[\s:=*]*|####\s*", re.IGNORECASE)
# A dollar opens a formula where something follows at once and closes it where something precedes: "$5 and $6" is money.
_FORMULA = re.compile(
    r"\$\$(?P<a>[^$]{1,2000})\$\$|(?<![\\$])\$(?=\S)(?P<b>[^$\n]{1,2000})(?<=\S)\$(?!\d)"
    r"|\\\[(?P<c>.{1,2000}?)\\\]|\\\((?P<d>.{1,2000}?)\\\)",
    re.DOTALL,
)
_FORMULAS_LISTED = re.compile(r"[\s,]*(?:,|\band\b|\bor\b)\s*")
_NUMBER = re.compile(rf"(?:{SIGNED})(?:\s+\d+\s*/\s*\d+|\s*/\s*\d+)?(?:\s*\\?%)?", re.ASCII)
_COMMAND = re.compile(r"\\text\s*\{[^{}]*\}|\\[a-zA-Z]+|\b(?:and|or|pi|sqrt|sin|cos|tan|log|ln|mod)\b")
_WORD = re.compile(r"[A-Za-z]{2,}")
_LEAD = re.compile(r"(?:\\[a-zA-Z]+|(?<![a-zA-Z])[a-zA-Z](?![a-zA-Z])|[^A-Za-z\\])+")
_SENTENCE_END = re.compile(r"\.(?:\s|$)")
_E_NOTATION = re.compile(r"(?<![\w\\.])(\d+(?:\.\d+)?)[eE]([+-]?\d+)(?![\w.])")
_MIXED = re.compile(r"(?<![\d.])(\d+)\s+(\d+)\s*/\s*(\d+)(?!\d)", re.ASCII)
_SPACING = re.compile(r"\\(?:left|right|displaystyle)(?![a-zA-Z])|\\[!,;: ]|~")
_TEXT = re.compile(r"\\(?:text|mbox|textbf|mathrm|mathbf)\s*\{([^{}]*)\}")


def last_answer(text: str) -> str | None:
    """The last answer a completion gives, delimiters removed; None without one."""
    text = tail(text, TAIL)
    for find in (_boxed, _stated, _bare, _last_formula, _word):
        found = find(text)
        if found is not None:
            return found.strip() or None
    return None


def tidy(answer: str) -> str:
    """An answer (or a gold) as the parser takes it: no dollars or final stop, plain minus, 1e5 as 1 × 10^5."""
    answer = answer.replace("$", "").replace("−", "-").replace("π", r"\pi ").strip()
    if answer[:2] in (r"\(", r"\[") and answer[-2:] in (r"\)", r"\]"):
        answer = answer[2:-2]
    answer = _E_NOTATION.sub(r"\1 \\times 10^{\2}", answer.strip().rstrip(".,").strip())
    return _MIXED.sub(r"\1\\frac{\2}{\3}", answer)


def same_text(a: str, b: str) -> bool:
    """Whether two tidied answers are one text, layout aside; words also where they differ in case."""
    a, b = _squash(a), _squash(b)
    return a != "" and (a == b or (a.isalpha() and len(a) > 1 and a.casefold() == b.casefold()))


def gold_problem(gold: str) -> str | None:
    r"""Why a gold answer cannot be graded: empty, or cut off (its braces or \left and \right do not balance)."""
    if not tidy(gold):
        return "empty"
    if len(gold) > TAIL // 10:
        return f"longer than {TAIL // 10} characters"
    opened, stray = _braces(gold)[1:]
    lefts, rights = (len(re.findall(rf"\\{side}(?![a-zA-Z])", gold)) for side in ("left", "right"))
    return "braces do not balance" if opened or stray or lefts != rights else None


def _boxed(text: str) -> str | None:
    closes = _braces(text)[0]
    boxes = [(m.start(), m.end(), closes[m.end() - 1]) for m in _BOX.finditer(text) if m.end() - 1 in closes]
    if not boxes:
        return None
    start, content, close = boxes[-1]
    listed = [text[content:close]]
    for before, content, close in reversed(boxes[:-1]):
        between = text[close + 1 : start]
        if not (0 <= len(between) < 80 and _LISTS.search(between) and _BETWEEN_BOXES.fullmatch(between)):
            break
        listed.insert(0, text[content:close])
        start = before
    return ", ".join(dict.fromkeys(listed))


def _braces(text: str) -> tuple[dict[int, int], int, int]:
    """Where each brace closes, how many never do, and how many close nothing. One pass."""
    closes: dict[int, int] = {}
    opened: list[int] = []
    stray = 0
    for m in re.finditer(r"\\.|[{}]", text, re.DOTALL):
        if m.group() == "{":
            opened.append(m.start())
        elif m.group() == "}":
            if opened:
                closes[opened.pop()] = m.start()
            else:
                stray += 1
    return closes, len(opened), stray


def _stated(text: str) -> str | None:
    said = [rest for m in _STATED.finditer(text) if (rest := text[m.end() : m.end() + 2000].strip(" *_\n"))]
    return _phrase(said[-1]) if said else None


def _phrase(rest: str) -> str:
    """The answer that a sentence starts with."""
    formulas = []
    match = _FORMULA.match(rest)
    while match:
        formulas.append(_inside(match))
        comma = _FORMULAS_LISTED.match(rest, match.end())
        match = _FORMULA.match(rest, comma.end()) if comma else None
    if formulas:
        return ", ".join(formulas)
    sentence = _SENTENCE_END.split(rest.split("\n")[0])[0].strip(" *_")
    if not _WORD.search(_COMMAND.sub(" ", sentence)):
        return sentence
    if match := _FORMULA.search(sentence):
        return _inside(match)
    lead = _LEAD.match(sentence)
    if lead and "\\" in lead.group() and re.search(r"\d", lead.group()):
        return lead.group()
    number = _NUMBER.search(sentence)
    return number.group() if number else sentence


def _bare(text: str) -> str | None:
    whole = text.strip().strip("*").strip()
    if len(whole) > 200 or "\n" in whole or not whole or _FORMULA.search(whole):
        return None
    return None if _WORD.search(_COMMAND.sub(" ", whole)) else whole


def _last_formula(text: str) -> str | None:
    formula, number = last_match(_FORMULA, text), last_match(_NUMBER, text)
    if formula and (number is None or formula.end() >= number.end()):
        return _inside(formula)
    return number.group() if number else None


def _word(text: str) -> str | None:
    whole = text.strip().strip("*").strip()
    return whole if whole and len(whole) <= 40 and "\n" not in whole else None


def _inside(match: re.Match[str]) -> str:
    return next(g for g in match.groups() if g is not None)


def _squash(answer: str) -> str:
    answer = _TEXT.sub(r"\1", _SPACING.sub(" ", answer))
    answer = re.sub(r"\\[dtc]frac(?![a-zA-Z])", r"\\frac", answer)
    answer = re.sub(r"\\(?:dots|cdots|ldots)(?![a-zA-Z])", "…", answer)
    # A blank between digits separates them ("2 2/3" is not 22/3), and one ends a command ("\pi r").
    return re.sub(r"(?<=[\d.])\s+(?=[\d.])|(?<=[a-zA-Z])\s+(?=[a-zA-Z])", "␣", answer.strip()).replace(" ", "")
