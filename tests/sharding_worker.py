"""Trains a tiny model from scripted rollouts under one strategy and writes what came out; run alone or by torchrun."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import lightning as L
import torch

from gapo_lit.clipping.schedules import GAPOClip, MatchedWidthClip
from gapo_lit.clipping.surrogate import PPOClip
from gapo_lit.data import RolloutDataModule
from gapo_lit.loaders import prompt_order
from gapo_lit.module import PolicyModule
from gapo_lit.policies.advantages import GroupMean
from gapo_lit.policies.aggregation import ConstantLength, SequenceMeanTokenMean, SequenceMeanTokenSum, TokenMean
from gapo_lit.policies.ratio import SequenceRatio, TokenRatio
from gapo_lit.rollout.sync import full_parameters
from gapo_lit.sharding import FSDP2Strategy
from gapo_lit.types import Sampling
from tests.fakes import ScriptedEngine, ScriptedPrompts, ScriptedReward

PROMPTS, SEED, UPDATES, PER_UPDATE, K = 8, 3, 2, 4, 4

CASES = {
    "token-mean": (TokenRatio(), TokenMean(), GAPOClip(eps_lo=0.02, eps_max=0.05), 10_000),
    "sequence-mean": (SequenceRatio(), SequenceMeanTokenMean(), GAPOClip(eps_lo=3e-3, eps_max=5e-3), 10_000),
    "matched-width": (SequenceRatio(), SequenceMeanTokenMean(), MatchedWidthClip(eps_lo=3e-3, eps_max=9e-3), 10_000),
    "sequence-sum": (TokenRatio(), SequenceMeanTokenSum(), GAPOClip(eps_lo=0.02, eps_max=0.05), 200),
    "constant-length": (TokenRatio(), ConstantLength(length=9), GAPOClip(eps_lo=0.02, eps_max=0.05), 60),
}
"""Name → ratio, aggregation, clip, micro-batch budget; the small budgets make ranks need different micro-batch
counts.
"""


class Record(L.Callback):
    """Loss and gradient norm of each step."""

    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []

    def on_train_batch_end(self, trainer: L.Trainer, module: L.LightningModule, *rest: object) -> None:
        logged = {k: float(v) for k, v in trainer.callback_metrics.items()}
        self.steps.append({k: v for k, v in logged.items() if "/time/" not in k and "per_second" not in k})


def hopeless_for_second_rank() -> list[int]:
    """The prompts that rank 1 of 2 answers in the first update: it then has no advantage at all."""
    order = prompt_order(PROMPTS, SEED, epoch=0)
    return [order[p] for p in range(1, PER_UPDATE, 2)]


def train(name: str, model: str, strategy: object, devices: int, folder: Path) -> dict[str, object]:
    ratio, aggregation, clip, budget = CASES[name]
    module = PolicyModule(
        model, ratio, GroupMean(), clip, PPOClip(), aggregation, group_size=K,
        optimizer=lambda p: torch.optim.AdamW(p, lr=1e-3, weight_decay=0.0, eps=1e-4),
        micro_batch_tokens=budget // devices,  # other micro-batches in two processes than in one, even a rank
    )  # fmt: skip
    data = RolloutDataModule(
        model, ScriptedPrompts(PROMPTS, hopeless=hopeless_for_second_rank()), ScriptedPrompts(3, "val"),
        ScriptedReward(), ScriptedEngine(), K, PROMPTS, PER_UPDATE, Sampling(max_tokens=9), seed=SEED,
        verify_sync=False,
    )  # fmt: skip
    record = Record()
    trainer = L.Trainer(
        accelerator="cpu", devices=devices, strategy=strategy, max_steps=3, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[record], num_sanity_val_steps=0,
        limit_val_batches=0, default_root_dir=folder, use_distributed_sampler=False,
    )  # fmt: skip
    trainer.fit(module, datamodule=data)
    parameters = {n: p.clone() for n, p in full_parameters(module.gathered_parameters())}
    return {"steps": record.steps, "parameters": parameters}


def main() -> None:
    model, kind, out = sys.argv[1:4]
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    devices = 1 if kind == "single" else 2
    results = {}
    for name in CASES:
        strategy = {"single": "auto", "ddp": "ddp", "fsdp2": None}[kind] or FSDP2Strategy()
        results[name] = train(name, model, strategy, devices, Path(out).parent)
    if not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0:
        torch.save({name: r["parameters"] for name, r in results.items()}, out)
        Path(out).with_suffix(".json").write_text(json.dumps({name: r["steps"] for name, r in results.items()}))


if __name__ == "__main__":
    main()
