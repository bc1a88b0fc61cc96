"""Prompts in, graded rollouts out: the engine is brought up to date, samples, and the reward judges."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from torch import Tensor

from gapo_lit.rewards.base import Reward, graded
from gapo_lit.rollout.engine import Engine, EngineError, request_seed
from gapo_lit.rollout.sync import sync_weights, verify_sync
from gapo_lit.types import Completion, Prompt, Rollout, Sampling


class Policy(Protocol):
    """What sampling needs of the policy in training."""

    @property
    def version(self) -> int:
        """How many optimizer steps the weights have seen."""

    @property
    def exact(self) -> bool:
        """Whether it scores in float32; in lower precision log-probs agree with an engine's on average only."""

    def gathered_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """(name, parameter), sharded or whole; every rank must walk it to the end."""

    def score(
        self, prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]], temperature: float
    ) -> list[Tensor]:
        """log-probs of one response to each prompt."""


@dataclass
class Collector:
    """One engine and one reward, shared by training and validation.

    seed: the run's. verify: compare the engine's log-probs with the trainer's after every weight sync, on a few tokens.
    timings: seconds of the latest `collect`, with its tokens.
    on_progress: told (phase, done, total) when a phase that takes long begins, with done=0, and when it has ended.
    """

    engine: Engine
    reward: Reward
    seed: int
    verify: bool = True
    timings: dict[str, float] = field(default_factory=dict)
    on_progress: Callable[[str, int, int], None] | None = None
    _started: bool = False

    def update(self, policy: Policy, probes: Sequence[Prompt], temperature: float) -> None:
        """Load the policy's weights unless the engine has them; a collective under sharding, so call it on every
        rank.
        """
        if not self._started:
            self._started = True  # a start that fails half-way is closed, too
            with self.phase("start engine"):
                self.engine.start()
        # Seconds of the engine's start, or of an earlier sync, would otherwise be counted again for this rollout batch.
        self.timings = {"time/sync": 0.0}
        if self.engine.version == policy.version:
            return
        with self.phase("sync"):
            sync_weights(self.engine, policy.gathered_parameters(), policy.version)
            if self.verify:
                by: Literal["mean"] | None = None if policy.exact else "mean"
                tokens = [prompt.token_ids for prompt in probes]
                verify_sync(self.engine, policy.score, tokens, by=by, temperature=temperature)

    def collect(
        self,
        prompts: Sequence[Prompt],
        samples: int,
        sampling: Sampling,
        purpose: str,
        positions: Sequence[int],
        reward: Reward | None = None,
    ) -> list[Rollout]:
        """`samples` rollouts of each prompt, group by group, graded by `reward` where it is not the run's own.

        Seeds follow from the run's seed, `purpose` and a prompt's position in it, so they differ between prompts,
        steps and runs, and do not depend on how prompts are spread over ranks.
        """
        count = len(prompts) * samples
        with self.phase("generate", count):
            seeds = [request_seed(self.seed, purpose, position) for position in positions]
            drawn = self.engine.generate([prompt.token_ids for prompt in prompts], sampling, samples, seeds)
        check_completions(drawn, len(prompts), samples)
        pairs = [(group, completion) for group, completions in enumerate(drawn) for completion in completions]
        grader = self.reward if reward is None else reward
        with self.phase("reward", count):
            verdicts = graded(grader, [prompts[group] for group, _ in pairs], [completion for _, completion in pairs])
        seconds = max(self.timings["time/generate"], 1e-9)
        self.timings["tokens_per_second"] = sum(len(c.token_ids) for _, c in pairs) / seconds
        self.timings["rollouts_per_second"] = len(pairs) / seconds
        return [
            Rollout(prompts[group], completion, verdict, group, self.engine.version)
            for (group, completion), verdict in zip(pairs, verdicts, strict=True)
        ]

    @contextmanager
    def phase(self, name: str, total: int = 1) -> Iterator[None]:
        """Time what happens inside as `time/<name>`, and tell whoever shows progress."""
        tell = self.on_progress or (lambda phase, done, total: None)
        tell(name, 0, total)
        started = time.perf_counter()
        yield
        self.timings[f"time/{name.replace(' ', '_')}"] = time.perf_counter() - started
        tell(name, total, total)

    def close(self) -> None:
        """Free the engine and the reward's workers."""
        if self._started:
            self.engine.close()
            self._started = False
        self.reward.close()


def check_completions(drawn: Sequence[Sequence[Completion]], prompts: int, samples: int) -> None:
    """Raise EngineError where an engine returned too few or too many completions, or log-probs that cannot be used."""
    counts = [len(group) for group in drawn]
    if counts != [samples] * prompts:
        raise EngineError(
            f"the engine returned {counts[:8]} completions for {prompts} prompts of {samples} samples each"
        )
    for group, completions in enumerate(drawn):
        for number, completion in enumerate(completions):
            tokens, logprobs = len(completion.token_ids), completion.logprobs
            if len(logprobs) != tokens:
                raise EngineError(
                    f"sample {number} of prompt {group} has {tokens} tokens but {len(logprobs)} log-probs"
                )
            if not all(isinstance(value, float) and math.isfinite(value) for value in logprobs):
                raise EngineError(f"sample {number} of prompt {group} has a log-prob that is no finite number")
