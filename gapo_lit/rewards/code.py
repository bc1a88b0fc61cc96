"""Programs, graded by running them against tests in a sandbox."""

from __future__ import annotations

import logging
import math
import threading
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

from gapo_lit.registry import register
from gapo_lit.rewards.base import LISTED, Reward, paired
from gapo_lit.rewards.code_tasks import Layout, Task, longest, task_of
from gapo_lit.rewards.code_text import Extract, program_of
from gapo_lit.rewards.pool import Answer, WorkerPool
from gapo_lit.rewards.sandbox import Isolation, IsolationError
from gapo_lit.rewards.sandbox_process import PATIENCE
from gapo_lit.types import Completion, Example, Prompt, Verdict

_START = 120.0  # seconds that starting sandboxes on a busy machine may add to a program's own time
_log = logging.getLogger(__name__)


@register(source="HumanEval, arXiv:2107.03374; HumanEval+, arXiv:2305.01210; LiveCodeBench, arXiv:2403.07974")
class CodeTests(Reward):
    """1 where the program in a completion passes every test of its row, else 0; with `fraction` the share it passes.

    Tests by standard input, by calls of a function and by code such as HumanEval's check(candidate) are read from the
    row's columns; `layout` names them (`gapo_lit.rewards.code_tasks` lists the columns of each), "auto" tells it by the
    columns. `extract` says where the program is (`code_text.program_of`). Outputs are compared outside the program's
    sandbox, which they never enter; test code runs in a second sandbox and sees plain data only. Floats may differ by
    `tolerance`, absolute or relative, whichever is wider; blanks at line ends do not count. max_tests keeps the tests
    with the longest inputs.

    Each program has `test_seconds` of wall clock a test and total_seconds in all (what it waits for a processor on a
    busy machine does not count, up to three times as much), `memory_mb` of memory, files and output of file_mb, and
    `processes` processes and threads. It may import the standard library and `packages`. A program that fails, crashes
    or hits a limit is incorrect, with the reason; `Verdict.none` is kept for a sandbox, a reference solution or a test
    that does not work. `workers` programs run at a time. Callable from any thread.

    Programs run in namespaces of their own, by bubblewrap. Making the reward tries that out, and `isolation` says what
    there is; where it does not work, IsolationError (a RuntimeError) is raised unless require_isolation is false: then
    resource limits are all there is, with a warning.
    """

    def __init__(
        self,
        layout: Layout | Literal["auto"] = "auto",
        extract: Extract = "auto",
        fraction: bool = False,
        tolerance: float = 1e-6,
        max_tests: int | None = None,
        test_seconds: float = 6.0,
        total_seconds: float = 60.0,
        memory_mb: int = 1024,
        file_mb: int = 32,
        processes: int = 8,
        packages: Sequence[str] = ("numpy",),
        workers: int = 2,
        require_isolation: bool = True,
    ) -> None:
        for name, value, known in (
            ("layout", layout, ("auto", *get_args(Layout))),
            ("extract", extract, get_args(Extract)),
        ):
            if value not in known:
                raise ValueError(f"{name}={value!r} is unknown; give one of {', '.join(known)}")
        _check_limits(test_seconds, total_seconds, memory_mb, file_mb, processes)
        if not 0 <= tolerance < 1:
            raise ValueError(f"tolerance={tolerance} is no small difference; give 0 for exact or less than 1")
        if max_tests is not None and max_tests < 1:
            raise ValueError(f"max_tests={max_tests} leaves nothing to pass; give at least 1, or null for all")
        self.layout, self.extract, self.max_tests = layout, extract, max_tests
        self._settings: dict[str, Any] = {
            "limits": {
                "seconds": total_seconds, "memory_mb": memory_mb, "file_mb": file_mb, "processes": processes
            },
            "fraction": fraction, "tolerance": tolerance, "test_seconds": test_seconds,
        }  # fmt: skip
        self._references: dict[str, list[Any] | str] = {}
        self._lock = threading.Lock()
        self.pool = WorkerPool(
            "gapo_lit.rewards.code_worker",
            workers=workers,
            time_limit=PATIENCE * total_seconds + _START,
            memory_mb=256,  # only a formality: programs have limits of their own
        )
        self.isolation = self._isolate(list(packages), require_isolation)

    def __call__(self, prompts: Sequence[Prompt], completions: Sequence[Completion]) -> list[Verdict]:
        """See Reward. Raises ValueError for a row without tests: run check() on the examples before a run."""
        pairs = paired(prompts, completions)
        tasks = self._tasks([prompt.example for prompt in prompts])
        requests: list[dict[str, Any]] = []
        verdicts: dict[int, Verdict] = {}
        asked = []
        for i, (prompt, completion) in enumerate(pairs):
            task = tasks[prompt.id]
            if isinstance(task, str):
                verdicts[i] = Verdict.none(task)
                continue
            found = program_of(completion.text, self.extract, task.head, task.entry)
            if found is None:
                verdicts[i] = Verdict.of(False, "no program")
            else:
                asked.append(i)
                requests.append(self._request("grade", task, *found))
        for i, answer in zip(asked, self.pool.map(requests), strict=True):
            verdicts[i] = _verdict(answer, self._settings["fraction"])
        return [verdicts[i] for i in range(len(pairs))]

    def check(self, examples: Sequence[Example]) -> None:
        """ValueError naming rows whose tests are missing or cannot be read. Nothing is run."""
        bad = []
        for example in examples:
            try:
                task_of(example, self.layout)
            except ValueError as error:
                bad.append(f"{example.id}: {str(error)[:200]}")
        if bad:
            more = f"; and {len(bad) - LISTED} more" if len(bad) > LISTED else ""
            raise ValueError(
                f"{len(bad)} of {len(examples)} rows cannot be graded: {'; '.join(bad[:LISTED])}{more}; "
                "drop these rows, mend their tests, or name their layout"
            )

    def close(self) -> None:
        """End the grading processes and with them every program; a later call starts new ones."""
        self.pool.close()

    def _isolate(self, packages: list[str], required: bool) -> Isolation:
        answer = self.pool.map([{"do": "isolate", "packages": packages, "required": required}])[0]
        if "failure" in answer:
            self.pool.close()
            kind = ValueError if answer["failure"].startswith("packages") else IsolationError
            raise kind(answer["failure"])
        found = Isolation.from_json(answer["isolation"])
        self._settings["isolation"] = answer["isolation"]
        if found.level == "namespaces":
            _log.info("model-written programs run isolated: %s", found)
        else:
            warnings.warn(
                f"model-written programs run with {found} ({found.missing}): they can read what their user can, and "
                "reach the network",
                stacklevel=3,
            )
        return found

    def _tasks(self, examples: Sequence[Example]) -> dict[str, Task | str]:
        """Each row's tests by its id, with the reference solution's outputs; a text where that fails: why."""
        tasks: dict[str, Task] = {}
        for example in examples:
            if example.id not in tasks:
                try:
                    tasks[example.id] = longest(task_of(example, self.layout), self.max_tests)
                except ValueError as error:
                    raise ValueError(f"row {example.id} cannot be graded: {error}") from error
        with self._lock:
            unknown = [id for id, task in tasks.items() if task.reference and id not in self._references]
            answers = self.pool.map([self._request("reference", tasks[i], tasks[i].reference, 0) for i in unknown])
            for id, answer in zip(unknown, answers, strict=True):
                self._references[id] = answer["values"] if "values" in answer else str(answer["failure"])
            return {id: self._filled(id, task) for id, task in tasks.items()}

    def _filled(self, id: str, task: Task) -> Task | str:
        known = self._references.get(id) if task.reference else None
        if known is None or isinstance(known, str):
            return known or task
        tests = tuple((test[0], value) for test, value in zip(task.tests, known, strict=True))
        return replace(task, tests=tests)

    def _request(self, do: str, task: Task, program: str, prefix: int) -> dict[str, Any]:
        return {
            "do": do,
            "task": {**vars(task), "reference": ""},
            "program": program,
            "prefix": prefix,
        } | self._settings


def _check_limits(test_seconds: float, total_seconds: float, memory_mb: int, file_mb: int, processes: int) -> None:
    if not 0 < test_seconds <= total_seconds < math.inf:
        raise ValueError(
            f"test_seconds={test_seconds} and total_seconds={total_seconds} are no limits; "
            "give 0 < test_seconds <= total_seconds"
        )
    if memory_mb < 64:
        raise ValueError(f"memory_mb={memory_mb} does not hold Python; give at least 64")
    if file_mb < 1:
        raise ValueError(f"file_mb={file_mb} leaves no room for output; give at least 1")
    if processes < 1:
        raise ValueError(f"processes={processes} lets no program start; give at least 1")


def _verdict(answer: Answer, fraction: bool) -> Verdict:
    if "failure" in answer:
        return Verdict.none(answer["failure"])
    if answer["right"]:
        return Verdict.of(True)
    return Verdict("incorrect", answer["fraction"] if fraction else 0.0, answer["reason"])
