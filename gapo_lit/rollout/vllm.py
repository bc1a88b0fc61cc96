"""vLLM inside the training process, one engine a rank. With `vllm_process`, the only place that imports vllm."""

from __future__ import annotations

import contextlib
import importlib
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, cast

from torch import Tensor, distributed

from gapo_lit.registry import register
from gapo_lit.rollout.engine import Engine, EngineError, check_requests, drain, preserved_rng
from gapo_lit.rollout.pretrained import Checkpoint
from gapo_lit.rollout.quiet import quiet
from gapo_lit.rollout.vllm_process import (
    chatty,
    check_device,
    check_process_group,
    import_vllm,
    keep_process_group,
    launched,
    no_warnings,
    release,
)
from gapo_lit.types import Completion, FinishReason, Sampling

# Without this much, vLLM on a CPU would take nine tenths of the machine's memory.
_CPU_CACHE_GIB = 2.0
_CPU_BATCHED_TOKENS = 8192


@register(source="vLLM, arXiv:2309.06180")
class VLLMEngine(Engine):
    """Samples with vLLM in this process, a whole model on each rank.

    model: local folder or hub name. max_model_len: longest prompt plus completion, by default the model's own limit.
    max_num_seqs: completions decoded at a time. dtype: "auto" is float32 on a CPU, where bfloat16 is many times slower
    without special instructions, and bfloat16 on a GPU. gpu_memory_utilization: the share of the GPU that vLLM may
    take, weights included; the trainer needs the rest. kv_cache_gib: size of the key-value cache instead of that share;
    2 GiB by default on a CPU. enforce_eager: run without CUDA graphs; by default so on a CPU only. extra: further
    arguments of `vllm.LLM`, over the ones set here. The environment variable VLLM_LOGGING_LEVEL=INFO makes vLLM talk.
    """

    requires = ("vllm",)  # looked for before a run loads anything

    def __init__(
        self,
        model: str,
        max_model_len: int | None = None,
        max_num_seqs: int = 128,
        dtype: Literal["auto", "float32", "bfloat16"] = "auto",
        gpu_memory_utilization: float = 0.4,
        kv_cache_gib: float | None = None,
        enforce_eager: bool | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        if max_model_len is not None and max_model_len < 2:
            raise ValueError(f"max_model_len={max_model_len} has no room for a prompt and a token; give at least 2")
        if max_num_seqs < 1:
            raise ValueError(f"max_num_seqs={max_num_seqs} decodes nothing; give at least 1")
        if not 0 < gpu_memory_utilization <= 1:
            raise ValueError(f"gpu_memory_utilization={gpu_memory_utilization} is no share; give a number in (0, 1]")
        if kv_cache_gib is not None and not kv_cache_gib > 0:
            raise ValueError(f"kv_cache_gib={kv_cache_gib} holds no token; give a positive size or leave it out")
        self.model = model
        self.max_model_len = max_model_len
        self.max_num_seqs = max_num_seqs
        self.dtype = dtype
        self.gpu_memory_utilization = gpu_memory_utilization
        self.kv_cache_gib = kv_cache_gib
        self.enforce_eager = enforce_eager
        self.extra = dict(extra or {})
        self._vllm: Any = None
        self._llm: Any = None
        self._checkpoint: Checkpoint | None = None
        self._failure: str | None = None

    def start(self) -> None:
        """Import vLLM and build its engine, in the trainer's process group where there is one."""
        if self._llm is not None:
            return
        check_process_group()
        checkpoint = Checkpoint.read(self.model, self.max_model_len)
        with launched(own_cache=self.kv_cache_gib is not None), preserved_rng(), no_warnings(), quiet(not chatty()):
            self._vllm = import_vllm()
            keep_process_group()
            try:
                self._llm = self._vllm.LLM(**self._arguments(checkpoint))
            except Exception as error:
                release()
                raise EngineError(f"vLLM could not start on {self.model!r}: {error}") from error
        self._checkpoint, self.version, self._failure = checkpoint, -1, None

    def generate(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, n: int, seeds: Sequence[int]
    ) -> list[list[Completion]]:
        """See `Engine.generate`."""
        checkpoint = self._ready()
        limit, vocabulary = checkpoint.max_model_len, checkpoint.vocab_size
        check_requests(prompts, sampling, n, seeds, max_model_len=limit, vocab_size=vocabulary)
        if not prompts:
            return []
        requests = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        parameters = [self._parameters(sampling, n, seed, checkpoint.end_ids) for seed in seeds]
        with preserved_rng(), no_warnings(), self._breaking("sampling"):
            outputs = self._llm.generate(requests, parameters, use_tqdm=False)
        samples = [_ordered(output, index, n) for index, output in enumerate(outputs)]
        texts = iter(checkpoint.decode([sample.token_ids for group in samples for sample in group]))
        return [
            [_completion(sample, next(texts), f"sample {i} of prompt {index}") for i, sample in enumerate(group)]
            for index, group in enumerate(samples)
        ]

    def load_weights(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        """See `Engine.load_weights`."""
        complete = self._ready().parameters.complete
        iterator = iter(weights)
        try:
            with preserved_rng(), no_warnings(), self._breaking(f"loading the weights of version {version}"):
                self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": complete(iterator)})
                # Keys and values of the old weights would otherwise serve prompts that come again.
                if not self._llm.reset_prefix_cache():
                    raise EngineError("vLLM did not reset its prefix cache, so it would answer from old weights")
        except EngineError:
            drain(iterator)
            raise
        self.version = version

    def close(self) -> None:
        """Shut vLLM down and free its memory; the trainer's process group stays."""
        if self._llm is None:
            return
        with no_warnings():
            self._llm.llm_engine.engine_core.shutdown()
            self._llm = None
            self._checkpoint = None
            release()

    def _ready(self) -> Checkpoint:
        if self._llm is None or self._checkpoint is None:
            raise EngineError("the engine is not running; call start() first")
        if self._failure is not None:
            raise EngineError(f"the engine is unusable since {self._failure}; close() and start() it again")
        return self._checkpoint

    @contextlib.contextmanager
    def _breaking(self, doing: str) -> Iterator[None]:
        """Whatever goes wrong inside leaves requests or half-loaded weights behind: remember it and say it."""
        try:
            yield
        except EngineError as error:
            self._failure = f"{doing} failed: {error}"
            raise
        except Exception as error:
            self._failure = f"{doing} failed: {type(error).__name__}: {error}"
            raise EngineError(f"vLLM broke down; {self._failure}") from error
        except BaseException:
            self._failure = f"{doing} was interrupted"
            raise

    def _arguments(self, checkpoint: Checkpoint) -> dict[str, Any]:
        platform: Any = importlib.import_module("vllm.platforms").current_platform
        cpu = platform.is_cpu()
        if not cpu:
            check_device()
        self.precision = self.dtype if self.dtype != "auto" else "float32" if cpu else "bfloat16"
        arguments: dict[str, Any] = {
            "model": self.model,
            "dtype": self.precision,
            "max_model_len": checkpoint.max_model_len,
            "max_num_seqs": self.max_num_seqs,
            "gpu_memory_utilization": self.gpu_memory_utilization,
            "enforce_eager": cpu if self.enforce_eager is None else self.enforce_eager,
            # The default is the log-prob before temperature, which no trainer can compare with.
            "logprobs_mode": "processed_logprobs",
            "use_tqdm_on_load": False,
            "seed": 0,
        }
        cache = self.kv_cache_gib
        if cpu:
            # A small helper is compiled by g++ on its first call otherwise: seconds a process, and g++ to be there.
            platform.simple_compile_backend = "eager"
            # vLLM 0.32 rewinds the generator of a seeded request whose prompt is computed in parts, which CPU
            # generators cannot do ("CPU Generator does not use offset"). So each prompt is computed whole; so is a
            # preempted request, which is never longer than max_model_len.
            arguments["enable_chunked_prefill"] = False
            arguments["max_num_batched_tokens"] = max(_CPU_BATCHED_TOKENS, checkpoint.max_model_len)
            # Only whole blocks of a prompt are shared by its samples; the CPU's default block of 128 tokens would have
            # every sample of a shorter prompt compute it again. 32 is the least that CPU attention takes.
            arguments["block_size"] = 32
            if cache is None and "VLLM_CPU_KVCACHE_SPACE" not in os.environ:
                cache = _CPU_CACHE_GIB
        if cache is not None:
            arguments["kv_cache_memory_bytes"] = int(cache * 2**30)
        if distributed.is_initialized() and distributed.get_world_size() > 1:
            arguments["distributed_executor_backend"] = "external_launcher"
        return {**arguments, **self.extra}

    def _parameters(self, sampling: Sampling, n: int, seed: int, end_ids: frozenset[int]) -> Any:
        return self._vllm.SamplingParams(
            n=n,
            seed=seed,
            temperature=sampling.temperature,
            max_tokens=sampling.max_tokens,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            stop_token_ids=sorted(end_ids),
            logprobs=0,  # the sampled token's own
            detokenize=False,
        )


def _ordered(output: Any, index: int, n: int) -> list[Any]:
    samples = sorted(output.outputs, key=lambda sample: sample.index)
    if [sample.index for sample in samples] != list(range(n)):
        raise EngineError(f"vLLM returned {len(samples)} of {n} completions of prompt {index}")
    return samples


def _completion(sample: Any, text: str, request: str) -> Completion:
    """Our form of a vLLM output; zero tokens are a completion too. Raises EngineError naming the request."""
    if sample.finish_reason not in ("stop", "length"):
        raise EngineError(f"{request} ended with {sample.finish_reason!r} instead of 'stop' or 'length'")
    tokens = tuple(int(token) for token in sample.token_ids)
    entries = sample.logprobs or []
    if len(entries) != len(tokens):
        raise EngineError(f"{request} has {len(tokens)} tokens but {len(entries)} log-probs")
    logprobs = []
    for place, (token, entry) in enumerate(zip(tokens, entries, strict=True)):
        value = getattr((entry or {}).get(token), "logprob", None)
        if value is None or not math.isfinite(value):
            raise EngineError(
                f"{request} has log-prob {value} at token {place}; the engine's weights or logits are not finite"
            )
        logprobs.append(float(value))
    return Completion(tokens, tuple(logprobs), text, cast(FinishReason, sample.finish_reason))
