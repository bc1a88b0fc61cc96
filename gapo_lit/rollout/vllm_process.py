"""What vLLM does to the process that holds it, and how the trainer is kept out of it."""

from __future__ import annotations

import gc
import importlib
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import distributed

from gapo_lit.rollout.engine import EngineError

# What launchers and child processes read, and vLLM sets while it starts.
_LAUNCHER_VARIABLES = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "LD_PRELOAD")


def import_vllm() -> Any:
    """Import vLLM for use in this process, without its log below errors unless VLLM_LOGGING_LEVEL is set.

    Raises ImportError naming the remedies where it cannot be imported.
    """
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # in this process: weights are handed over without a copy
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    if not chatty():
        os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
    try:
        vllm = importlib.import_module("vllm")
        importlib.import_module("vllm.entrypoints.llm")  # vllm itself imports its parts late
    except ImportError as error:
        raise ImportError(
            f"VLLMEngine needs vllm, which could not be imported ({error}); install gapo-lit[cpu] on a machine without "
            "a GPU or gapo-lit[gpu] on one with a GPU, or choose TransformersEngine, which needs neither"
        ) from error
    if not chatty():
        logging.getLogger("vllm").setLevel(logging.ERROR)  # where vllm was imported before, with another setting
    return vllm


def chatty() -> bool:
    """Whether the user asked for vLLM's own log."""
    return os.environ.get("VLLM_LOGGING_LEVEL", "ERROR") != "ERROR"


def check_process_group() -> None:
    """Raise EngineError where vLLM would make the process group that the trainer is yet to make."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world > 1 and not distributed.is_initialized():
        raise EngineError(
            f"WORLD_SIZE={world} but there is no process group yet; vLLM would make one of size 1, and the trainer "
            "would then train every rank on its own. Start the engine after the trainer has set up its strategy"
        )


def check_device() -> None:
    """Raise EngineError where vLLM, alone in its run, would take another GPU than the trainer's: it takes the first."""
    alone = not distributed.is_initialized() or distributed.get_world_size() == 1
    if alone and torch.cuda.is_available() and (device := torch.cuda.current_device()) > 0:
        raise EngineError(
            f"the trainer is on GPU {device}, but with a single process vLLM takes the first GPU it sees; give "
            f"CUDA_VISIBLE_DEVICES={device} and trainer.devices: 1, or choose TransformersEngine"
        )


@contextmanager
def launched(*, own_cache: bool) -> Iterator[None]:
    """Give vLLM's launcher what it reads, and leave nothing behind for Lightning or child processes to stumble over.

    own_cache: hide the environment variable that would win over the engine's own cache size.
    """
    names = (*_LAUNCHER_VARIABLES, *(("VLLM_CPU_KVCACHE_SPACE",) if own_cache else ()))
    before = {name: os.environ.get(name) for name in names}
    set_num_threads = torch.set_num_threads
    if own_cache:
        os.environ.pop("VLLM_CPU_KVCACHE_SPACE", None)
    if distributed.is_initialized() and distributed.get_world_size() > 1:
        os.environ["RANK"] = str(distributed.get_rank())
        if torch.cuda.is_available():
            # vLLM takes the GPU of this number; the trainer's is another one where the device list is, say, [2, 3].
            os.environ["LOCAL_RANK"] = str(torch.cuda.current_device())
        else:
            os.environ.setdefault("LOCAL_RANK", os.environ.get("SLURM_LOCALID", os.environ["RANK"]))
    try:
        yield
    finally:
        torch.set_num_threads = set_num_threads  # vLLM puts a function there that only warns
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def keep_process_group() -> None:
    """Let vLLM, when it shuts down, destroy the default process group only if it is about to make it itself.

    It would destroy the trainer's too, on `shutdown` and also when a forgotten engine is garbage collected.
    """
    groups: Any = importlib.import_module("vllm.distributed.parallel_state")
    groups.destroy_distributed_environment = partial(_destroy_groups, groups, not distributed.is_initialized())


def _destroy_groups(groups: Any, own_default: bool) -> None:
    if not distributed.is_initialized():
        return
    if groups._WORLD is not None:
        groups._WORLD.destroy()
    groups._WORLD = groups._NODE_COUNT = None
    if own_default:
        distributed.destroy_process_group()


def release() -> None:
    """Drop what vLLM keeps for the process once its engine is gone, or half built."""
    groups: Any = importlib.import_module("vllm.distributed.parallel_state")
    gc.collect()
    groups.cleanup_dist_env_and_memory()


@contextmanager
def no_warnings() -> Iterator[None]:
    """Silence the deprecations that vLLM and what it loads report; whoever trains can do nothing about them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
