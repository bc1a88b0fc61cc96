"""The process that grades programs, `python -m gapo_lit.rewards.code_worker`: it starts their sandboxes, sends them
inputs and compares what comes out. Expected outputs stay here.

A program's own failure is {"right": false, "reason": …}; only what the program had no part in is {"failure": …}.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Generator, Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from gapo_lit.rewards.code_compare import equal, same_output
from gapo_lit.rewards.code_values import unpack
from gapo_lit.rewards.sandbox import Isolation, IsolationError, find_isolation
from gapo_lit.rewards.sandbox_process import Box, BoxError, Limits, ParentGoneError, ProgramError
from gapo_lit.rewards.sandbox_watch import adopt_orphans, own_uid

Answer = dict[str, Any]
# What test code raises whatever a program returns.
_BROKEN = ("NameError", "ImportError", "ModuleNotFoundError")


def main() -> None:
    """Answer requests until the other side is gone. The command line is WorkerPool's; only the connection matters: a
    program's memory and time are limited where it runs.
    """
    link = Connection(int(sys.argv[1]))
    adopt_orphans()
    with contextlib.suppress(PermissionError):  # root alone may, and root alone needs it: see sandbox._namespaces
        os.setpriority(os.PRIO_PROCESS, 0, -10)  # who counts processes must not wait behind them
    signal.signal(signal.SIGALRM, _late)
    with contextlib.suppress(EOFError, OSError, ParentGoneError):
        link.send_bytes(b"{}")
        while True:
            request = json.loads(link.recv_bytes())
            link.send_bytes(json.dumps(_answer(request, link)).encode())
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:  # no sandbox is open now: these were left by one that failed
                    pass


def _answer(request: dict[str, Any], link: Connection) -> Answer:
    try:
        if request["do"] == "isolate":
            return {"isolation": find_isolation(request["packages"], required=request["required"]).to_json()}
        return Grader(request, link).answer(request["do"])
    except ParentGoneError:
        raise
    except (BoxError, IsolationError, ValueError) as error:
        return {"failure": str(error)[:2000]}
    except Exception as error:  # ours, then: the next program deserves a grader all the same
        return {"failure": f"{type(error).__name__} in the grader: {str(error)[:200]}"}


class Grader:
    """One program and its tests."""

    def __init__(self, request: dict[str, Any], link: Connection) -> None:
        self.request, self.link, self.task = request, link, request["task"]
        self.isolation = Isolation.from_json(request["isolation"])
        if self.isolation.user is not None:
            self.isolation = replace(self.isolation, user=own_uid())
        self.limits = Limits(**request["limits"])
        self.deadline = time.monotonic() + self.limits.seconds
        self.calls, self.raised = 0, ""

    def answer(self, do: str) -> Answer:
        """The verdict, or for "reference" the program's outputs as trees."""
        if do == "reference":
            return self._reference()
        if self.task["kind"] == "assert":
            return self._asserted()
        passed, reason = 0, ""
        tests = self._run() if self.task["kind"] == "stdin" else self._called()
        with contextlib.closing(tests):
            for number, problem in enumerate(tests, start=1):
                passed += not problem
                reason = reason or (problem and f"test {number}: {problem}")
                if problem and not self.request["fraction"]:
                    break
        count = len(self.task["tests"])
        return {"right": passed == count, "fraction": passed / count, "reason": reason}

    def _run(self) -> Generator[str, None, None]:
        """What is wrong with each test by standard input, "" for nothing."""
        box: Box | None = None
        try:
            for given, want in self.task["tests"]:
                box = box or self._box()
                message = {**self._program(), "stdin": given.encode("utf-8", "surrogateescape")}
                try:
                    yield self._ended(self._ask(box, message), want)
                except ProgramError as error:
                    box.close()
                    box = None
                    yield self._named(error)
        finally:
            if box is not None:
                box.close()

    def _ended(self, reply: Answer, want: str) -> str:
        try:
            status, out, said = int(reply["status"]), bytes.fromhex(reply["out"]), bytes.fromhex(reply["err"])
        except (KeyError, TypeError, ValueError, OverflowError):
            return "no answer of the kind that was asked for"
        if status < 0:
            return f"ended by signal {-status}"
        if status > 0:
            last = said.decode(errors="replace").strip().rpartition("\n")[2].partition(":")[0]
            return f"exit status {status}{f' ({last[:60]})' if last.isidentifier() else ''}"
        with _alarm(self._seconds()):
            return "" if same_output(want, out.decode(errors="replace"), self._tolerance) else "wrong output"

    def _called(self) -> Generator[str, None, None]:
        """What is wrong with each call, "" for nothing."""
        box: Box | None = None
        loaded = False
        try:
            for arguments, want in self.task["tests"]:
                try:
                    if box is None:
                        box = self._box()
                        self._load(box)
                        loaded = True
                    message = {"call": self.task["entry"], "args": unpack(arguments), "kwargs": {}}
                    yield self._returned(self._ask(box, message), want)
                except ProgramError as error:
                    if box is not None:
                        box.close()
                    box = None
                    yield self._named(error)
                    if not loaded:  # nor would it for the other tests
                        return
        finally:
            if box is not None:
                box.close()

    def _returned(self, reply: Answer, want: Any) -> str:
        got = self._value(reply)
        with _alarm(self._seconds()):
            gold = unpack(want)
            wants = [gold, gold[0]] if self.task["unwrap"] and isinstance(gold, list) and len(gold) == 1 else [gold]
            try:
                right = any(equal(w, got, self._tolerance, loose=self.task["loose"]) for w in wants)
            except (ValueError, RecursionError):  # a key too long to be printed
                right = False
        return "" if right else "wrong output"

    def _value(self, reply: Answer) -> Any:
        """The plain value in a reply; ProgramError where there is none."""
        if "ended" in reply:
            raise ProgramError(f"ended with status {str(reply['ended'])[:20]} in the middle of a call")
        if "value" not in reply:
            raise ProgramError(_text(reply.get("error")) + (f": {text}" if (text := _text(reply.get("text"))) else ""))
        with _alarm(self._seconds()):
            try:
                return unpack(reply["value"])
            except (ValueError, TypeError, AttributeError, IndexError, RecursionError, OverflowError) as error:
                raise ProgramError("no answer of the kind that was asked for") from error

    def _load(self, box: Box) -> None:
        reply = self._ask(box, self._program())
        if reply != {"loaded": True}:
            raise ProgramError(f"does not load: {_text(reply.get('error')) or 'it ended'}")

    def _asserted(self) -> Answer:
        """Test code in one sandbox, the program in another; what passes between them is plain data, by way of here."""
        task = self.task
        try:
            with self._box() as program, self._box() as tester:
                self._load(program)
                message = {"prompt": task["head"], "test": task["test"], "entry": task["entry"]}
                reply = self._tester(tester, message)
                while "call" in reply:
                    self.calls += 1
                    reply = self._tester(tester, self._relay(program, reply["call"]))
        except ProgramError as error:
            return {"right": False, "fraction": 0.0, "reason": self._named(error)}
        failed, place = reply.get("failed"), reply.get("place")
        if reply == {"failed": None, "place": "test"}:
            return {"right": True, "fraction": 1.0, "reason": ""}
        if place == "prompt" or (place == "test" and (self.calls == 0 or failed in _BROKEN)):
            return {"failure": f"the {place} does not run: {failed}"}
        what = self.raised if place == "program" else _text(failed)
        return {"right": False, "fraction": 0.0, "reason": f"call {self.calls}: {what}"}

    def _tester(self, tester: Box, message: dict[str, Any]) -> Answer:
        try:
            return self._ask(tester, message)
        except ProgramError as error:
            if self.calls == 0:  # the program had no part in it yet
                raise BoxError(f"the test does not run: {error}") from error
            raise

    def _relay(self, program: Box, call: Any) -> dict[str, Any]:
        args, kwargs = unpack(call[0]), unpack(call[1])
        reply = self._ask(program, {"call": self.task["entry"], "args": args, "kwargs": kwargs})
        if "error" in reply:
            self.raised = _text(reply["error"])
            return {"error": self.raised}
        return {"value": self._value(reply)}

    def _reference(self) -> Answer:
        try:
            with self._box() as box:
                self._load(box)
                values = []
                for arguments, _ in self.task["tests"]:
                    message = {"call": self.task["entry"], "args": unpack(arguments), "kwargs": {}}
                    reply = self._ask(box, message)
                    self._value(reply)
                    values.append(reply["value"])
        except ProgramError as error:
            return {"failure": f"the reference solution fails: {self._named(error)}"}
        return {"values": values}

    def _box(self) -> Box:
        started = time.monotonic()
        box = Box(self.isolation, self.limits, self.link)
        self.deadline += time.monotonic() - started  # starting it is not the program's time
        return box

    def _program(self) -> dict[str, Any]:
        return {k: self.request[k] for k in ("program", "prefix")} | {"names": self.task["names"]}

    def _ask(self, box: Box, message: dict[str, Any]) -> Answer:
        forgiven = box.forgiven
        try:
            return box.ask(message, self._seconds())
        finally:
            self.deadline += box.forgiven - forgiven

    def _seconds(self) -> float:
        return max(0.0, min(float(self.request["test_seconds"]), self.deadline - time.monotonic()))

    @property
    def _tolerance(self) -> float:
        return float(max(self.request["tolerance"], self.task["atol"]))

    def _named(self, error: ProgramError) -> str:
        if str(error) != "time limit":
            return str(error)
        late = self.deadline - time.monotonic() <= 0
        return f"time limit of {self.limits.seconds if late else self.request['test_seconds']:g} s"


def _text(given: Any) -> str:
    return given[:60] if isinstance(given, str) else ""


def _late(number: int, frame: object) -> None:
    raise ProgramError("time limit")


@contextlib.contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """ProgramError after some seconds: comparing what a program made can be made to take long."""
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)  # for this process alone
    main()
