"""A run of a few seconds without a language model: real batches of rollouts, a real Trainer, one linear layer."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader

from gapo_lit.callbacks import RunLogger
from gapo_lit.metrics.rollouts import reduce_metrics, rollout_metrics
from gapo_lit.sharding import Collectives
from gapo_lit.types import (
    ClipBounds,
    Completion,
    EvaluationBatch,
    Example,
    GroupStats,
    MicroBatch,
    Prompt,
    Rollout,
    RolloutBatch,
    UpdateBatch,
    Verdict,
)

UPDATES_PER_BATCH = 2
# Warnings about Lightning's own calls, and about loaders that are meant to be as they are here.
LIGHTNINGS_OWN = (".*LeafSpec.*", ".*transfer_batch_to_device.*", ".*does not have many workers.*")
TIMINGS = {
    "time/generate": 1.5,
    "time/reward": 0.5,
    "time/sync": 0.25,
    "tokens_per_second": 350.0,
    "rollouts_per_second": 25.0,
}


def rollout(group: int, right: bool | None, text: str = "it is 5", prompt: str = "2 + 3?", version: int = 0) -> Rollout:
    verdict = Verdict.none("timed out") if right is None else Verdict.of(right)
    example = Example(f"q{group}", prompt, "5")
    completion = Completion((5, 6, 7), (-0.1, -0.2, -0.3), text, "stop")
    return Rollout(Prompt(example, (1, 2), prompt), completion, verdict, group, version)


def group_of(group: int, right: int, k: int = 4, version: int = 0) -> list[Rollout]:
    return [rollout(group, i < right, version=version) for i in range(k)]


def update_batch(samples: list[Rollout], index: int, version: int) -> UpdateBatch:
    size = len(samples)
    group = torch.tensor([s.group for s in samples])
    correct = torch.tensor([s.verdict.kind == "correct" for s in samples])
    count = torch.tensor([sum(o.verdict.kind == "correct" for o in samples if o.group == s.group) for s in samples])
    rewards = correct.float()
    batch = RolloutBatch(
        prompt_ids=torch.ones(2, 2, dtype=torch.long),
        prompt_lengths=torch.full((2,), 2),
        group=group,
        response_ids=torch.ones(size, 3, dtype=torch.long),
        response_lengths=torch.full((size,), 3),
        sampler_logprobs=torch.zeros(size, 3),
        rewards=rewards,
        groups=GroupStats(correct, count, torch.full((size,), 4), rewards - count / 4),
        advantages=rewards - count / 4,
        bounds=ClipBounds(torch.full((size,), 0.1), torch.full((size,), 0.2)),
        policy_version=version,
        temperature=1.0,
    )
    timings = TIMINGS if index == 0 else {}
    micro = MicroBatch(torch.arange(size), (size,))
    return UpdateBatch(batch, None, torch.tensor(1.0), (micro,), index, tuple(samples), timings)


class FakeLoader:
    """Sized and lazy, as the real one; reports the phases of a rollout batch."""

    def __init__(self, data: FakeData, updates: int) -> None:
        self.data, self.updates = data, updates

    def __len__(self) -> int:
        return self.updates

    def __iter__(self) -> Iterator[UpdateBatch]:
        for number in range(self.updates):
            index = number % UPDATES_PER_BATCH
            if index == 0:
                self.data.report("generate", 0, 8)
                self.data.report("generate", 8, 8)
            version = number - index
            yield update_batch(group_of(0, 1, version=version) + group_of(1, 3, version=version), index, version)


class FakeData(L.LightningDataModule):
    updates_per_batch = UPDATES_PER_BATCH

    def __init__(self, updates: int = 4, tokenizer: Any = None) -> None:
        super().__init__()
        self.updates, self.tokenizer = updates, tokenizer
        self.collector = SimpleNamespace(on_progress=None)

    def report(self, *phase: Any) -> None:
        if self.collector.on_progress is not None:
            self.collector.on_progress(*phase)

    def train_dataloader(self) -> FakeLoader:
        return FakeLoader(self, self.updates)

    def val_dataloader(self) -> DataLoader[EvaluationBatch]:
        rollouts = group_of(0, 2) + group_of(1, 3)
        cut = (tuple(rollouts[i : i + 4]) for i in range(0, len(rollouts), 4))
        return DataLoader([EvaluationBatch("validation", (0, 1), part) for part in cut], batch_size=None)


class FakePolicy(L.LightningModule):
    """Logs what the real module logs; pass@1 grows with the updates. clip: the high clip fraction of later updates."""

    def __init__(self, clip: float = 0.25, fail_at: int | None = None, error: BaseException | None = None) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.clip, self.fail_at, self.error = clip, fail_at, error
        self.model: Any = nn.Linear(1, 1)
        self.first_validation: dict[str, float] = {}

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)

    def gathered_parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        yield from self.model.named_parameters(remove_duplicate=False)

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        return batch

    def training_step(self, batch: UpdateBatch, batch_idx: int) -> None:
        if self.trainer.global_step == self.fail_at:
            raise self.error or RuntimeError("the engine died")
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(sum(p.sum() for p in self.model.parameters()))
        optimizer.step()
        values = reduce_metrics(rollout_metrics(batch.rollouts, batch.samples), Collectives(self.trainer.strategy))
        values |= {
            "clip_fraction/high": self.clip * batch.index,
            "clip_fraction/low": 0.0,
            "entropy": 0.9,
            "grad_norm": 0.5,
        }
        values |= {"policy_version": float(batch.rollouts.policy_version)}
        values |= {f"by_count/clip_fraction_high/c={c}": self.clip * batch.index for c in (1, 3)}
        self._log("train/", values | dict(batch.timings))

    def validation_step(self, batch: list[Rollout], batch_idx: int) -> None:
        pass

    def on_validation_epoch_end(self) -> None:
        passed = 0.25 + 0.1 * self.trainer.global_step
        self._log("val/", {"pass@1": passed, "pass@4": min(passed + 0.3, 1.0)})

    def _log(self, prefix: str, values: dict[str, float]) -> None:
        named = {prefix + name: value for name, value in values.items()}
        if self.trainer.sanity_checking:
            self.first_validation = named
        else:
            self.log_dict(named, logger=False, batch_size=1)
        for logger in self.trainer.loggers:
            logger.log_metrics(named, step=self.trainer.global_step)


def run(
    folder: Path, *callbacks: Any, policy: L.LightningModule | None = None, data: Any = None, **trainer: Any
) -> L.Trainer:
    """Fit: 4 updates in 2 rollout batches, validations before, between and after. Returns the trainer."""
    settings = {
        "accelerator": "cpu",
        "max_epochs": 1,
        "val_check_interval": UPDATES_PER_BATCH,
        "num_sanity_val_steps": -1,
        "log_every_n_steps": 1,
        "enable_checkpointing": False,
        "enable_model_summary": False,
        "logger": RunLogger(str(folder), "fake"),
    }
    bar = any(isinstance(c, L.pytorch.callbacks.ProgressBar) for c in callbacks)
    made = L.Trainer(callbacks=list(callbacks), enable_progress_bar=bar, **(settings | trainer))
    with warnings.catch_warnings():
        for message in LIGHTNINGS_OWN:
            warnings.filterwarnings("ignore", message=message)
        made.fit(policy or FakePolicy(), datamodule=data or FakeData())
    return made
