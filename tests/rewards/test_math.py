import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gapo_lit.rewards.math import MathVerify
from gapo_lit.rewards.pool import WorkerPool
from gapo_lit.types import Completion, Example, Prompt

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"
LIMIT = 60.0  # for everything but the tests of the limit itself: the machine may be busy


def ask(gold: str) -> Prompt:
    return Prompt(Example("row", "?", gold), (1,), "?")


def say(text: str) -> Completion:
    return Completion((1,), (0.0,), text, "stop")


@pytest.fixture(scope="module")
def reward():
    reward = MathVerify(workers=2, time_limit=LIMIT)
    yield reward
    reward.close()


def graded(reward: MathVerify, gold: str, *texts: str) -> list[str]:
    return [v.kind for v in reward([ask(gold)] * len(texts), [say(t) for t in texts])]


COMPLETIONS = [  # gold, whole completion, right
    ("3", r"the answer is \boxed{2}. wait, actually \boxed{3}", True),
    ("7", r"First I get \boxed{5}. Wrong; the answer is \boxed{7}.", True),
    ("4", r"\boxed{004} … sums to 2,552,004 … Final: \boxed{004}", True),
    ("3,5,7", r"\boxed{3}, \boxed{5}, \boxed{7}", True),
    ("3", r"\boxed{3} or \boxed{4}", False),
    ("2, 3", r"so $x = \boxed{2}$ or $x = \boxed{3}$.", True),
    ("5", r"\boxed{\boxed{5}}", True),
    ("5", r"The answer is 5, but is it? \boxed{6}", False),
    ("72", "She sold 48 + 24 = 72 clips in total.", True),
    ("72", "48 + 24 = <<48+24=72>>72\n#### 72", True),
    ("12", "He pays $5 and then $12.", True),
    ("5", "The answer is $5$ because $2+3=5$ and 1 < 2", True),
    (r"4\sqrt{2}", r"The answer is 4\sqrt{2} cm.", True),
    ("4", r"The answer is 4\sqrt{2} cm.", False),
    ("5", "Answer:\n**5**", True),
    ("5", "", False),
    ("5", r"\boxed{}", False),
    ("5", "I do not know", False),
]

ANSWERS = [  # gold, answer, right; each tried in several wordings
    ("2", "2 2/3", False),
    ("10", "4 10/3", False),
    ("2.5", r"2\frac{1}{2}", True),
    ("2 2/3", r"\frac{8}{3}", True),
    ("22/3", "2 2/3", False),
    (r"\frac{1}{2004!}", r"\frac{1}{2006!}", False),
    (r"\frac{1}{2004!}", r"\frac{1}{2004!}", True),
    (r"1, 2, \ldots, n", r"1, 3, 5, \ldots, 2n-1", False),
    (r"1, 2, \ldots, n", r"1,2,\dots,n", True),
    (r"\pm 2021", "-2021, 2021", True),
    (r"\sqrt{1/n}", r"\frac{1}{\sqrt{n}}", True),
    ("x", r"\sqrt{x^2}", False),
    ("4", r"4\sqrt{2}", False),
    (r"(3, \frac{\pi}{2})", r"(3, \frac{2\pi}{3})", False),
    ("2x+4y-3=0", r"y = -\frac{1}{2}x + \frac{3}{4}", True),
    ("115,000", "115000", True),
    ("27,93", "2793", False),
    (r"50\%", "50%", True),
    (r"3\sqrt{13}", "3", False),
    ("3.83e35", r"3.83 \times 10^{35}", True),
    ("6.63e-34", "1e-30", False),
    ("0", "0.0000000001", False),
    ("1/3", "0.333333", True),
    (r"\hbar \omega(v+1 / 2)-\frac{E_{0}^{2} e^{2}}{2 m \omega^{2}}", "2", False),
    ("1", "9^{9^{9^9}}", False),
    ("1", "5^{5^{5^{5^{5^5}}}}", False),
    ("1", "(x+1)^{999999999}", False),
    ("1", "(9^9)!", False),
    ("1", "9**9**9**9", False),
    (r"\frac{1}{3}", r"\frac{1}{3}", True),
    (r"\text{Evelyn}", "Evelyn", True),
    ("5", "x=5", True),
    ("x=5", "5", True),
]


@pytest.mark.parametrize(("gold", "text", "right"), COMPLETIONS)
def test_the_last_answer_of_a_completion_counts(reward, gold, text, right):
    assert graded(reward, gold, text) == ["correct" if right else "incorrect"]


@pytest.mark.parametrize(("gold", "answer", "right"), ANSWERS)
def test_verdicts(reward, gold, answer, right):
    wordings = (r"Hence \boxed{%s}.", "%s", "So it is $%s$.", "The answer is %s.", r"**Answer:** \(%s\)")
    assert graded(reward, gold, *(w % answer for w in wordings)) == ["correct" if right else "incorrect"] * 5


@pytest.mark.parametrize("form", ["__import__('os').system('touch %s')", "().__class__.__base__.__subclasses__() # %s"])
def test_python_is_never_run(reward, tmp_path, form):
    mark = tmp_path / "M"
    code = form % mark
    texts = [w % code for w in (r"\boxed{%s}", "%s", "The answer is $%s$", r"\boxed{\text{%s}}", r"\boxed{1, %s}")]
    assert graded(reward, "1", *texts) == ["incorrect"] * 5
    assert not mark.exists()


@pytest.mark.parametrize(
    "hostile",
    [
        "9" * 300_000,
        "1 " * 150_000,
        "$" * 300_000,
        r"\(" * 150_000,
        "the answer is " * 20_000,
        r"\boxed{" * 50_000,
        r"\boxed{" * 900 + "1" + "}" * 900,
        r"\boxed{" + "(" * 900 + "}",
        r"\boxed{" + "{" * 900 + "1" + "}" * 901,
        r"\boxed{" + "1-(" * 7 + "1" + ")" * 7 + "}",
        r"\boxed{" + "1+" * 300 + "1}",
        r"\boxed{" + "|" * 200 + "}",
    ],
)
def test_hostile_text_gets_a_verdict_in_bounded_time(reward, hostile):
    start = time.monotonic()
    assert graded(reward, "7", hostile) == ["incorrect"]
    assert time.monotonic() - start < 20


def test_order_is_kept(reward):
    golds = [str(i) for i in range(40)]
    texts = [rf"\boxed{{\frac{{{2 * (i if i % 3 else i + 1)}}}{{2}}}}" for i in range(40)]
    verdicts = reward([ask(g) for g in golds], [say(t) for t in texts])
    assert [v.score for v in verdicts] == [float(i % 3 != 0) for i in range(40)]


def test_verdicts_from_other_threads(reward):
    found = {}

    def work(name):
        found[name] = graded(reward, r"\frac{1}{3}", r"\boxed{\frac{1}{3}}", r"\boxed{\frac{2}{3}}")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {i: ["correct", "incorrect"] for i in range(3)}


def test_a_killed_worker_costs_its_own_verdict_only():
    reward = MathVerify(workers=1, time_limit=LIMIT)
    try:
        assert graded(reward, "1", r"\boxed{1}") == ["correct"]
        (pid,) = reward.pool.pids()
        os.kill(pid, signal.SIGSTOP)  # so that it is at its request when it is killed
        threading.Timer(0.5, os.kill, (pid, signal.SIGKILL)).start()
        verdicts = reward([ask("1")] * 3, [say(r"\boxed{1}")] * 3)
        assert [v.kind for v in verdicts] == ["none", "correct", "correct"]
        assert "worker died" in verdicts[0].reason
        (pid,) = reward.pool.pids()
        os.kill(pid, signal.SIGKILL)  # dead while idle: nobody's verdict
        time.sleep(0.2)
        assert graded(reward, "1", r"\boxed{1}") == ["correct"]
    finally:
        reward.close()


def test_the_time_limit_gives_no_verdict_and_spares_the_others():
    reward = MathVerify(workers=1, time_limit=1.5)
    try:
        assert "correct" in graded(reward, "1", r"\boxed{1}")
        os.kill(reward.pool.pids()[0], signal.SIGSTOP)  # a verdict that never comes
        start = time.monotonic()
        verdicts = reward([ask("1")] * 2, [say(r"\boxed{1}")] * 2)
        assert time.monotonic() - start < 30
        assert (verdicts[0].kind, verdicts[0].reason) == ("none", "time limit of 1.5 s")
        assert verdicts[1].kind == "correct"
    finally:
        reward.close()


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


def _gone(pids: list[int]) -> bool:
    deadline = time.monotonic() + 20
    while any(map(_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(map(_alive, pids))


def test_close_leaves_no_process_and_the_reward_works_again():
    reward = MathVerify(workers=2, time_limit=LIMIT)
    assert reward.pool.pids() == []  # lazily
    graded(reward, "1", "1", "2")
    first = reward.pool.pids()
    assert len(first) == 2
    reward.close()
    reward.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in first)
    assert graded(reward, "1", "1") == ["correct"]
    second = reward.pool.pids()
    del reward  # and the garbage collector closes it too
    assert not any(Path(f"/proc/{pid}").exists() for pid in second)


@pytest.mark.parametrize("end", ["pass", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"])
def test_an_interpreter_that_ends_leaves_no_process(end):
    # Light stand-ins for prompts: the pool itself, without torch. Workers must not load it either.
    code = (
        "from gapo_lit.rewards.pool import WorkerPool\n"
        "import sys\n"
        "pool = WorkerPool('gapo_lit.rewards.math_worker', workers=1, time_limit=60, memory_mb=2048)\n"
        "print(pool.map([{'gold': '1', 'text': '1'}]), pool.pids()[0], 'torch' in sys.modules, flush=True)\n"
        f"{end}\n"
    )
    root = str(Path(__file__).resolve().parents[2])
    env = {**os.environ, "PYTHONPATH": root}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=100, check=False
    )
    answer, pid, torch = done.stdout.rsplit(maxsplit=2)
    assert "'right': True" in answer
    assert torch == "False"
    assert _gone([int(pid)])


def test_workers_load_no_torch(reward):
    graded(reward, "1", "1", "1")
    for pid in reward.pool.pids():
        assert "torch" not in Path(f"/proc/{pid}/maps").read_text()


def test_a_worker_that_cannot_start_is_an_error():
    pool = WorkerPool("gapo_lit.rewards.no_such_worker", workers=1, time_limit=1, memory_mb=2048)
    with pytest.raises(RuntimeError, match="did not start"):
        pool.map([{}])
    assert pool.pids() == []


@pytest.mark.parametrize(
    "settings", [{"workers": 0}, {"time_limit": 0}, {"time_limit": float("nan")}, {"memory_mb": 1}]
)
def test_bad_settings_are_refused(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        MathVerify(**settings)


def test_check_names_golds_that_are_empty_or_cut_off():
    rows = [
        Example("a", "?", r"\frac{1}{2}"),
        Example("b", "?", " $ $ "),
        Example("c", "?", r"\frac{2 k}{n"),
        Example("d", "?", "[0, 1)"),
    ]
    with pytest.raises(ValueError, match=r"2 of 4 .*b: empty.*c: braces do not balance"):
        MathVerify().check(rows)


def rows_of(name: str) -> list[Example]:
    if not (DATA / name).exists():
        pytest.skip(f"{name} is not beside this checkout")
    rows = [json.loads(line) for line in (DATA / name).read_text().splitlines()]
    return [Example(r["id"], r["prompt"], r["answer"]) for r in rows]


def test_check_of_a_training_set_with_known_faults():
    with pytest.raises(ValueError, match=r"2 of 1209 .*dsr-sub-265: empty.*dsr-sub-1187: braces"):
        MathVerify().check(rows_of("deepscaler_sub.jsonl"))
    for name in ("math500.jsonl", "aime24.jsonl", "olympiadbench.jsonl", "gsm8k_test.jsonl"):
        MathVerify().check(rows_of(name))
