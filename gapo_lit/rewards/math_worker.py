"""The process that grades mathematics: `python -m gapo_lit.rewards.math_worker`, started by WorkerPool.

A verdict has a share of processor time, counted by SIGVTALRM inside the process: running out of it costs no restart,
and the answer is {"failure": …}. The pool's wall clock stands behind it for what no signal interrupts.
"""

from __future__ import annotations

import logging
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

from gapo_lit.rewards.math_answer import last_answer
from gapo_lit.rewards.math_leaf import measured, without_unit
from gapo_lit.rewards.math_same import canonical, same
from gapo_lit.rewards.math_text import normal, shape
from gapo_lit.rewards.math_value import DEEPEST
from gapo_lit.rewards.worker import serve

LONGEST_ANSWER = 2000  # characters
LEAST_SHARE = 0.01  # of the time limit: what is left to a verdict after many of its batch have run over


class OutOfTime(BaseException):
    """Raised by a signal; no Exception, because sympy catches those."""


class Patience:
    """Processor seconds for each verdict: limit at first, half as much after each of a batch that ran over."""

    def __init__(self) -> None:
        self.batch: Any = None
        self.share = 1.0

    @contextmanager
    def spent(self, batch: Any, limit: float) -> Iterator[None]:
        """Raise OutOfTime inside the block when its share is used up."""
        if batch != self.batch:
            self.batch, self.share = batch, 1.0
        signal.signal(signal.SIGVTALRM, _out_of_time)
        # It rings again, should the first one be swallowed by a bare except.
        signal.setitimer(signal.ITIMER_VIRTUAL, limit * self.share, 0.05)
        try:
            yield
        except OutOfTime:
            self.share = max(self.share / 2, LEAST_SHARE)
            raise
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def judge(gold: str, text: str) -> tuple[bool, str, str | None]:
    """Whether the last answer of a completion equals the gold answer, why not, and what that answer is.

    Python text is never evaluated.
    """
    answer = last_answer(text)
    if answer is None:
        return False, "no answer", None
    if len(answer) > LONGEST_ANSWER:
        return False, f"answer longer than {LONGEST_ANSWER} characters", None
    if _depth(answer) > DEEPEST:
        return False, f"answer with brackets more than {DEEPEST} deep", None
    said = shape(normal(answer))
    golds = [shape(normal(reading)) for reading in _readings(gold)]
    right = any(same(reading, said) for reading in golds)
    if not right and (bare := without_unit(normal(answer))) is not None:
        right = any(same(reading, shape(bare)) for reading in golds if not measured(reading.text)[1])
    return right, "" if right else f"answer {_printable(answer[:80])!r}", _printable(canonical(said)) or None


def _readings(gold: str) -> list[str]:
    """A gold, and without the words that say where its letters come from."""
    return list(dict.fromkeys((gold, re.split(r",?\s*\bwhere\b", gold)[0]))) if gold.strip() else []


def _depth(answer: str) -> int:
    steps = (1 if c in "({[" else -1 if c in ")}]" else 0 for c in answer)
    return max(accumulate(steps), default=0)


def _printable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _out_of_time(*_: Any) -> None:
    raise OutOfTime


def _answer(request: dict[str, Any], patience: Patience) -> dict[str, Any]:
    limit = float(request.get("limit", 10.0))
    try:
        with patience.spent(request.get("batch"), limit):
            right, reason, answer = judge(request["gold"], request["text"])
    except OutOfTime:
        return {"failure": f"more than its share of {limit:g} s of processor time"}
    except Exception as error:  # a fault of the verifier, or its memory limit: no verdict, and the process lives on
        return {"failure": f"{type(error).__name__} in the verifier"}
    return {"right": right, "reason": reason, "answer": answer}


def main() -> None:
    """Serve until the pool hangs up."""
    logging.disable(logging.CRITICAL)
    # What is imported and built on first use is no part of a verdict's time.
    for gold, answer in (
        (r"\sqrt{x}", "2x"),
        ("2x+4y=3", "y=x"),
        (r"(0,1) \cup (2,3)", r"(0,1) \cup (2, \frac{7}{2})"),
    ):
        judge(gold, rf"\boxed{{{answer}}}")
    patience = Patience()
    serve(lambda request: _answer(request, patience))


if __name__ == "__main__":
    main()
