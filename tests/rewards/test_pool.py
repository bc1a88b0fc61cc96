import os
import signal
import sys
import threading
import time

import pytest

from gapo_lit.rewards.pool import WorkerPool

WORKER = """
import os, time
from gapo_lit.rewards.worker import serve

def answer(request):
    if request["do"] == "hang":
        time.sleep(1000)
    if request["do"] == "die":
        os._exit(3)
    if request["do"] == "explode":
        bytearray(1 << 40)
    if request["do"] == "write":
        open(request["path"], "w").close()
    return {"said": request["do"]}

serve(answer, guarded=GUARDED)
"""


@pytest.fixture
def pool_of(tmp_path, monkeypatch):
    pools = []

    def make(*, guarded: bool = True, **settings) -> WorkerPool:
        (tmp_path / "echo_worker.py").write_text(WORKER.replace("GUARDED", str(guarded)))
        monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
        pools.append(WorkerPool("echo_worker", **{"workers": 2, "time_limit": 60.0, "memory_mb": 512, **settings}))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def ask(pool: WorkerPool, *requests: str) -> list[str]:
    return [a.get("said", a.get("failure")) for a in pool.map([{"do": r} for r in requests])]


def test_a_request_that_dies_or_explodes_costs_its_own_answer_only(pool_of):
    pool = pool_of()
    said = ask(pool, "a", "die", "b", "explode", "c")
    assert said[::2] == ["a", "b", "c"]
    assert all("worker died" in s for s in said[1::2])
    assert len(pool.pids()) <= 2


def test_order_is_kept_from_many_threads(pool_of):
    pool = pool_of()
    found = {}

    def work(name):
        found[name] = ask(pool, *(f"{name}-{i}" for i in range(50)))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: [f"{n}-{i}" for i in range(50)] for n in range(6)}
    assert len(pool.pids()) == 2


def test_overruns_have_a_budget_for_the_whole_map(pool_of):
    pool = pool_of(workers=1, time_limit=0.3, budget=0.5)
    said = ask(pool, "hang", "hang", "a", "hang", "b")
    assert said[:2] == ["time limit of 0.3 s"] * 2
    assert all(s.startswith("not graded") for s in said[2:])
    assert ask(pool, "a", "b") == ["a", "b"]  # the next map has a budget of its own


def test_a_hanging_map_ends_with_an_interrupt_and_leaves_no_worker(pool_of):
    pool = pool_of(workers=1)
    ask(pool, "a")
    (pid,) = pool.pids()
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        ask(pool, "hang")
    assert time.monotonic() - start < 50
    assert pool.pids() == []
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert ask(pool, "b") == ["b"]


@pytest.mark.parametrize("guarded", [True, False])
def test_only_a_worker_without_guard_may_write(pool_of, tmp_path, guarded):
    (answer,) = pool_of(guarded=guarded).map([{"do": "write", "path": str(tmp_path / "M")}])
    assert ("failure" in answer) == guarded
    assert (tmp_path / "M").exists() != guarded
