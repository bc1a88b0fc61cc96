"""Which part of a completion is its answer. Standard library only.

The last answer given counts: the last box that holds something (with the boxes listed beside it), else what follows the
last "answer is" or "####", else the whole of a short formula, else the last formula or number, else the whole of a
short line. A completion that ends inside its only box was cut off and gives no answer. A number that its sentence
denies, asks or puts in a range ("is not 3", "3?", "between 3 and 4", "3 or 4") is no answer by itself: the words are,
and they equal no number.
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
_NUMBER = re.compile(
    rf"(?:{SIGNED})(?:\s+\d+\s*/\s*\d+|\s*/\s*\d+)?(?:\s*\\?%)?"
    r"(?:\s+(?:thousand|million|billion|trillion)\b)?",
    re.ASCII,
)
_COMMAND = re.compile(r"\\text\s*\{[^{}]*\}|\\[a-zA-Z]+|\b(?:and|or|pi|sqrt|sin|cos|tan|log|ln|mod)\b")
_WORD = re.compile(r"[A-Za-z]{2,}")
_LEAD = re.compile(r"(?:\\[a-zA-Z]+|(?<![a-zA-Z])[a-zA-Z](?![a-zA-Z])|[^A-Za-z\\])+")
_SENTENCE_END = re.compile(r"[.!?](?:\s|$)")
_REASON = re.compile(
    r"\b(?:because|since|as|so|which|where|when|after|given|according|if)\b|,\s+(?=[a-z])", re.IGNORECASE
)
_DENIED = re.compile(
    r"\b(?:not|never|neither|nor|no|cannot|between|either|unlikely|impossible|wrong|(?:more|less|greater|fewer|larger|"
    r"smaller|other|higher|lower)\s+than|above|below|exceeds?)\b|n['’]t\b",
    re.IGNORECASE,
)
_BOUNDED = re.compile(r"\bat\s+(?:least|most)\b", re.IGNORECASE)
_CLAUSE_END = re.compile(r"[.!?](?=\s)|[,;:\n]|\bbut\b")
_MORE = re.compile(r"(?:\s+[a-zA-Z]+){0,2}\s+(?:or|and|to)\s+(?:[a-zA-Z]+\s+)?\$?\d", re.ASCII)
_RANGE = re.compile(r"\d[\d.,]*\s*(?:[a-zA-Z]+\s+)?(?:or|to|and\s+(?:also|maybe))\s+(?:maybe\s+)?\$?$", re.ASCII)
_SPOKEN = 60  # characters before a number that may deny it
_E_NOTATION = re.compile(r"(?<![\w\\.])(\d+(?:\.\d+)?)[eE]([+-]?\d+)(?![\w.])")
_MIXED = re.compile(r"(?<![\d.])(\d+)\s+(\d+)\s*/\s*(\d+)(?!\d)", re.ASCII)


def last_answer(text: str) -> str | None:
    """The last answer a completion gives, delimiters removed; None without one."""
    text = tail(text, TAIL)
    boxed = _boxed(text)
    if boxed is not None or _cut_off(text):
        return boxed and boxed.strip()
    for find in (_stated, _bare, _last_formula, _word):
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
    boxes = [box for box in boxes if text[box[1] : box[2]].strip(" \n\\,;$")]
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


def _cut_off(text: str) -> bool:
    """Whether the text ends inside a box: a number in it may be the start of another."""
    opened = last_match(_BOX, text)
    return opened is not None and opened.end() - 1 not in _braces(text)[0] and "\n" not in text[opened.end() :].strip()


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
    said = [rest for rest in said if not _asked(rest)]
    return _phrase(said[-1]) if said else None


def _asked(rest: str) -> bool:
    end = _SENTENCE_END.search(rest.split("\n")[0])
    return end is not None and end.group().startswith("?")


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
    sentence = _REASON.split(sentence)[0].strip(" *_,") or sentence
    if match := _FORMULA.search(sentence):
        return sentence if _denies(sentence[: match.start()]) else _inside(match)
    lead = _LEAD.match(sentence)
    if lead and "\\" in lead.group() and re.search(r"\d", lead.group()):
        return lead.group()
    number = _NUMBER.search(sentence)
    if number is None or _denies(sentence[: number.start()]) or _MORE.match(sentence, number.end()):
        return sentence
    return number.group()


def _denies(before: str) -> bool:
    return _DENIED.search(before) is not None or _BOUNDED.search(before) is not None


def _bare(text: str) -> str | None:
    whole = text.strip().strip("*").strip()
    if len(whole) > 200 or "\n" in whole or not whole or _FORMULA.search(whole):
        return None
    return None if _WORD.search(_COMMAND.sub(" ", whole)) else whole


def _last_formula(text: str) -> str | None:
    formula, number = last_match(_FORMULA, text), last_match(_NUMBER, text)
    last = formula if formula and (number is None or formula.end() >= number.end()) else number
    if last is None:
        return None
    before = text[max(0, last.start() - _SPOKEN) : last.start()]
    if (
        _DENIED.search(_CLAUSE_END.split(before)[-1])
        or _RANGE.search(before)
        or text[last.end() : last.end() + 1] == "?"
    ):
        return None
    return _inside(last) if last is formula else last.group()


def _word(text: str) -> str | None:
    whole = text.strip().strip("*").strip()
    return whole if whole and len(whole) <= 40 and "\n" not in whole else None


def _inside(match: re.Match[str]) -> str:
    return next(g for g in match.groups() if g is not None)
