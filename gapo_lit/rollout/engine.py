"""What an engine is: token ids in, completions with the sampler's log-probs out, and weights that follow the policy."""

from __future__ import annotations

import hashlib
import random
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from gapo_lit.registry import kind
from gapo_lit.types import Completion, Sampling

# vLLM clamps a lower positive temperature up to this one, which would silently sample from another distribution.
LOWEST_TEMPERATURE = 0.01


class EngineError(RuntimeError):
    """An engine could not start, sample or take weights; the message says which request or parameter, and why."""


class SyncMismatch(EngineError):  # noqa: N818 - it says what is wrong, and is an error by its base
    """The engine's log-probs are not the trainer's: its weights, or how it reads them, differ."""


@kind("engine")
class Engine(ABC):
    """Samples completions from a copy of the policy.

    version: the policy version of the weights it holds; -1 means the checkpoint's own, before the first `load_weights`.
    precision: what it computes in, known once it has started.
    Every rank has its own engine: `start`, `load_weights` and `close` are called on all of them in the same order.
    """

    version: int = -1
    precision: Literal["float32", "bfloat16"] = "float32"

    @abstractmethod
    def start(self) -> None:
        """Build the engine, after the trainer's process group exists. A second call does nothing.

        Leaves the random state of torch, numpy and random as it was. Raises EngineError with the backend's own words.
        """

    @abstractmethod
    def generate(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, n: int, seeds: Sequence[int]
    ) -> list[list[Completion]]:
        """Draw n completions of each prompt; the result is in the order of the prompts.

        seeds: one a prompt (see `request_seed`); sample i draws from the stream seed + i, so a completion depends
        neither on what else is in the call nor on the random state of the process, which is left as it was.
        Log-probs are taken after temperature, top-k and top-p; for greedy sampling, at temperature 1.
        Raises EngineError before anything is sampled where a request cannot be served in full, and naming the request
        where the backend returned an unusable log-prob.
        """

    @abstractmethod
    def load_weights(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Replace all weights by full tensors named as the Hugging Face model names its parameters.

        Consumes the whole iterator even where it fails, because every rank gathers behind it. A tied weight may be
        given under one of its names or under all of them. Raises EngineError for a missing, unknown or misshapen
        parameter, after which the engine refuses to sample until it is closed and started again.
        """

    @abstractmethod
    def close(self) -> None:
        """Free the model and its memory. A closed engine can be started again; closing twice does nothing."""


def request_seed(run_seed: int, *parts: int | str) -> int:
    """A seed in [0, 2**62) for one request, from the run's seed and what identifies the request.

    Give the split, the rollout batch's number and the prompt's position in it: never the rank, so that the same run on
    another number of processes samples the same completions. Any change of a part gives an unrelated seed (BLAKE2b),
    hence streams seed + i of two requests do not meet.
    """
    text = "/".join(f"{type(part).__name__}:{part}" for part in (int(run_seed), *parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> 2


def check_requests(
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    n: int,
    seeds: Sequence[int],
    *,
    max_model_len: int,
    vocab_size: int,
) -> None:
    """Raise ValueError for a call that contradicts itself and EngineError for a prompt the model cannot take."""
    if n < 1:
        raise ValueError(f"n={n} asks for no completion; give at least 1")
    if len(seeds) != len(prompts):
        raise ValueError(f"{len(seeds)} seeds for {len(prompts)} prompts; give one seed a prompt")
    if 0 < sampling.temperature < LOWEST_TEMPERATURE:
        raise ValueError(
            f"temperature={sampling.temperature} is below {LOWEST_TEMPERATURE}, where engines stop scaling; "
            "give 0 for greedy sampling"
        )
    if sampling.temperature == 0 and n > 1:
        raise ValueError(f"n={n} greedy completions of a prompt are all the same; give n=1 or a positive temperature")
    if sampling.temperature > 0:
        _check_seeds(seeds, n)
    for index, prompt in enumerate(prompts):
        room = max_model_len - sampling.max_tokens
        if not 0 < len(prompt) <= room:
            raise EngineError(
                f"prompt {index} has {len(prompt)} tokens; with max_tokens={sampling.max_tokens} and "
                f"max_model_len={max_model_len} it needs 1 to {room}: filter the data, or change one of the two"
            )
        if not (min(prompt) >= 0 and max(prompt) < vocab_size):
            raise EngineError(
                f"prompt {index} holds a token id outside the model's vocabulary of {vocab_size}; "
                "encode prompts with the tokenizer of the same model"
            )


def _check_seeds(seeds: Sequence[int], n: int) -> None:
    ordered = sorted(seeds)
    if ordered and ordered[0] < 0:
        raise ValueError(f"seed {ordered[0]} is negative; derive seeds with request_seed")
    for low, high in pairwise(ordered):
        if high - low < n:
            raise ValueError(
                f"seeds {low} and {high} are less than n={n} apart, so two requests would share a random stream; "
                "derive seeds with request_seed"
            )


def drain(weights: Iterator[tuple[str, Tensor]]) -> None:
    """Walk a failed sync's iterator to its end: the other ranks wait in its gathers."""
    with suppress(Exception):  # the failure that led here is the one to report
        for _ in weights:
            pass


@contextmanager
def preserved_rng() -> Iterator[None]:
    """Put the random state of torch (CPU, and CUDA where it is in use), numpy and random back at the end."""
    state, np_state, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()
    in_use = torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    cuda = torch.cuda.get_rng_state_all() if in_use else None
    try:
        yield
    finally:
        random.setstate(state)
        np.random.set_state(np_state)
        torch.set_rng_state(cpu)
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)
