"""Worker processes for verdicts that may hang, explode or crash: each such request costs its own answer and no other.

A worker is a fresh Python that imports one module; nothing is forked from the trainer, whose torch and engine threads
would not survive it. Requests and answers are JSON over a socket pair: no answer is ever unpickled or evaluated.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Pipe, wait
from typing import Any

Answer = dict[str, Any]
START_LIMIT = 120.0  # seconds; a loaded machine may take long to import a grader, and this only guards against never


class WorkerPool:
    """`workers` processes of `python -m module`, started when first needed.

    time_limit: seconds of wall clock a request may take; memory_mb: address space of a worker. arguments: more words of
    its command line, after those that `serve` reads. budget: seconds that the requests of one map() may lose in total
    by running over the limit; after that the rest of them fail unasked (None: no such bound). `module` ends in a call
    of `gapo_lit.rewards.worker.serve`.
    """

    def __init__(
        self,
        module: str,
        *,
        workers: int,
        time_limit: float,
        memory_mb: int,
        arguments: Sequence[str] = (),
        budget: float | None = None,
    ) -> None:
        if workers < 1:
            raise ValueError(f"workers={workers} can grade nothing; give at least 1")
        if not 0 < time_limit < float("inf"):
            raise ValueError(f"time_limit={time_limit} is no limit in seconds; give a positive number")
        if memory_mb < 256:
            raise ValueError(f"memory_mb={memory_mb} does not hold a grader; give at least 256")
        self.module, self.count, self.time_limit, self.memory_mb = module, workers, time_limit, memory_mb
        self.arguments, self.budget = tuple(arguments), budget
        self._lost = 0.0  # seconds, of the map() that runs
        self._workers: list[_Worker] = []
        self._lock = threading.Lock()
        self._pid = os.getpid()
        # Runs at exit too, so that an interpreter that ends without close() leaves no process behind.
        self._finalizer = weakref.finalize(self, _stop_all, self._workers, self._pid)

    def map(self, requests: Sequence[Mapping[str, Any]]) -> list[Answer]:
        """One answer a request, in order; {"failure": reason} where the worker hit its limit or died.

        Callable from any thread; calls from several threads take turns. Raises RuntimeError where workers cannot start.
        """
        with self._lock:
            if self._pid != os.getpid():  # a forked copy: these workers answer to the parent
                self._pid, self._workers = os.getpid(), []
                self._finalizer = weakref.finalize(self, _stop_all, self._workers, self._pid)
            try:
                return self._run(requests)
            except BaseException:
                # An interrupted worker still owes an answer, which it would give to the next request.
                _stop_all(self._workers, self._pid)
                raise

    def close(self) -> None:
        """Stop every worker; the next map() starts new ones."""
        with self._lock:
            _stop_all(self._workers, self._pid)

    def pids(self) -> list[int]:
        """Process ids of the workers alive now."""
        return [w.process.pid for w in self._workers]

    def _run(self, requests: Sequence[Mapping[str, Any]]) -> list[Answer]:
        answers: dict[int, Answer] = {}
        waiting = deque(range(len(requests)))
        self._lost = 0.0
        while len(answers) < len(requests):
            if waiting and self.budget is not None and self._lost >= self.budget:
                failure = f"not graded: requests of the same batch ran {self._lost:.0f} s over their time limit"
                answers.update({task: {"failure": failure} for task in waiting})
                waiting.clear()
            for _ in range(min(self.count, len(requests) - len(answers)) - len(self._workers)):
                self._workers.append(_Worker(self.module, self.memory_mb, self.time_limit, self.arguments))
            for worker in list(self._workers):
                if worker.idle and waiting:
                    task = waiting.popleft()
                    if not worker.ask(task, requests[task], self.time_limit):  # it died while idle: nothing was asked
                        waiting.appendleft(task)
                        self._drop(worker)
            self._collect(answers)
        return [answers[i] for i in range(len(requests))]

    def _collect(self, answers: dict[int, Answer]) -> None:
        busy = [w for w in self._workers if not w.idle]
        if not busy:
            return
        ready = wait([w.link for w in busy], max(0.0, min(w.deadline for w in busy) - time.monotonic()))
        for worker in busy:
            failure = None
            if worker.link in ready:
                answer, task = worker.receive(), worker.task
                if answer is None:
                    failure = f"worker died (exit status {worker.process.wait()})"
                elif task is not None:
                    answers[task], worker.task = answer, None
            elif time.monotonic() >= worker.deadline:
                failure = f"time limit of {self.time_limit:g} s"
                self._lost += self.time_limit
            if failure is not None:
                self._drop(worker)
                if not worker.ready:
                    raise RuntimeError(f"{self.module} did not start: {failure}; its own message stands above")
                assert worker.task is not None
                answers[worker.task] = {"failure": failure}

    def _drop(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        worker.stop()


class _Worker:
    """One process; `task` is the request it is at, `ready` whether its imports are done."""

    def __init__(self, module: str, memory_mb: int, time_limit: float, arguments: Sequence[str]) -> None:
        self.task: int | None = None
        self.ready = False
        self.deadline = time.monotonic() + START_LIMIT
        self.link, theirs = Pipe()
        with theirs:
            fd = theirs.fileno()
            path = os.pathsep.join(p or os.getcwd() for p in sys.path)
            self.process = subprocess.Popen(
                # The safe path keeps the working directory out: a file of the user's could shadow an import.
                [sys.executable, "-P", "-m", module, str(fd), str(memory_mb), str(int(2 * time_limit) + 5), *arguments],
                pass_fds=[fd],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
                start_new_session=True,  # Ctrl-C is the trainer's to handle
            )

    @property
    def idle(self) -> bool:
        return self.ready and self.task is None

    def ask(self, task: int, request: Mapping[str, Any], limit: float) -> bool:
        try:
            self.link.send_bytes(json.dumps(request).encode())
        except OSError:
            return False
        self.task, self.deadline = task, time.monotonic() + limit
        return True

    def receive(self) -> Answer | None:
        """What it sent, None where it died."""
        try:
            answer: Answer = json.loads(self.link.recv_bytes())
        except (EOFError, OSError):
            return None
        if not self.ready:
            if "failure" in answer:
                raise RuntimeError(f"a grading process did not start: {answer['failure']}")
            self.ready = True
        return answer

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self.link.close()


def _stop_all(workers: list[_Worker], pid: int) -> None:
    if pid == os.getpid():
        while workers:
            workers.pop().stop()
