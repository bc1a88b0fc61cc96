"""What is vLLM's alone: a cache too small for the batch, a failing start, what it leaves of the process, two ranks."""

from __future__ import annotations

import gc
import importlib.util
import os
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
import torch
from torch import distributed

from gapo_lit.rollout import EngineError, VLLMEngine
from gapo_lit.types import Sampling
from tests.tiny import tiny_model

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vllm is not installed")


def test_preempted_requests_resume_their_own_random_stream_and_closing_frees_the_process(tmp_path: Path) -> None:
    """A cache of four blocks of 128 tokens cannot hold eight growing completions; one with room gives the same ones.

    A budget of 256 tokens a step cannot take three prompts either: they must wait, not be computed in parts.
    """
    folder = str(tiny_model(tmp_path, spread=0.05))
    threads, environment = torch.set_num_threads, dict(os.environ)
    drawn = []
    for gib in (2**18 / 2**30, 0.0625):
        budget = {"max_num_batched_tokens": 256} if gib < 0.01 else {}
        engine = VLLMEngine(folder, max_model_len=256, max_num_seqs=8, kv_cache_gib=gib, extra=budget)
        engine.start()
        assert torch.set_num_threads is threads
        preemptions = count_preemptions(engine)
        groups = engine.generate([(7,) * 100, (9,) * 110], Sampling(1.0, 60), 4, [1000, 2000])
        drawn.append([[completion.token_ids for completion in group] for group in groups])
        assert bool(preemptions) == (gib < 0.01)
        model = weakref.ref(engine._llm.llm_engine.model_executor.driver_worker.worker.model_runner.get_model())
        preemptions.clear()
        engine.close()
        gc.collect()
        assert model() is None
        assert not distributed.is_initialized()
    assert drawn[0] == drawn[1]
    for name in ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "LD_PRELOAD"):
        assert os.environ.get(name) == environment.get(name)


def count_preemptions(engine: VLLMEngine) -> list[str]:
    scheduler = engine._llm.llm_engine.engine_core.engine_core.scheduler
    preempt, seen = scheduler._preempt_request, []

    def counting(request, *args, **kwargs):
        seen.append(request.request_id)
        return preempt(request, *args, **kwargs)

    scheduler._preempt_request = counting
    return seen


def test_a_start_that_fails_says_what_vllm_said_and_leaves_nothing(tmp_path: Path) -> None:
    folder = str(tiny_model(tmp_path))
    engine = VLLMEngine(folder, extra={"kv_cache_memory_bytes": 1024})
    with pytest.raises(EngineError, match=r"vLLM could not start"):
        engine.start()
    assert not distributed.is_initialized()
    engine.close()


def test_each_of_two_ranks_follows_a_sharded_policy(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    worker = Path(__file__).with_name("sharded_worker.py")
    done = subprocess.run(
        [*torchrun, str(worker), str(folder)], env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "rank 0 gap" in done.stdout
    assert "rank 1 gap" in done.stdout
