"""The process that calls a function of the user's, `python -m gapo_lit.rewards.function_worker`.

The function is the user's own and trusted; what it is given was written by a policy, and it may fail in any way. What
it returns is put into words that JSON has here, so that no object of the user's ever reaches the trainer.
"""

from __future__ import annotations

import base64
import json
import math
import numbers
import os
import pickle
import sys
from collections.abc import Mapping
from typing import Any

from gapo_lit.rewards.function_source import Task, find_task, frames, message
from gapo_lit.rewards.worker import serve

KINDS = ("correct", "incorrect", "none")


def answer(task: Task | ValueError, request: dict[str, Any]) -> dict[str, Any]:
    """What the function says of the request's rows: {"outcomes": [one a row]}, or {"failure", "kind", "trace"}.

    A request without rows is answered with the function's parameters, or with {"problem": why it cannot be used}.
    """
    if isinstance(task, ValueError):
        return {"problem": str(task)} if "rows" not in request else _failure(task)
    if "rows" not in request:
        return task.described()
    # Everything is caught, SystemExit too: whatever happens costs the verdicts of these rows and no others.
    try:
        # Pickled, as rows hold dates and arrays that JSON has no words for; the trainer is who pickled them.
        rows = pickle.loads(base64.b64decode(request["rows"]))
        if not task.batch:
            return {"outcomes": [outcome(task(row)) for row in rows]}
        return {"outcomes": _outcomes(task({name: [row[name] for row in rows] for name in rows[0]}), len(rows))}
    except BaseException as error:
        return _failure(error)


def outcome(value: Any) -> dict[str, Any]:
    """One returned value as {"score", "kind", "reason", "components", "answer"}; {"failure", "kind"} if it is unusable.

    score None is no verdict; kind None leaves it to the score whether that is correct.
    """
    verdict = getattr(sys.modules.get("gapo_lit.types"), "Verdict", None)  # loaded only where the user loads it
    said: dict[str, Any] = {"kind": None, "reason": "", "components": {}, "answer": None}
    if value is None:
        return {**said, "score": None, "reason": "the function gave no verdict"}
    try:
        if verdict is not None and isinstance(value, verdict):
            if value.kind not in KINDS:
                raise ValueError
            said |= {"kind": value.kind, "reason": str(value.reason), "components": _numbers(value.components)}
            said["answer"] = None if value.answer is None else str(value.answer)
            return {**said, "score": None if value.score is None else _number(value.score)}
        if isinstance(value, Mapping):
            lacking = [str(name) for name, part in value.items() if part is None]
            if lacking:
                return {**said, "score": None, "reason": f"the function gave no value for {', '.join(lacking)}"}
            if not value:
                raise ValueError
            said["components"] = _numbers(value)
            return {**said, "score": _number(math.fsum(said["components"].values()))}
        if isinstance(_plain(value), bool):
            said["kind"] = "correct" if value else "incorrect"
        return {**said, "score": _number(value)}
    except Exception:  # an object of the user's may raise anything when it is looked at
        return _unusable(value, "")


def _outcomes(values: Any, count: int) -> list[dict[str, Any]]:
    if hasattr(values, "tolist"):
        values = values.tolist()
    if not isinstance(values, list | tuple):
        return [_unusable(values, " for a batch")] * count
    if len(values) != count:
        return [{"failure": f"returned {len(values)} values for a batch of {count}", "kind": "length"}] * count
    return [outcome(value) for value in values]


def _numbers(components: Mapping[Any, Any]) -> dict[str, float]:
    if not all(isinstance(name, str) for name in components):
        raise TypeError
    return {name: _number(value) for name, value in components.items()}


def _number(value: Any) -> float:
    """A Python, numpy or torch scalar as a finite float; an exception for anything else."""
    plain = _plain(value)
    if not isinstance(plain, numbers.Number):
        raise TypeError
    number = float(plain)  # type: ignore[arg-type]
    if not math.isfinite(number):
        raise ValueError
    return number


def _plain(value: Any) -> Any:
    return value.item() if getattr(value, "shape", None) == () and hasattr(value, "item") else value


def _failure(error: BaseException) -> dict[str, Any]:
    """An exception as the reason of its verdicts, what else counts as the same failure, and where it came from."""
    where = [(f"{os.path.basename(f.filename)}:{f.lineno}", f.name, f.line) for f in frames(error)]
    last = where[-1][0] if where else "the call"
    return {
        "failure": message(error),
        "kind": f"{type(error).__name__} at {last}",
        "trace": [f"{place} in {name}: {line}" for place, name, line in where],
    }


def _unusable(value: Any, where: str) -> dict[str, Any]:
    return {"failure": f"returned {_shown(value)}{where}", "kind": f"returned {type(value).__name__}{where}"}


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:
        text = "a value"
    return f"{text if len(text) <= 60 else text[:60] + '…'} ({type(value).__name__})"


def main() -> None:
    """Load the function that the command line names, then answer."""
    os.dup2(2, 1)  # what the function prints goes where the trainer's own messages go
    given = json.loads(sys.argv[4])
    try:
        task: Task | ValueError = find_task(given["function"], given["settings"])
    except ValueError as error:
        task = error
    serve(lambda request: answer(task, request), guarded=False)


if __name__ == "__main__":
    main()
