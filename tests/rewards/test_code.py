"""Programs graded in the sandbox: right ones pass, and nothing a program does forges a verdict or outlives it."""

import base64
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path

import pytest

from gapo_lit.rewards.code import CodeTests
from gapo_lit.rewards.code_compare import same_output
from gapo_lit.rewards.pool import WorkerPool
from gapo_lit.rewards.sandbox import Isolation, IsolationError
from gapo_lit.rewards.sandbox_watch import descendants
from gapo_lit.types import Completion, Example, Prompt

sys.path.insert(0, str(Path(__file__).parent))
from code_programs import GOOD, HOSTILE, PLAIN

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"
QUICK = (
    "loop",
    "os_exit",
    "forged",
    "fork_bomb",
    "fork_explosion",
    "memory_bomb",
    "memory_family",
    "stdout_300_kb",
    "crash",
    "daemon",
)
QUICK += ("kills_parent", "network", "symlink", "reads_answers", "writes_root", "unshare", "control_socket")


def say(text):
    return Completion((1,), (0.0,), text, "stop")


def row(id="row", question="?", answer="", **columns):
    example = Example(id, question, answer, columns)
    return Prompt(example, (1,), question)


def doubling(count=1):
    tests = [{"type": "stdin_stdout", "input": f"{21 + i}\n", "output": f"{42 + 2 * i}\n"} for i in range(count)]
    return row(tests=json.dumps(tests))


def made(**settings):
    try:
        return CodeTests(**settings)
    except IsolationError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def reward():
    reward = made(test_seconds=3, total_seconds=12, memory_mb=512)
    yield reward
    reward.close()


def graded(reward, prompt, *programs):
    return reward([prompt] * len(programs), [say(p) for p in programs])


def check_programs(reward, programs, tmp_path):
    secret = tmp_path / "answers.json"
    secret.write_text("42")
    secret.chmod(0o644)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        texts = [
            p[0].replace("SECRET", str(secret)).replace("PORT", str(listener.getsockname()[1]))
            for p in programs.values()
        ]
        verdicts = graded(reward, doubling(2), *(f"```python\n{text}\n```" for text in texts))
    for (name, (_, right, why)), verdict in zip(programs.items(), verdicts, strict=True):
        assert verdict.kind == ("correct" if right else "incorrect"), (name, verdict)
        assert why in verdict.reason, (name, verdict)


def left_behind(reward):
    return [pid for worker in reward.pool.pids() for pid in descendants(worker)]


def test_programs_by_standard_input(reward, tmp_path):
    check_programs(reward, PLAIN, tmp_path)


def test_hostile_programs(reward, tmp_path):
    check_programs(reward, {name: HOSTILE[name] for name in QUICK}, tmp_path)
    assert not left_behind(reward)


@pytest.mark.slow
def test_every_hostile_program(reward, tmp_path):
    check_programs(reward, HOSTILE, tmp_path)
    assert not left_behind(reward)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_thousand_hostile_programs_leave_nothing(tmp_path):
    reward = made(test_seconds=1, total_seconds=2, memory_mb=256)
    names = [name for name in HOSTILE if name not in ("network", "symlink", "reads_answers")]
    texts = [HOSTILE[names[i % len(names)]][0] for i in range(1000)]

    def pace():
        start = time.perf_counter()
        assert [v.kind for v in graded(reward, doubling(), *[f"```\n{GOOD}\n```"] * 20)] == ["correct"] * 20
        return time.perf_counter() - start

    def seen():
        mounts = Path("/proc/mounts").read_text().count("\n")
        return mounts, set(os.listdir("/tmp")), set(os.listdir("/dev/shm")), sorted(os.listdir("/"))

    try:
        pace()
        before, held = pace(), seen()
        for start in range(0, 1000, 100):
            verdicts = graded(reward, doubling(), *(f"```\n{t}\n```" for t in texts[start : start + 100]))
            assert "none" not in {v.kind for v in verdicts}
        assert not left_behind(reward)
        after, left = pace(), seen()
    finally:
        reward.close()
    assert left[0] == held[0]
    assert left[3] == held[3]
    assert not [name for name in (left[1] - held[1]) | (left[2] - held[2]) if "gapo-lit" in name]
    assert after < 5 * before, (before, after)  # a ratio within one run; a slow leak would make it grow without bound


TRAINER = """
from gapo_lit.rewards.pool import WorkerPool
pool = WorkerPool("gapo_lit.rewards.code_worker", workers=2, time_limit=100, memory_mb=256)
isolation = pool.map([{"do": "isolate", "packages": [], "required": True}])[0]["isolation"]
program = "import os, time\\nfor _ in range(3):\\n    if os.fork() == 0: os.setsid()\\ntime.sleep(60)"
request = {
    "do": "grade", "program": program, "prefix": 0, "isolation": isolation, "fraction": False, "tolerance": 0,
    "test_seconds": 60, "limits": {"seconds": 60, "memory_mb": 512, "file_mb": 9, "processes": 9},
    "task": {"kind": "stdin", "tests": [["1", "2"]], "names": False, "atol": 0},
}
print(*pool.pids(), flush=True)
pool.map([request] * 2)
"""


def test_a_trainer_that_is_stopped_leaves_no_program(reward):
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
    trainers = [
        subprocess.Popen([sys.executable, "-c", TRAINER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for _ in signals
    ]
    try:
        for trainer in trainers:
            worker = int(trainer.stdout.readline().split()[0])
            wait_for(lambda worker=worker: len(descendants(worker)) >= 6)
        everything = {pid: born(pid) for trainer in trainers for pid in descendants(trainer.pid)}
        for trainer, number in zip(trainers, signals, strict=True):
            trainer.send_signal(number)
            trainer.wait(30)
        wait_for(lambda: not [pid for pid, at in everything.items() if at is not None and born(pid) == at])
    finally:
        for trainer in trainers:
            trainer.kill()
            trainer.wait()
            trainer.stdout.close()


def born(pid):
    """When a process started, in ticks since boot: its number may come again. None for one that is no more."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state == "Z" else int(fields[18])


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_less_than_isolation_is_said(monkeypatch):
    weak = Isolation("limits only", user=61200, missing="no namespaces").to_json()
    monkeypatch.setattr(WorkerPool, "map", lambda self, requests: [{"isolation": weak}])
    with pytest.warns(UserWarning, match=r"limits only, as uid 61200 \(no namespaces\): they can read"):
        assert CodeTests(require_isolation=False).isolation.level == "limits only"
    monkeypatch.setattr(WorkerPool, "map", lambda self, requests: [{"failure": "cannot be isolated here"}])
    with pytest.raises(IsolationError, match="cannot be isolated here"):
        CodeTests()


def test_every_worker_and_sandbox_ends_with_the_reward():
    reward = made()
    graded(reward, doubling(), f"```\n{GOOD}\n```")
    workers = reward.pool.pids()
    reward.close()
    reward.close()
    assert workers
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)


def test_other_samples_and_threads_are_untouched(reward):
    results = {}

    def work(name):
        results[name] = graded(reward, doubling(), HOSTILE["fork_explosion"][0], GOOD, HOSTILE["os_exit"][0], GOOD)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [[v.kind for v in results[i]] for i in range(2)] == [["incorrect", "correct"] * 2] * 2


def test_a_fraction_of_the_tests():
    reward = made(fraction=True, test_seconds=1, total_seconds=20)
    prompt = doubling(4)
    try:
        half = "n = int(input())\nwhile n == 22: pass\nassert n != 24\nprint(2 * n)"
        verdict, whole = graded(reward, prompt, f"```\n{half}\n```", f"```\n{GOOD}\n```")
        assert (verdict.kind, verdict.score) == ("incorrect", 0.5)
        assert verdict.reason == "test 2: time limit of 1 s"
        assert (whole.kind, whole.score) == ("correct", 1.0)
    finally:
        reward.close()


def test_the_total_time_is_limited():
    reward = made(test_seconds=1, total_seconds=1.5)
    try:
        (verdict,) = graded(reward, doubling(9), f"```\nimport time\ntime.sleep(0.6)\n{GOOD}\n```")
        assert verdict.kind == "incorrect"
        assert verdict.reason.endswith("time limit of 1.5 s")
    finally:
        reward.close()


FLOATS = row(tests={"inputs": [["1", "2"]], "outputs": ["0.333333333 10\nabc  \n"]})


OUTPUTS = [
    ("0.333333334 10\nabc", True),
    ("0.3333333331 10\n abc\n\n", True),
    ("3.33333333e-1  10\nabc", True),
    ("0.3334 10\nabc", False),
    ("0.333333333 10.0\nabc", True),
    ("0.333333333 10.001\nabc", False),
    ("0.333333333 11\nabc", False),
    ("0.333333333 10\nABC", False),
    ("0.333333333\n10\nabc", False),
    ("nan 10\nabc", False),
]


@pytest.mark.parametrize(("output", "right"), OUTPUTS)
def test_outputs_are_compared_as_numbers_and_words(output, right):
    assert same_output("0.333333333 10\nabc  \n", output, 1e-6) == right


def test_floats_and_blanks_of_a_program(reward):
    near, far = graded(reward, FLOATS, *(f"```\nprint('0.333333{c}34 10 \\nabc\\n')\n```" for c in "34"))
    assert (near.kind, far.kind) == ("correct", "correct")
    assert graded(reward, FLOATS, "```\nprint('0.34 10 \\nabc')\n```")[0].kind == "incorrect"


def test_integers_of_more_than_4300_digits(reward):
    prompt = row(tests=[{"input": "5000\n", "output": "1" + "0" * 5000}])
    right, wrong = graded(
        reward, prompt, "```\nprint(10 ** int(input()))\n```", "```\nprint(10 ** int(input()) + 1)\n```"
    )
    assert (right.kind, wrong.kind) == ("correct", "incorrect")
    big = "9" * 5000
    prompt = row(tests=json.dumps({"fn_name": "f", "inputs": [[1]], "outputs": []})[:-3] + f"[{big}]}}")
    right, wrong = graded(
        reward, prompt, "```\ndef f(x): return 10**5000 - x\n```", "```\ndef f(x): return 10**5000\n```"
    )
    assert (right.kind, wrong.kind) == ("correct", "incorrect")


CALLS = row(tests=json.dumps({"fn_name": "f", "inputs": [[3], [4]], "outputs": [[[3, {"3": 0.5}]], [[4, {"4": 0.5}]]]}))


CALLERS = (
    [
        ("def f(x): return [x, {x: 0.5 + 1e-9}]", True, ""),
        ("class Solution:\n    def f(self, x: int) -> List[int]: return (x, {str(x): 0.5})", True, ""),
        ("from collections import Counter\ndef f(x): return [x, Counter({x: 0.5})]", True, ""),
        ("class N(int):\n    def __eq__(self, other): return True\n    __hash__ = int.__hash__\n"
         "def f(x): return [N(7), {x: 0.5}]", False, "wrong output"),
        ("class A:\n    def __eq__(self, other): return True\ndef f(x): return A()", False, "A is no plain value"),
        ("def f(x): return (i for i in range(x))", False, "generator is no plain value"),
        ("def f(x): exit(0)", False, "SystemExit"),
        ("import os\ndef f(x): os._exit(0)", False, "ended with status 0"),
        ("exit(0)", False, "does not load: SystemExit"),
        ("import os\nos._exit(0)", False, "does not load"),
        ("def g(x): return x", False, "NameError"),
        ("def f(x):\n    a = []\n    a.append(a)\n    return a", False, "ValueError"),
        ("def f(x):\n    a = 1\n    for _ in range(99): a = [a, a]\n    return a", False, ""),
        ("import os\ndef f(x):\n    for fd in range(3, 99):\n        try: os.write(fd, (16).to_bytes(8, 'big')"
         " + b'{\"failed\":  null}')\n        except OSError: pass", False, ""),
        ("def f(x): print('x' * 10**6); return [x, {x: 0.5}]", True, ""),
        ("import gc\ndef f(x): return [o for o in gc.get_objects() if o == [3, {'3': 0.5}]][:1] or 0", False,
         "wrong output"),
        ("import builtins\nbuiltins.isinstance = lambda *a: True\ndef f(x): return 0", False, ""),
    ]
)  # fmt: skip


def compare(verdicts, table):
    for verdict, (program, right, why) in zip(verdicts, table, strict=True):
        assert verdict.kind == ("correct" if right else "incorrect"), (program, verdict)
        assert why in verdict.reason, (program, verdict)


def test_calls_of_a_function(reward):
    compare(graded(reward, CALLS, *(f"```python\n{program}\n```" for program, _, _ in CALLERS)), CALLERS)


HEAD = 'def double(x):\n    """Twice x."""\n    return 2 * x\n\n\ndef half(x: float):\n    """Half of x."""\n'
CHECK = (
    "SECRET = 1234\ndef check(candidate):\n    for x in range(5):\n        assert double(candidate(x)) == x\n"
    "    assert candidate(-1) == -0.5\n"
)
HALF = row(question=HEAD, prompt=HEAD, test=CHECK, entry_point="half")


HALVES = (
    [
        ("    return x / 2\n", True, ""),
        ("    return x / 2\n\nSo this halves x, as asked.\n\nprint(", True, ""),
        ("```python\ndef half(x):\n    return x / 2\n```", True, ""),
        ("Here:\n```py\n    return x / 2\n```\nor, in C:\n```c\nreturn 0;\n```", True, ""),
        ("<think>```python\n1/0\n```</think>\n```\ndef half(x):\n    return double(x) / 4\n```", True, ""),
        ("    pass\n", False, "TypeError"),
        ("    return 0\n\ndef double(x): return x\n", False, "AssertionError"),
        ("    import sys; sys.exit(0)\n", False, "SystemExit"),
        ("    import os; os._exit(0)\n", False, "ended"),
        ("    print('PASSED'); raise SystemExit(0)\n", False, "SystemExit"),
        ("    class E:\n        __eq__ = __mul__ = __rmul__ = lambda *a: True\n    return E()\n", False, "TypeError"),
        ("    import builtins; builtins.AssertionError = Exception; return 3\n", False, "AssertionError"),
        ("    import sys\n    f = sys._getframe()\n    while f: f.f_globals.update(check=lambda c: 1); f = f.f_back\n"
         "    return 7\n", False, "AssertionError"),
        ("    import glob\n    for p in glob.glob('/proc/*/mem'):\n        try: open(p, 'rb').read(9)\n"
         "        except OSError: pass\n    return 8\n", False, "AssertionError"),
        ("    while True: pass\n", False, "time limit"),
        ("", False, "no program"),
    ]
)  # fmt: skip


def test_test_code_cannot_be_reached(reward):
    compare(graded(reward, HALF, *(text for text, _, _ in HALVES)), HALVES)


def test_a_test_that_does_not_run_is_no_verdict(reward):
    for test in (
        "import no_such_module\ndef check(candidate): pass",
        "def check(candidate): unknown(candidate)",
        "1 +",
    ):
        (verdict,) = graded(reward, row(prompt=HEAD, test=test, entry_point="half"), "    return 1\n")
        assert verdict.kind == "none", verdict


def test_numpy_is_there_for_tests_and_programs(reward):
    test = "import numpy as np\ndef check(candidate):\n    for x in [1, 3]: assert np.allclose(candidate(x), x / 2)\n"
    prompt = row(prompt=HEAD, test=test, entry_point="half")
    body = "    import numpy as np\n    return np.{kind}(x) / 2\n"
    number, array = graded(reward, prompt, body.format(kind="float32"), body.format(kind="array([x]).repeat"))
    assert number.kind == "correct", number
    assert array.kind == "incorrect"


def test_outputs_of_a_reference_solution(reward):
    columns = {
        "prompt": HEAD,
        "base_input": [[1.0], [3]],
        "plus_input": [[10**20]],
        "entry_point": "half",
        "atol": 1e-3,
    }
    prompt = row("a", answer="    return x / 2\n", **columns)
    bodies = ("x * 0.5", "x / 2 + 9e-4", "x / 2 + 2", "str(x / 2)")
    right, near, wrong, typed = graded(reward, prompt, *(f"    return {body}\n" for body in bodies))
    assert [v.kind for v in (right, near, wrong, typed)] == ["correct", "correct", "incorrect", "incorrect"]
    (broken,) = graded(reward, row("b", answer="    return 1 / 0\n", **columns), "    return x / 2\n")
    assert broken.kind == "none"
    assert "reference solution" in broken.reason


def livecodebench(tests, name="", private=None):
    packed = base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests) if private is None else private))).decode()
    metadata = json.dumps({"func_name": name} if name else {})
    return row(public_test_cases=json.dumps(tests[:1]), private_test_cases=packed, metadata=metadata, starter_code="")


def test_livecodebench_rows(reward):
    tests = [{"input": f"{i}\n", "output": f"{2 * i}\n", "testtype": "stdin"} for i in range(3)]
    right, wrong = graded(reward, livecodebench(tests), f"```python\n{GOOD}\n```", "```python\nprint(0)\n```")
    assert (right.kind, wrong.kind) == ("correct", "incorrect")
    assert wrong.reason.startswith("test 3")  # after the public one and the private zero
    tests = [{"input": f'[{i}, 2]\n"a"', "output": f'["a", {i}]', "testtype": "functional"} for i in range(3)]
    program = "```python\nclass Solution:\n    def put(self, xs: List[int], s: str): return s, xs[0]\n```"
    (verdict,) = graded(reward, livecodebench(tests, "put"), program)
    assert verdict.kind == "correct", verdict


class Harm:
    def __reduce__(self):
        return os.system, ("touch harmed",)


@pytest.mark.parametrize(
    ("prompt", "problem"),
    [
        (row(), "hold no tests"),
        (row(tests="[]"), "no tests"),
        (row(tests="[1"), "no JSON"),
        (row(tests='{"inputs": ["1"], "outputs": []}'), "1 inputs but 0 outputs"),
        (row(tests=[{"input": "1"}]), "without input and output"),
        (row(tests=[{"input": "1", "output": "1", "type": "magic"}]), "unknown type"),
        (row(tests=[{"input": "1", "output": "1", "type": "function_call"}]), "name one function"),
        (row(prompt="", test=" ", entry_point="f"), "test is empty"),
        (row(prompt="", base_input=[], plus_input=[], entry_point="f"), "no reference"),
        (livecodebench([], private=Harm()), "could run code"),
        (livecodebench([], private=3), "pickled int"),
        (row(public_test_cases="[]", private_test_cases="?"), "cannot be read"),
    ],
)
def test_rows_without_tests_are_refused(reward, prompt, problem, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=problem):
        reward.check([prompt.example])
    assert not list(tmp_path.iterdir())


def test_check_names_the_rows(reward):
    with pytest.raises(ValueError, match=r"1 of 2 rows cannot be graded: broken: no tests.*drop these rows"):
        reward.check([doubling().example, row("broken", tests=[]).example])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layout": "mbpp"}, "layout='mbpp'"),
        ({"extract": "all"}, "extract='all'"),
        ({"test_seconds": 0}, "test_seconds=0"),
        ({"test_seconds": 9, "total_seconds": 3}, "test_seconds <= total_seconds"),
        ({"memory_mb": 8}, "memory_mb=8"),
        ({"processes": 0}, "processes=0"),
        ({"file_mb": 0}, "file_mb=0"),
        ({"tolerance": -1}, "tolerance=-1"),
        ({"max_tests": 0}, "max_tests=0"),
        ({"workers": 0}, "workers=0"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(ValueError, match=message):
        CodeTests(**settings)


def humaneval(name):
    path = DATA / f"{name}.jsonl"
    if not path.is_file():
        pytest.skip(f"{path.name} is not beside the project")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [row(r.pop("id"), r["prompt"], r.pop("answer"), **r) for r in rows]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["humaneval", "humaneval_plus_mini"])
def test_references_pass_and_empty_bodies_fail(reward, name):
    prompts = humaneval(name)
    assert len(prompts) == 164
    reward.check([p.example for p in prompts])
    right = reward(prompts, [say(p.example.answer) for p in prompts])
    assert [p.id for p, v in zip(prompts, right, strict=True) if v.kind != "correct"] == []
    empty = reward(prompts, [say("    pass\n") for _ in prompts])
    assert [p.id for p, v in zip(prompts, empty, strict=True) if v.kind != "incorrect"] == []


@pytest.mark.parametrize("name", ["humaneval", "humaneval_plus_mini"])
def test_rows_whose_tests_need_the_prompts_helpers(reward, name):
    prompts = [p for p in humaneval(name) if p.id.partition("/")[2] in ("32", "33", "38", "50", "53")]
    right = reward(prompts, [say(p.example.answer) for p in prompts])
    empty = reward(prompts, [say("    pass\n") for _ in prompts])
    assert [v.kind for v in right + empty] == ["correct"] * 5 + ["incorrect"] * 5
