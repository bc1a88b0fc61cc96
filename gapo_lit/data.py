"""The rollout side as a LightningDataModule: prompts come in, batches of single optimizer steps go out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import lightning as L
import torch
from transformers import AutoTokenizer

from gapo_lit.prompts import EncodedPrompts, PromptSource, Template, encode_prompts
from gapo_lit.rewards.base import Reward
from gapo_lit.rollout.collect import Collector, Policy
from gapo_lit.rollout.engine import Engine
from gapo_lit.types import Prompt, Rollout, Sampling, UpdateBatch


class TrainedPolicy(Policy, Protocol):
    """What the training loader needs beside sampling."""

    def prepare(self, samples: Sequence[Rollout], updates: int, temperature: float) -> list[UpdateBatch]:
        """Complete a rollout batch and cut it into update batches."""


class RolloutDataModule(L.LightningDataModule):
    """Prompts, an engine that answers them and a reward that grades the answers.

    tokenizer: folder or hub name, the model's own. train, val: prompt sources, held apart. group_size: k, rollouts a
    prompt. prompts_per_batch: prompts of one rollout batch, over all ranks. prompts_per_update: prompts of one
    optimizer step; prompts_per_batch / prompts_per_update updates are made from a rollout batch, and with one of them
    no clip ever binds. sampling, val_sampling: how training and validation completions are drawn. val_samples:
    completions a validation prompt. max_prompt_tokens: longer prompts are left out, and counted. verify_sync: compare
    engine and trainer after each weight sync.
    """

    def __init__(
        self,
        tokenizer: str,
        train: PromptSource,
        val: PromptSource,
        reward: Reward,
        engine: Engine,
        group_size: int,
        prompts_per_batch: int,
        prompts_per_update: int,
        sampling: Sampling,
        val_sampling: Sampling | None = None,
        val_samples: int = 8,
        val_prompts_per_batch: int = 64,
        max_prompt_tokens: int = 1024,
        template: Template | None = None,
        seed: int = 0,
        verify_sync: bool = True,
    ) -> None:
        super().__init__()
        self.tokenizer_name = tokenizer
        self.train, self.val, self.template = train, val, template or Template()
        self.group_size = group_size
        self.prompts_per_batch, self.prompts_per_update = prompts_per_batch, prompts_per_update
        self.sampling, self.val_sampling = sampling, val_sampling or sampling
        self.val_samples, self.val_prompts_per_batch = val_samples, val_prompts_per_batch
        self.max_prompt_tokens = max_prompt_tokens
        self.seed = seed
        self.collector = Collector(engine, reward, seed, verify_sync)
        self._train_loader: RolloutLoader | None = None
        self._state: dict[str, Any] = {}

    @property
    def updates_per_batch(self) -> int:
        """Optimizer steps made from one rollout batch."""
        return self.prompts_per_batch // self.prompts_per_update

    @cached_property
    def tokenizer(self) -> Any:
        """The model's tokenizer."""
        return AutoTokenizer.from_pretrained(self.tokenizer_name)

    @cached_property
    def train_prompts(self) -> EncodedPrompts:
        """Training prompts as token ids, with what was too long."""
        return encode_prompts(self.train.examples(), self.template, self.tokenizer, self.max_prompt_tokens)

    @cached_property
    def val_prompts(self) -> EncodedPrompts:
        """Validation prompts as token ids, with what was too long."""
        return encode_prompts(self.val.examples(), self.template, self.tokenizer, self.max_prompt_tokens)

    def train_dataloader(self) -> RolloutLoader:
        """One item an optimizer step; generates as it is walked, from the weights of that moment."""
        loader = RolloutLoader(self._policy, self.collector, self._share, self.train_prompts.prompts)
        loader.load_state_dict(self._state)
        self._train_loader = loader
        return loader

    def val_dataloader(self) -> ValidationLoader:
        """Graded rollouts of this rank's validation prompts, some prompts an item."""
        share = replace(self._share, group_size=self.val_samples, sampling=self.val_sampling)
        return ValidationLoader(
            self._policy, self.collector, share, self.val_prompts.prompts, self.val_prompts_per_batch
        )

    def state_dict(self) -> dict[str, Any]:
        """The position in the training prompts."""
        return {} if self._train_loader is None else self._train_loader.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Remember the position until the loader is made."""
        self._state = state_dict

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Move what a step computes with; validation batches are words."""
        return batch.to(device) if isinstance(batch, UpdateBatch) else batch

    def teardown(self, stage: str) -> None:
        """Free the engine and the reward's workers."""
        self.collector.close()

    @property
    def _policy(self) -> Any:
        return self.trainer.lightning_module  # type: ignore[union-attr]

    @property
    def _share(self) -> RankShare:
        trainer = self.trainer
        assert trainer is not None
        return RankShare(
            trainer.global_rank,
            trainer.world_size,
            self.group_size,
            self.prompts_per_batch,
            self.prompts_per_update,
            self.sampling,
            self.seed,
        )


@dataclass(frozen=True)
class RankShare:
    """Which prompts of a rollout batch this rank answers, and how."""

    rank: int
    world_size: int
    group_size: int
    prompts_per_batch: int
    prompts_per_update: int
    sampling: Sampling
    seed: int

    @property
    def positions(self) -> list[int]:
        """Positions in the rollout batch, update by update: every rank has the same number in each update."""
        starts = range(0, self.prompts_per_batch, self.prompts_per_update)
        return [
            p for start in starts for p in range(start + self.rank, start + self.prompts_per_update, self.world_size)
        ]


class RolloutLoader:
    """Walks the training prompts in a new seeded order each epoch and yields update batches.

    It has a length: without one Lightning would fetch ahead, and rollouts would come from weights one update old. An
    epoch leaves out the prompts that do not fill its last rollout batch. Its state is the number of rollout batches
    begun and, inside one, how many of its updates were handed out.
    """

    def __init__(
        self, policy: TrainedPolicy, collector: Collector, share: RankShare, prompts: Sequence[Prompt]
    ) -> None:
        self.policy, self.collector, self.share, self.prompts = policy, collector, share, prompts
        self.updates = share.prompts_per_batch // share.prompts_per_update
        self.epoch = 0
        self.batch = 0
        self.handed_out = 0

    @property
    def batches(self) -> int:
        """Rollout batches an epoch."""
        return len(self.prompts) // self.share.prompts_per_batch

    def __len__(self) -> int:
        return self.batches * self.updates

    def __iter__(self) -> Iterator[UpdateBatch]:
        if self.batch >= self.batches:
            # The generator of the last epoch was never walked past its end, so the turn of the epoch is taken here.
            self.epoch, self.batch = self.epoch + 1, 0
        while self.batch < self.batches:
            for update in self._rollout_batch():
                self.handed_out = update.index + 1
                if self.handed_out == self.updates:
                    self.batch, self.handed_out = self.batch + 1, 0
                yield update

    def _rollout_batch(self) -> list[UpdateBatch]:
        order = torch.randperm(len(self.prompts), generator=torch.Generator().manual_seed(self.share.seed + self.epoch))
        first = self.batch * self.share.prompts_per_batch
        prompts = [self.prompts[int(order[first + p])] for p in self.share.positions]
        number = (self.epoch * self.batches + self.batch) * self.share.prompts_per_batch
        self.collector.update(self.policy, prompts[:2], self.share.sampling.temperature)
        positions = [number + p for p in self.share.positions]
        samples = self.collector.collect(prompts, self.share.group_size, self.share.sampling, "train", positions)
        with self.collector.phase("score"):
            batches = self.policy.prepare(samples, self.updates, self.share.sampling.temperature)
        return [replace(batches[0], timings=dict(self.collector.timings)), *batches[1:]]

    def state_dict(self) -> dict[str, Any]:
        """Where to go on: an unfinished rollout batch is sampled again from the weights of that moment."""
        return {"epoch": self.epoch, "batch": self.batch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved position."""
        self.epoch, self.batch = state.get("epoch", 0), state.get("batch", 0)


class ValidationLoader:
    """Yields graded rollouts of this rank's share of the validation prompts; every prompt is answered exactly once."""

    def __init__(
        self, policy: Policy, collector: Collector, share: RankShare, prompts: Sequence[Prompt], prompts_per_item: int
    ) -> None:
        self.policy, self.collector, self.share = policy, collector, share
        self.probes = prompts[:2]
        mine = list(range(share.rank, len(prompts), share.world_size))
        self.items = [mine[i : i + prompts_per_item] for i in range(0, len(mine), prompts_per_item)]
        self.prompts = prompts

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[list[Rollout]]:
        # Here, so that a rank without prompts takes part.
        self.collector.update(self.policy, self.probes, self.share.sampling.temperature or 1.0)
        for positions in self.items:
            prompts = [self.prompts[p] for p in positions]
            yield self.collector.collect(prompts, self.share.group_size, self.share.sampling, "validation", positions)
