"""What a row of a table holds: values by path, the text of a gold answer, and which rows are wanted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from typing import Any

from gapo_lit.registry import near_misses

_STEP = re.compile(r"\.?([^.\[\]]+)|\[(-?\d+)\]")
_BOUNDS = {"from", "before"}


def value_at(row: Mapping[str, Any], path: str, place: str) -> Any:
    """The value of a column, or at a path into one: `reward_model.ground_truth`, `final_answer[0]`, `chat[-1].content`.

    A column whose whole name is `path` comes first. Raises ValueError naming the place for a step that is not there.
    """
    if path in row:
        return row[path]
    value: Any = row
    for step in _steps(path):
        if isinstance(step, int):
            if not isinstance(value, list | tuple) or not -len(value) <= step < len(value):
                held = f"a list of {len(value)}" if isinstance(value, list | tuple) else type(value).__name__
                raise ValueError(f"{place}: {path!r} takes item {step} of {held}; give an item that every row has")
            value = value[step]
        elif not isinstance(value, Mapping):
            raise ValueError(f"{place}: {path!r} looks for {step!r} in {type(value).__name__}, which has no names")
        elif step not in value:
            of = "" if value is row else f" in {path!r}"
            raise ValueError(
                f"{place} has no column {step!r}{of}{near_misses(step, value)}; columns: {', '.join(map(str, value))}"
            )
        else:
            value = value[step]
    return value


def text_at(row: Mapping[str, Any], path: str, place: str) -> str:
    """The text or number at a path, as text: 5.0 is "5". ValueError for anything else."""
    value = value_at(row, path, place)
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value)
    inside = f"; for its first item give {path}[0]" if isinstance(value, list) and value else ""
    raise ValueError(f"{place} holds {type(value).__name__} in column {path!r}; it must be text or a number{inside}")


def last_group(pattern: re.Pattern[str] | None, text: str, place: str) -> str:
    """What the pattern's one group holds where it matches last; the text itself without a pattern."""
    if pattern is None:
        return text
    found = pattern.findall(text)
    if not found:
        raise ValueError(f"{place}: answer_pattern {pattern.pattern!r} is nowhere in the answer ({text[-60:]!r})")
    return str(found[-1])


def compiled(answer_pattern: str) -> re.Pattern[str] | None:
    """The pattern, compiled, None for an empty one; ValueError for one that is none, or has not exactly one group."""
    if not answer_pattern:
        return None
    try:
        pattern = re.compile(answer_pattern)
    except re.error as error:
        raise ValueError(f"answer_pattern={answer_pattern!r} is no regular expression: {error}") from error
    if pattern.groups != 1:
        raise ValueError(
            f"answer_pattern={answer_pattern!r} has {pattern.groups} groups, and its one group is the answer; "
            "put parentheses around that part alone, (?:…) around others"
        )
    return pattern


def check_where(where: Mapping[str, Any]) -> None:
    """ValueError for a condition of another form than a value, a list of values, or {from: …, before: …}."""
    for path, wanted in where.items():
        if isinstance(wanted, Mapping):
            if not wanted or set(wanted) - _BOUNDS:
                raise ValueError(
                    f"where.{path}={dict(wanted)} is no range; give from (at least), before (below), or both"
                )
        elif wanted is None or (isinstance(wanted, list) and not wanted):
            raise ValueError(f"where.{path}={wanted} keeps no row; give a value, a list of values or a range")


def matches(row: Mapping[str, Any], where: Mapping[str, Any], place: str) -> bool:
    """Whether a row meets every condition.

    A condition is a value, a list of values one of which is wanted, or {from: at least, before: below}. Dates compare
    as ISO text, so that a day comes before its own hours; a row without a value meets none. A number that is wanted
    equals text that writes it: a recipe reads "5" as 5. Raises ValueError where text would be compared with a number.
    """
    return all(_meets(value_at(row, path, place), wanted, path, place) for path, wanted in where.items())


def _meets(value: Any, wanted: Any, path: str, place: str) -> bool:
    if value is None:
        return False
    if isinstance(wanted, Mapping):
        above = "from" not in wanted or _pair(value, wanted["from"], path, place) >= 0
        return above and ("before" not in wanted or _pair(value, wanted["before"], path, place) < 0)
    options = wanted if isinstance(wanted, list) else [wanted]
    if isinstance(value, str):
        options = [str(option) if isinstance(option, int | float) else option for option in options]
    return any(_pair(value, option, path, place) == 0 for option in options)


def _pair(value: Any, wanted: Any, path: str, place: str) -> int:
    """-1, 0 or 1: how a row's value stands to the wanted one."""
    a: Any = value.isoformat() if isinstance(value, date) else value
    b: Any = wanted.isoformat() if isinstance(wanted, date) else wanted
    if isinstance(a, str) != isinstance(b, str) or not isinstance(a, str | int | float):
        raise ValueError(
            f"{place} holds {type(value).__name__} in column {path!r}, but where.{path} has {wanted!r}, "
            f"{type(wanted).__name__}; give what the column holds, text in quotes"
        )
    order: int = (a > b) - (a < b)
    return order


def _steps(path: str) -> list[str | int]:
    steps: list[str | int] = []
    at = 0
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None or (at == 0 and path.startswith(".")):
            raise ValueError(f"{path!r} is no path to a value; write column, column.name or column[0]")
        steps.append(step[1] if step[2] is None else int(step[2]))
        at = step.end()
    return steps
