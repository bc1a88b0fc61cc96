"""Sampling with transformers alone: slower than vLLM, and runs wherever torch does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from gapo_lit.registry import register
from gapo_lit.rollout.engine import Engine, EngineError, check_requests, drain, preserved_rng
from gapo_lit.rollout.pretrained import Checkpoint
from gapo_lit.types import Completion, FinishReason, Sampling

# A step that would keep fewer than this share of its rows copies the cache to drop the finished ones.
_KEEP_SHARE = 0.75
# The largest number a uniform draw may be: the last probability above 0 is then always inside the cumulative sum.
_BELOW_ONE = 1 - 2.0**-40


@register(source="Hugging Face transformers")
class TransformersEngine(Engine):
    """Samples with its own copy of the model, prompts prefilled once and shared by their n completions.

    model: local folder or hub name. dtype: "auto" is float32 on a CPU and bfloat16 on a GPU. batch_size: completions
    decoded at a time. max_model_len: longest prompt plus completion, by default the model's own limit.
    """

    def __init__(
        self,
        model: str,
        dtype: Literal["auto", "float32", "bfloat16"] = "auto",
        batch_size: int = 64,
        max_model_len: int | None = None,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size} decodes nothing; give at least 1")
        if max_model_len is not None and max_model_len < 2:
            raise ValueError(f"max_model_len={max_model_len} has no room for a prompt and a token; give at least 2")
        self.model = model
        self.dtype = dtype
        self.batch_size = batch_size
        self.max_model_len = max_model_len
        self._policy: Any = None
        self._checkpoint: Checkpoint | None = None
        self._failure: str | None = None

    def start(self) -> None:
        """Load the model onto this rank's device."""
        from transformers import AutoModelForCausalLM

        if self._policy is not None:
            return
        device = _device()
        self.precision = self.dtype if self.dtype != "auto" else "float32" if device.type == "cpu" else "bfloat16"
        with preserved_rng():
            self._checkpoint = Checkpoint.read(self.model, self.max_model_len)
            try:
                policy: Any = AutoModelForCausalLM.from_pretrained(self.model, dtype=getattr(torch, self.precision))
            except (OSError, ValueError) as error:
                raise EngineError(f"model {self.model!r} could not be loaded: {error}") from error
        self._policy = policy.to(device).eval().requires_grad_(False)
        self.version, self._failure = -1, None

    def generate(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, n: int, seeds: Sequence[int]
    ) -> list[list[Completion]]:
        """See `Engine.generate`."""
        checkpoint = self._ready()
        limit, vocabulary = checkpoint.max_model_len, checkpoint.vocab_size
        check_requests(prompts, sampling, n, seeds, max_model_len=limit, vocab_size=vocabulary)
        rows = [
            _Row(prompt, tuple(prompts[prompt]), sample, seeds[prompt] + sample)
            for prompt in range(len(prompts))
            for sample in range(n)
        ]
        with torch.inference_mode():
            for begin in range(0, len(rows), self.batch_size):
                self._decode(rows[begin : begin + self.batch_size], sampling, checkpoint.end_ids)
        texts = checkpoint.decode([row.token_ids for row in rows])
        completions = [row.completion(text) for row, text in zip(rows, texts, strict=True)]
        return [completions[i * n : (i + 1) * n] for i in range(len(prompts))]

    def load_weights(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        """See `Engine.load_weights`."""
        table = self._ready().parameters
        own = dict(self._policy.named_parameters(remove_duplicate=False))
        iterator = iter(weights)
        try:
            with torch.no_grad():
                for name, tensor in table.complete(iterator):
                    own[name].copy_(tensor)
        except Exception as error:
            drain(iterator)
            self._failure = f"loading the weights of version {version} failed: {error}"
            raise error if isinstance(error, EngineError) else EngineError(self._failure) from error
        self.version = version

    def close(self) -> None:
        """Drop the model."""
        self._policy = None
        self._checkpoint = None

    def _ready(self) -> Checkpoint:
        if self._checkpoint is None or self._policy is None:
            raise EngineError("the engine is not running; call start() first")
        if self._failure is not None:
            raise EngineError(f"the engine holds unusable weights ({self._failure}); close() and start() it again")
        return self._checkpoint

    def _decode(self, rows: list[_Row], sampling: Sampling, end_ids: frozenset[int]) -> None:
        """Sample one batch of completions to their ends, into the rows."""
        device = self._policy.device
        uniforms = _uniforms(rows, sampling).to(device)
        logits, cache, mask = self._prefill(rows)
        alive = list(range(len(rows)))
        for step in range(sampling.max_tokens):
            logprobs = processed_logprobs(logits, sampling)
            tokens = choose(logprobs, uniforms[alive, step] if sampling.temperature > 0 else None)
            chosen = logprobs.gather(-1, tokens[:, None])[:, 0]
            for index, token, logprob in zip(alive, tokens.tolist(), chosen.tolist(), strict=True):
                rows[index].add(token, logprob, token in end_ids)
            going = [i for i, index in enumerate(alive) if not rows[index].ended]
            if not going or step + 1 == sampling.max_tokens:
                return
            if len(going) < _KEEP_SHARE * len(alive):
                keep = torch.tensor(going, device=device)
                cache.batch_select_indices(keep)
                tokens, mask = tokens[keep], mask[keep]
                alive = [alive[i] for i in going]
            mask = torch.nn.functional.pad(mask, (0, 1), value=1)
            logits = self._forward(tokens[:, None], mask, mask.sum(-1, keepdim=True) - 1, cache).logits[:, -1]

    def _prefill(self, rows: list[_Row]) -> tuple[Tensor, Any, Tensor]:
        """Run each distinct prompt once, then give every row its prompt's logits (B, V), cache and mask (B, L)."""
        prompts = {row.prompt: row.prompt_ids for row in rows}
        longest = max(map(len, prompts.values()))
        ids = torch.zeros(len(prompts), longest, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for line, prompt in enumerate(prompts.values()):
            ids[line, longest - len(prompt) :] = torch.tensor(prompt)
            mask[line, longest - len(prompt) :] = 1
        device = self._policy.device
        ids, mask = ids.to(device), mask.to(device)
        result = self._forward(ids, mask, (mask.cumsum(-1) - 1).clamp(min=0), None)
        line_of = {prompt: line for line, prompt in enumerate(prompts)}
        lines = torch.tensor([line_of[row.prompt] for row in rows], device=device)
        result.past_key_values.batch_select_indices(lines)
        return result.logits[lines, -1], result.past_key_values, mask[lines]

    def _forward(self, ids: Tensor, mask: Tensor, positions: Tensor, cache: Any) -> Any:
        return self._policy(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )


@dataclass
class _Row:
    """One completion in the making: sample `sample` of prompt number `prompt`."""

    prompt: int
    prompt_ids: tuple[int, ...]
    sample: int
    seed: int
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    ended: bool = False

    def add(self, token: int, logprob: float, ends: bool) -> None:
        """Append a sampled token; a row that has ended stays as it is."""
        if self.ended:
            return
        if not logprob > float("-inf"):
            raise EngineError(
                f"sample {self.sample} of prompt {self.prompt} got log-prob {logprob} at token {len(self.token_ids)}; "
                "the model's weights or logits are not finite"
            )
        self.token_ids.append(token)
        self.logprobs.append(logprob)
        self.ended = ends

    def completion(self, text: str) -> Completion:
        """The finished row."""
        reason: FinishReason = "stop" if self.ended else "length"
        return Completion(tuple(self.token_ids), tuple(self.logprobs), text, reason)


def processed_logprobs(logits: Tensor, sampling: Sampling) -> Tensor:
    """Log-probs (B, V) of what is sampled from: log softmax of logits / T, then top-k, then top-p, renormalised.

    A token outside top-k or top-p gets −inf; ties with the k-th largest stay in. top-p keeps the fewest most probable
    tokens whose probabilities sum to at least p. Greedy sampling (T = 0) takes neither and reports T = 1.
    """
    logprobs = logits.float() if sampling.temperature == 0 else logits.float() / sampling.temperature
    if sampling.temperature > 0 and 0 < sampling.top_k < logprobs.shape[-1]:
        kth = logprobs.topk(sampling.top_k, dim=-1).values[:, -1:]
        logprobs = logprobs.masked_fill(logprobs < kth, -torch.inf)
    logprobs = logprobs.log_softmax(-1)
    if sampling.temperature > 0 and sampling.top_p < 1:
        ordered, index = logprobs.sort(dim=-1, descending=True, stable=True)
        probability = ordered.exp()
        outside = probability.cumsum(-1) - probability >= sampling.top_p
        logprobs = logprobs.masked_fill(outside.scatter(-1, index, outside), -torch.inf).log_softmax(-1)
    return logprobs


def choose(logprobs: Tensor, uniform: Tensor | None) -> Tensor:
    """The token (B,) at which the cumulative probability passes uniform (B,) ∈ [0, 1); the likeliest where it is None.

    Inverting the distribution costs one number a token, and cannot return a token of probability 0.
    """
    if uniform is None:
        return logprobs.argmax(-1)
    cumulative = logprobs.double().exp().cumsum(-1)
    target = uniform.clamp(max=_BELOW_ONE)[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, target, right=True)[:, 0].clamp(max=logprobs.shape[-1] - 1)


def _uniforms(rows: list[_Row], sampling: Sampling) -> Tensor:
    """(B, max_tokens) numbers in [0, 1), each row from its own seed; drawn on the CPU so that devices agree."""
    if sampling.temperature == 0:
        return torch.empty(0)
    draws = [
        torch.rand(sampling.max_tokens, dtype=torch.float64, generator=torch.Generator().manual_seed(row.seed))
        for row in rows
    ]
    return torch.stack(draws)


def _device() -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    # The trainer's, which it has made the current one; it is no rank's number where the device list is, say, [2, 3].
    return torch.device("cuda", torch.cuda.current_device())
