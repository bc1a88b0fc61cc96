"""Whether what a program gave is what a test expects."""

from __future__ import annotations


def same_output(want: str, got: str, tolerance: float) -> bool:
    """Whether two outputs are the same, line by line: blanks at the ends of lines, between words and at the end of the
    text do not count, and numbers of which one is written as a float may differ by the tolerance.
    """
    wants, gots = want.rstrip().splitlines(), got.rstrip().splitlines()
    return len(wants) == len(gots) and all(
        w == g or _same_words(w.split(), g.split(), tolerance) for w, g in zip(wants, gots, strict=True)
    )


def _same_words(want: list[str], got: list[str], tolerance: float) -> bool:
    return len(want) == len(got) and all(
        w == g or (_is_float(w, g) and close(float(w), float(g), tolerance)) for w, g in zip(want, got, strict=True)
    )


def _is_float(want: str, got: str) -> bool:
    """Whether both are numbers and one is written with a point or an exponent."""
    if max(len(want), len(got)) > 400 or not any(c in w for w in (want, got) for c in ".eE"):
        return False
    try:
        return all(abs(float(w)) < float("inf") for w in (want, got) if "_" not in w) and "_" not in want + got
    except ValueError:
        return False


def equal(want: object, got: object, tolerance: float, *, loose: bool) -> bool:
    """Want == got, except that floats may differ by the tolerance, absolute or relative, whichever is wider.

    loose: lists and tuples are one kind, and a string key stands for the value it prints as: what JSON makes of them.
    Integers are compared exactly; True is 1 and 1.0 is 1, as in Python.
    """
    if isinstance(want, list | tuple) and isinstance(got, list | tuple):
        if not (loose or type(want) is type(got)) or len(want) != len(got):
            return False
        return all(equal(w, g, tolerance, loose=loose) for w, g in zip(want, got, strict=True))
    if isinstance(want, dict) and isinstance(got, dict):
        if loose and want.keys() != got.keys():
            got = {str(key): value for key, value in got.items()}
        if want.keys() != got.keys():
            return False
        return all(equal(want[key], got[key], tolerance, loose=loose) for key in want)
    if isinstance(want, float) or isinstance(got, float):
        return close(want, got, tolerance)
    return bool(want == got)


def close(want: object, got: object, tolerance: float) -> bool:
    """Whether two real numbers are equal or within the tolerance, absolute or relative to `want`; NaN is NaN."""
    if not (isinstance(want, int | float) and isinstance(got, int | float)):
        return False
    if want == got:
        return True
    try:
        a, b = float(want), float(got)
    except OverflowError:
        return False
    if a != a or b != b:
        return a != a and b != b
    return abs(a - b) <= tolerance * max(1.0, min(abs(a), 1e300)) if a - a == 0 and b - b == 0 else False
