"""Verdicts per second of CodeTests: `python benchmarks/code_verdicts.py [workers] [rows.jsonl]`.

Small programs by standard input and by calls of a function, right ones and hostile ones, at each level of isolation
that this machine has, then the start of a bare Python, which every program costs at least. With a file of HumanEval's
columns, also its own solutions. Figures are seconds of a machine that may be busy: compare the ratios within one run.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from gapo_lit.rewards import sandbox
from gapo_lit.rewards.code import CodeTests
from gapo_lit.types import Completion, Example, Prompt

COUNT = 200
STDIN = {"tests": [{"input": f"{i}\n", "output": f"{2 * i}\n"} for i in range(5)]}
CALLS = {"tests": {"fn_name": "f", "inputs": [[i] for i in range(5)], "outputs": [2 * i for i in range(5)]}}
HOSTILE = (
    "import os\nos._exit(0)",
    "import os\nfor _ in range(99): os.fork()",
    "x = []\nwhile True: x.append('y' * 10**8)",
    "print('x' * 300_000)",
    "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(99)",
    "import ctypes\nctypes.string_at(0)",
)
KINDS: dict[str, tuple[dict[str, object], Sequence[str]]] = {
    "plain, standard input, 5 tests": (STDIN, ["print(2 * int(input()))"]),
    "plain, calls, 5 tests": (CALLS, ["def f(x): return 2 * x"]),
    "hostile, standard input": (STDIN, HOSTILE),
}


def pairs(columns: dict[str, object], programs: Sequence[str]) -> tuple[list[Prompt], list[Completion]]:
    """COUNT prompts, each with the next of the programs."""
    prompt = Prompt(Example("row", "?", "", columns), (1,), "?")
    texts = [f"```python\n{programs[i % len(programs)]}\n```" for i in range(COUNT)]
    return [prompt] * COUNT, [Completion((1,), (0.0,), text, "stop") for text in texts]


def timed(name: str, reward: CodeTests, prompts: Sequence[Prompt], completions: Sequence[Completion]) -> None:
    """Print one line."""
    reward(prompts[:4], completions[:4])
    start = time.perf_counter()
    verdicts = reward(prompts, completions)
    rate = len(verdicts) / (time.perf_counter() - start)
    kinds = {kind: sum(v.kind == kind for v in verdicts) for kind in ("correct", "incorrect", "none")}
    print(f"  {name}: {rate:.1f} verdicts/s, {kinds}", flush=True)


def made(workers: int) -> CodeTests | None:
    """A reward at the level that the machine allows now; None where there is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return CodeTests(workers=workers, test_seconds=5, memory_mb=512, require_isolation=False)
        except RuntimeError as error:
            print(f"  not here: {error}")
            return None


def measure(reward: CodeTests, rows: Sequence[dict[str, str]]) -> None:
    """Every kind of program, and the solutions of the rows."""
    try:
        for name, (columns, programs) in KINDS.items():
            timed(name, reward, *pairs(columns, programs))
        if rows:
            examples = [Example(r["id"], r["prompt"], r["answer"], r) for r in rows]
            prompts = [Prompt(e, (1,), e.question) for e in examples]
            said = [Completion((1,), (0.0,), r["answer"], "stop") for r in rows]
            timed("solutions of the file", reward, prompts, said)
    finally:
        reward.close()


def starts(command: Sequence[str]) -> float:
    """Seconds that a Python takes to start and end, the median of 20."""
    seconds = []
    for _ in range(20):
        start = time.perf_counter()
        subprocess.run([*command, sandbox.python(), "-I", "-S", "-c", "pass"], check=True, env={})
        seconds.append(time.perf_counter() - start)
    return sorted(seconds)[10]


def main() -> None:
    """Print the levels one after the other."""
    workers = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    lines = Path(sys.argv[2]).read_text(encoding="utf-8").splitlines() if len(sys.argv) > 2 else []
    rows = [json.loads(line) for line in lines if line.strip()]
    reward = made(workers)
    if reward is None:
        return
    found = reward.isolation
    print(f"{found}, {workers} workers")
    measure(reward, rows)
    bare, boxed = starts([]), starts(found.command)
    print(f"  a bare Python starts and ends in {bare * 1e3:.0f} ms, an isolated one in {boxed * 1e3:.0f} ms")
    if found.level == "namespaces":
        weaker = weakened(workers)
        if weaker is not None:
            print(f"{weaker.isolation}, {workers} workers")
            measure(weaker, rows)


def weakened(workers: int) -> CodeTests | None:
    """The reward as a machine without bubblewrap would make it; programs that try to get out are not among ours."""
    find: Callable[[], str | None] = sandbox.bubblewrap
    try:
        sandbox.bubblewrap = lambda: None
        try:
            weak = sandbox.find_isolation((), required=False)
        except RuntimeError as error:
            print(f"limits only: not here: {error}")
            return None
    finally:
        sandbox.bubblewrap = find
    reward = made(workers)
    if reward is not None:
        reward.isolation = weak
        reward._settings["isolation"] = weak.to_json()
    return reward


if __name__ == "__main__":
    main()
