"""One prompt's way through the loader and the module: which weights sampled it, which log-probs it is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch

from gapo_lit.clipping.schedules import GAPOClip
from gapo_lit.clipping.surrogate import PPOClip
from gapo_lit.data import RolloutDataModule
from gapo_lit.module import PolicyModule
from gapo_lit.policies.advantages import GroupMean
from gapo_lit.policies.aggregation import SequenceMeanTokenMean
from gapo_lit.policies.kl import K3
from gapo_lit.policies.ratio import SequenceRatio
from gapo_lit.rewards.base import Reward
from gapo_lit.types import Completion, Prompt, Sampling, UpdateBatch, Verdict
from tests.fakes import ScriptedEngine, ScriptedPrompts, ScriptedReward
from tests.tiny import tiny_model

K = 4


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_model(tmp_path_factory.mktemp("model")))


class Watch(L.Callback):
    """Keeps what each step was given and logged, and the parameters after it."""

    def __init__(self) -> None:
        self.batches: list[UpdateBatch] = []
        self.logged: list[dict[str, float]] = []
        self.versions: list[int] = []
        self.parameters: list[torch.Tensor] = []

    def on_train_batch_start(self, trainer: L.Trainer, module: Any, batch: UpdateBatch, index: int) -> None:
        self.batches.append(batch)
        self.versions.append(module.version)

    def on_train_batch_end(self, trainer: L.Trainer, module: Any, *rest: object) -> None:
        self.logged.append({k: float(v) for k, v in trainer.callback_metrics.items()})
        self.parameters.append(torch.cat([p.detach().flatten() for p in module.parameters()]))


def run(
    model: str,
    folder: Path,
    *,
    steps: int = 4,
    learning_rate: float = 1e-3,
    engine: ScriptedEngine | None = None,
    reward: Reward | None = None,
    budget: int = 10_000,
    share: bool = True,
    seed: int = 0,
    validate: bool = False,
    callbacks: Sequence[L.Callback] = (),
    **parts: Any,
) -> Watch:
    module = PolicyModule(
        model, SequenceRatio(), GroupMean(), GAPOClip(3e-3, 5e-3), PPOClip(), SequenceMeanTokenMean(), group_size=K,
        optimizer=lambda p: torch.optim.AdamW(p, lr=learning_rate, weight_decay=0.0),
        micro_batch_tokens=budget, share_prompts=share, **parts,
    )  # fmt: skip
    data = RolloutDataModule(
        model, ScriptedPrompts(9), ScriptedPrompts(3, "val"), reward or ScriptedReward(), engine or ScriptedEngine(), K,
        4, 2, Sampling(max_tokens=9), seed=seed, val_samples=4, verify_sync=False,
    )  # fmt: skip
    watch = Watch()
    L.Trainer(
        accelerator="cpu", max_steps=steps, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[watch, *callbacks], num_sanity_val_steps=-1 if validate else 0,
        default_root_dir=folder, limit_val_batches=None if validate else 0,
        val_check_interval=2 if validate else None, check_val_every_n_epoch=None,
    ).fit(module, datamodule=data)  # fmt: skip
    return watch


def test_rollouts_come_from_the_weights_of_the_last_update(model: str, tmp_path: Path) -> None:
    engine = ScriptedEngine()
    watch = run(model, tmp_path, steps=8, engine=engine)  # 2 rollout batches an epoch, so this crosses an epoch
    assert engine.synced == [0, 2, 4, 6]
    assert engine.generated_at == [0, 2, 4, 6]
    assert [b.rollouts.policy_version + b.index for b in watch.batches] == watch.versions == list(range(8))
    assert {s.policy_version for b in watch.batches for s in b.samples} == {0, 2, 4, 6}
    assert engine.closed == 1


def test_a_stale_update_batch_is_refused(model: str, tmp_path: Path) -> None:
    class Stale(L.Callback):
        def on_train_batch_start(
            self, trainer: L.Trainer, module: L.LightningModule, batch: UpdateBatch, index: int
        ) -> None:
            object.__setattr__(batch.rollouts, "policy_version", -1)

    with pytest.raises(RuntimeError, match="sampled at policy version -1"):
        run(model, tmp_path, callbacks=[Stale()])


def test_the_ratio_is_one_while_the_policy_stands_still(model: str, tmp_path: Path) -> None:
    """Old log-probs of later updates come from another pass over other micro-batches: without a step they must
    agree.
    """
    watch = run(model, tmp_path, learning_rate=0.0, budget=60)
    assert watch.batches[1].old_logprobs is not None
    for logged in watch.logged:
        assert logged["train/ratio/deviation"] < 1e-5


def test_the_clip_binds_once_the_policy_has_moved(model: str, tmp_path: Path) -> None:
    watch = run(model, tmp_path)
    assert watch.logged[0]["train/clip_fraction"] == 0
    assert watch.logged[1]["train/clip_fraction/high"] > 0
    assert watch.logged[1]["train/ratio/deviation"] > 1e-3


@pytest.mark.parametrize(("budget", "share"), [(40, True), (10_000, False), (25, False)])
def test_micro_batches_never_change_the_step(model: str, tmp_path: Path, budget: int, share: bool) -> None:
    whole, cut = run(model, tmp_path), run(model, tmp_path, budget=budget, share=share)
    layout = [[b.sizes for b in watch.batches[1].micro_batches] for watch in (whole, cut)]
    assert layout[0] != layout[1]
    for a, b in zip(whole.logged, cut.logged, strict=True):
        assert a["train/loss"] == pytest.approx(b["train/loss"], rel=1e-4, abs=1e-6)
        assert a["train/grad_norm"] == pytest.approx(b["train/grad_norm"], rel=1e-4)


def test_the_learning_rate_logged_is_the_one_of_the_step(model: str, tmp_path: Path) -> None:
    def warm_up(optimizer: torch.optim.Optimizer) -> Any:
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (step + 1) / 4)

    watch = run(model, tmp_path, lr_scheduler=warm_up)
    assert [m["train/learning_rate"] for m in watch.logged] == pytest.approx([0.25e-3, 0.5e-3, 0.75e-3, 1e-3])


class AllWrong(Reward):
    def __call__(self, prompts: list[Prompt], completions: list[Completion]) -> list[Verdict]:
        return [Verdict.of(False)] * len(prompts)


class NeverJudges(Reward):
    def __call__(self, prompts: list[Prompt], completions: list[Completion]) -> list[Verdict]:
        return [Verdict.none("the verifier is gone")] * len(prompts)


@pytest.mark.parametrize("reward", [AllWrong(), NeverJudges()])
def test_a_batch_without_any_advantage_changes_nothing(model: str, tmp_path: Path, reward: Reward) -> None:
    watch = run(model, tmp_path, reward=reward)
    assert all(torch.equal(watch.parameters[0], p) for p in watch.parameters)
    for logged in watch.logged:
        assert logged["train/loss"] == 0
        assert logged["train/grad_norm"] == 0
        assert logged["train/step_skipped"] == 1
        assert "train/entropy" not in logged  # nothing was computed, so there is nothing to report
    missing = isinstance(reward, NeverJudges)
    assert watch.logged[0]["train/verdicts/none_fraction"] == missing
    assert ("train/reward" in watch.logged[0]) != missing


def test_zero_length_completions_are_harmless(model: str, tmp_path: Path) -> None:
    watch = run(model, tmp_path, engine=ScriptedEngine(lengths=(0, 2)))
    assert all(torch.isfinite(p).all() for p in watch.parameters)


def test_same_seed_same_metrics_other_seed_other_rollouts(model: str, tmp_path: Path) -> None:
    def comparable(watch: Watch) -> list[dict[str, float]]:
        return [{k: v for k, v in m.items() if "time/" not in k and "per_second" not in k} for m in watch.logged]

    first, again, other = (run(model, tmp_path, seed=s) for s in (0, 0, 1))
    assert comparable(first) == comparable(again)
    assert torch.equal(first.parameters[-1], again.parameters[-1])
    assert [s.completion for s in first.batches[0].samples] != [s.completion for s in other.batches[0].samples]


def test_kl_to_the_reference_starts_at_zero_and_grows(model: str, tmp_path: Path) -> None:
    watch = run(model, tmp_path, kl=K3(), kl_coef=0.1)
    assert watch.logged[0]["train/kl"] == pytest.approx(0, abs=1e-6)
    assert watch.logged[-1]["train/kl"] > 1e-6


def test_validation_logs_pass_at_k_before_and_after(model: str, tmp_path: Path) -> None:
    class Validated(L.Callback):
        seen: list[dict[str, float]]

        def __init__(self) -> None:
            self.seen = []

        def on_validation_end(self, trainer: L.Trainer, module: Any) -> None:
            metrics = module.first_validation if trainer.sanity_checking else trainer.callback_metrics
            self.seen.append({k: float(v) for k, v in metrics.items() if k.startswith("val/")})

    validated = Validated()
    run(model, tmp_path, validate=True, callbacks=[validated])
    assert len(validated.seen) == 3  # before training, after updates 2 and 4
    for metrics in validated.seen:
        assert 0 <= metrics["val/pass@1"] <= metrics["val/pass@2"] <= metrics["val/pass@4"] <= 1
