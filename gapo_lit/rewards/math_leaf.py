"""Parts of an answer that are no formula: words, numbers with a base, units, percentages. Standard library only."""

from __future__ import annotations

import re
from fractions import Fraction

from gapo_lit.rewards.text import whole_number_text

_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")
_BASED = re.compile(r"\(?([0-9A-Fa-f]*\d[0-9A-Fa-f]*)\)?\s*_\s*\{?\s*(?:\\text\s*\{)?\s*(\d+|[a-z]+)\s*\}*", re.ASCII)
_BASES = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_DEGREES = re.compile(r"\s*(?:\^\s*\{?\s*\\circ\s*\}?|\\degree)\s*$")
_TURNED = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-zA-Z])")
_UNIT = re.compile(
    r"(?P<value>.*(?:[\d})!%]|\\pi|\\circ))(?:\s*\\text\s*\{\s*(?P<text>[A-Za-z][A-Za-z ./]*)\}"
    r"|(?P<plain>\s*[A-Za-z]+(?:\s+[A-Za-z]+)*))\s*(?:\^\s*\{?(?P<power>[23])\}?)?\s*",
    re.DOTALL,
)
# One spelling each; units of the table that differ make two answers differ, any other word is only left out.
_UNITS = {
    spelling: unit
    for unit, spellings in {
        "m": "m meter meters metre metres", "cm": "cm centimeter centimeters centimetre centimetres",
        "mm": "mm millimeter millimeters", "km": "km kilometer kilometers kilometre kilometres",
        "in": "in inch inches", "ft": "ft foot feet", "yd": "yd yard yards", "mi": "mi mile miles",
        "g": "g gram grams", "kg": "kg kilogram kilograms", "lb": "lb lbs pound pounds", "oz": "oz ounce ounces",
        "s": "s sec secs second seconds", "min": "min mins minute minutes", "h": "h hr hrs hour hours",
        "day": "day days", "week": "week weeks", "month": "month months", "year": "year years yr yrs",
        "l": "l liter liters litre litres", "ml": "ml milliliter milliliters", "gal": "gal gallon gallons",
        "cent": "cent cents", "dollar": "dollar dollars usd", "mph": "mph", "degree": "degree degrees",
        "radian": "radian radians", "percent": "percent pct", "j": "j joule joules", "n": "newton newtons",
        "w": "w watt watts", "hz": "hz hertz",
    }.items()
    for spelling in spellings.split()
}  # fmt: skip
_NO_UNIT = re.compile(
    r"\b(?:not?|never|or|and|either|neither|nor|may|maybe|perhaps|possibly|between|than|least|most|about|except|if|to|"
    r"wrong|incorrect|sin|cos|tan|log|ln|exp|mod|pi|sqrt|is|but|only|unless|plus|minus|times|over|thousand|million|"
    r"billion|trillion|hundred|dozen)\b",
    re.IGNORECASE,
)
_LAST_UNIT = re.compile(r"(.*\S)\s*\\text\s*\{([A-Za-z ]+)\}\s*(?:\^\s*\{?[23]\}?)?", re.DOTALL)
_REPEATING = re.compile(r"(-?)(\d*)\.(\d*)\\overline\s*\{(\d+)\}", re.ASCII)
_FRACTION = re.compile(
    r"(?P<sign>-?)(?:(?P<whole>\d+)\s*(?=\\)|(?P<before>\d+)\s+(?=\d)|)"
    r"(?:\\frac\s*(?:\{\s*(?P<a>-?\d+)\s*\}|(?P<b>\d))\s*(?:\{\s*(?P<c>\d+)\s*\}|(?P<d>\d))|(?P<e>\d+)\s*/\s*(?P<f>\d+))",
    re.ASCII,
)


def word(text: str) -> str | None:
    """A part that is words alone, in lower case unless it is one letter; None where it is anything else."""
    said = _TEXT.sub(r"\1", text).strip().strip(".\"'“”").strip()
    if said[:1] == "(" and said[-1:] == ")":
        said = said[1:-1].strip()
    bare = re.sub(r"(?<=[^\W\d]{2})-(?=[^\W\d]{2})|['’,.!?]", "", said)
    words = bare.split()
    if not words or not all(w.isalpha() for w in words):
        return None
    return bare if len(bare) == 1 else " ".join(words).casefold()


def based(text: str) -> tuple[str, str] | None:
    r"""The digits and the base of a number such as 2516_8 or 1011_{\text{two}}; None for anything else."""
    m = _BASED.fullmatch(text.strip())
    if m is None or not (m[2].isdigit() or m[2] in _BASES):
        return None
    return m[1].upper().lstrip("0") or "0", m[2] if m[2].isdigit() else str(_BASES.index(m[2]) + 2)


def measured(text: str) -> tuple[str, str, bool]:
    """A part without its unit, that unit ("" without one or for one no table knows), and whether it is a percentage."""
    text, unit = text.strip(), ""
    m = _UNIT.fullmatch(text)
    if m is not None and any(c.isdigit() for c in m["value"]):
        said = (m["text"] or m["plain"]).strip().casefold()
        if said not in _UNITS and m["text"] is None and (not m["plain"][:1].isspace() or len(said.split()[0]) < 3):
            return text, "", False
        if _NO_UNIT.search(said) or (m["text"] is None and len(said) == 1):
            return text, "", False
        known = _UNITS.get(said.removeprefix("square ").removeprefix("cubic ").removeprefix("sq "), "")
        power = m["power"] or ("2" if said.startswith("sq") else "3" if said.startswith("cubic ") else "")
        text, unit = m["value"].strip(), known + power if known else ""
    percent = text.endswith("%") or unit == "percent"
    if not _TURNED.search(text):
        text = _DEGREES.sub("", text)
    return text.removesuffix("%").strip(), "" if unit == "percent" else unit, percent


def without_unit(answer: str) -> str | None:
    r"""An answer of any shape without the unit in \text{…} that it ends in; None where it ends in none of the table."""
    m = _LAST_UNIT.fullmatch(answer)
    if m is None or m[2].strip().casefold() not in _UNITS or word(m[1]) is not None:  # words have no unit
        return None
    return m[1]


def number(text: str) -> Fraction | None:
    """The exact value of an integer, decimal, repeating decimal, fraction or mixed number; None for anything else."""
    text = text.strip()
    plain = whole_number_text(text)
    if plain is not None:
        return Fraction(plain) if abs(plain.adjusted()) < 5000 else None
    if len(text) > 1000:
        return None
    if m := _REPEATING.fullmatch(text):
        sign, whole, fixed, period = m.groups()
        value = Fraction(int((whole + fixed) or "0"), 10 ** len(fixed))
        value += Fraction(int(period), (10 ** len(period) - 1) * 10 ** len(fixed))
        return -value if sign else value
    if m := _FRACTION.fullmatch(text):
        below = int(m["c"] or m["d"] or m["f"])
        if below == 0:
            return None
        value = int(m["whole"] or m["before"] or 0) + Fraction(int(m["a"] or m["b"] or m["e"]), below)
        return -value if m["sign"] else value
    return None


def decimal(text: str) -> bool:
    """Whether a part is written with a decimal point, so that it may be rounded."""
    return re.search(r"\d\s*\.\s*\d|\.\d", text) is not None and r"\overline" not in text


def near(a: Fraction, b: Fraction) -> bool:
    """Agreement of two values of which one was rounded: to 6 decimals, as in math-verify, and to 1 % of the larger."""
    return abs(a - b) <= min(Fraction(1, 2_000_000), max(abs(a), abs(b)) / 100)
