"""What Lightning walks: update batches to train on, graded rollouts to evaluate; sampled as they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Protocol

import torch

from gapo_lit.evaluation.benchmark import Task
from gapo_lit.evaluation.store import SampleStore, batch_of
from gapo_lit.rollout.collect import Collector, Policy
from gapo_lit.rollout.engine import request_seed
from gapo_lit.types import EvaluationBatch, Prompt, Rollout, Sampling, UpdateBatch

SAMPLES_PER_ITEM = 2048  # an evaluation that stops loses at most these


class TrainedPolicy(Policy, Protocol):
    """What the training loader needs beside sampling."""

    def prepare(self, samples: Sequence[Rollout], updates: int, temperature: float) -> list[UpdateBatch]:
        """Complete a rollout batch and cut it into update batches."""


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


def prompt_order(count: int, seed: int, epoch: int) -> list[int]:
    """The order in which an epoch takes `count` prompts: another one for each epoch of each seed."""
    generator = torch.Generator().manual_seed(request_seed(seed, "order", epoch))
    return torch.randperm(count, generator=generator).tolist()


class RolloutLoader:
    """Walks the training prompts in a new seeded order each epoch and yields update batches.

    It has a length: without one Lightning would fetch ahead, and rollouts would come from weights one update old. An
    epoch leaves out the prompts that do not fill its last rollout batch. Its state is the epoch and how many rollout
    batches of it are finished. A run that stopped inside one samples that one again, while Lightning's own count of the
    epoch goes on: updates at the end of that epoch may be left out, and their rollout batch sampled again in the next.
    """

    def __init__(
        self, policy: TrainedPolicy, collector: Collector, share: RankShare, prompts: Sequence[Prompt]
    ) -> None:
        self.policy, self.collector, self.share, self.prompts = policy, collector, share, prompts
        self.updates = share.prompts_per_batch // share.prompts_per_update
        self.epoch = 0
        self.batch = 0

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
                if update.index + 1 == self.updates:
                    self.batch += 1
                yield update

    def _rollout_batch(self) -> list[UpdateBatch]:
        order = prompt_order(len(self.prompts), self.share.seed, self.epoch)
        first = self.batch * self.share.prompts_per_batch
        prompts = [self.prompts[order[first + p]] for p in self.share.positions]
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


class EvaluationLoader:
    """Yields graded rollouts of this rank's share of each task's problems; every problem is answered exactly once.

    store: where samples are kept; problems that it has all samples of are read instead of asked. An item holds at most
    prompts_per_item problems, and fewer of those with many samples. A rank without problems yields one empty item,
    because Lightning wants one of each.
    """

    def __init__(
        self,
        policy: Policy,
        collector: Collector,
        ranks: tuple[int, int],
        tasks: Sequence[Task],
        prompts_per_item: int,
        store: SampleStore | None = None,
    ) -> None:
        self.policy, self.collector, self.tasks, self.store = policy, collector, tasks, store
        self.unanswered = False  # on any rank: all of them take part in bringing weights to the engine
        self.items: list[tuple[Task, list[int]]] = []
        rank, world_size = ranks
        for task in tasks:
            done = {} if store is None else store.done(task)
            missing = [p for p in range(len(task.prompts.prompts)) if p not in done]
            self.unanswered |= bool(missing)
            size = max(1, min(prompts_per_item, SAMPLES_PER_ITEM // task.samples))
            for positions in (sorted(done)[rank::world_size], missing[rank::world_size]):
                self.items += [(task, positions[i : i + size]) for i in range(0, len(positions), size)]

    def __len__(self) -> int:
        return max(1, len(self.items))

    @property
    def problems(self) -> int:
        """How many this rank has."""
        return sum(len(positions) for _, positions in self.items)

    def __iter__(self) -> Iterator[EvaluationBatch]:
        if self.unanswered:
            first = self.tasks[0]
            self.collector.update(self.policy, first.prompts.prompts[:2], first.sampling.temperature or 1.0)
        if not self.items:
            yield EvaluationBatch(self.tasks[0].name)
        for task, items in groupby(self.items, key=lambda item: item[0]):
            for _, positions in items:
                yield self._answered(task, positions)
            if task.reward is not self.collector.reward:
                task.reward.close()  # its workers are not needed again

    def _answered(self, task: Task, positions: list[int]) -> EvaluationBatch:
        done = {} if self.store is None else self.store.done(task)
        if positions[0] in done:
            return batch_of(task, {p: done[p] for p in positions})
        prompts = [task.prompts.prompts[p] for p in positions]
        rollouts = self.collector.collect(
            prompts, task.samples, task.sampling, task.purpose, positions, reward=task.reward
        )
        batch = EvaluationBatch(task.name, tuple(positions), tuple(rollouts))
        if self.store is not None:
            self.store.write(batch)
        return batch
