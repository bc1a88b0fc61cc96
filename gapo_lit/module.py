"""The policy in training: `prepare` completes a rollout batch, `training_step` is one optimizer step on a part of
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any

import lightning as L
import torch
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor, nn

from gapo_lit import sharding
from gapo_lit.batching import rollout_batch, token_batch, update_batches
from gapo_lit.clipping.schedules import ClipSchedule
from gapo_lit.clipping.surrogate import Surrogate
from gapo_lit.evaluation.problems import Evaluation, Problem
from gapo_lit.evaluation.results import scalars
from gapo_lit.language_model import load_model, sharing_obstacle
from gapo_lit.logprobs import response_logprobs
from gapo_lit.metrics.rollouts import add_metrics, reduce_metrics, rollout_metrics
from gapo_lit.packing import plan_micro_batches
from gapo_lit.policies.advantages import Advantage
from gapo_lit.policies.aggregation import Aggregation
from gapo_lit.policies.correction import Correction
from gapo_lit.policies.kl import KLEstimator
from gapo_lit.policies.masking import masked_mean
from gapo_lit.policies.objective import Objective
from gapo_lit.policies.ratio import Ratio
from gapo_lit.types import EvaluationBatch, LossInputs, Mean, Metrics, MicroBatch, Rollout, RolloutBatch, UpdateBatch


def adamw(parameters: Any) -> torch.optim.Optimizer:
    """AdamW at the paper's constant rate, 1e-6, without weight decay."""
    return torch.optim.AdamW(parameters, lr=1e-6, weight_decay=0.0)


class PolicyModule(L.LightningModule):
    """A causal language model trained by a composed policy objective.

    model: folder or hub name. ratio, advantage, clip, surrogate, aggregation, kl, correction: the objective's parts.
    group_size: k, for metrics by success count. optimizer, lr_scheduler: as in any LightningCLI recipe; the scheduler
    steps once an update. max_grad_norm: global gradient norm limit (None: none); replaces Trainer.gradient_clip_val,
    which Lightning refuses under manual optimisation. micro_batch_tokens: most tokens, prompts and padding included, in
    one forward pass: bounds memory and never changes the gradient. share_prompts: compute a prompt once for its group.
    gradient_checkpointing: recompute activations in the backward pass.
    """

    def __init__(
        self,
        model: str,
        ratio: Ratio,
        advantage: Advantage,
        clip: ClipSchedule,
        surrogate: Surrogate,
        aggregation: Aggregation,
        group_size: int,
        kl: KLEstimator | None = None,
        kl_coef: float = 0.0,
        correction: Correction | None = None,
        optimizer: OptimizerCallable = adamw,
        lr_scheduler: LRSchedulerCallable | None = None,
        max_grad_norm: float | None = 1.0,
        micro_batch_tokens: int = 16384,
        share_prompts: bool = True,
        gradient_checkpointing: bool = False,
        attention: str = "sdpa",
    ) -> None:
        super().__init__()
        if micro_batch_tokens < 1:
            raise ValueError(f"micro_batch_tokens={micro_batch_tokens} holds no token; give at least 1")
        if max_grad_norm is not None and not max_grad_norm > 0:
            raise ValueError(
                f"max_grad_norm={max_grad_norm} would stop all learning; give a positive norm, or null for no limit"
            )
        self.automatic_optimization = False
        self.objective = Objective(
            ratio,
            advantage,
            clip,
            surrogate,
            aggregation,
            group_size=group_size,
            kl=kl,
            kl_coef=kl_coef,
            correction=correction,
        )
        self.model_name = model
        self.optimizer_factory, self.scheduler_factory = optimizer, lr_scheduler
        self.max_grad_norm = max_grad_norm
        self.micro_batch_tokens = micro_batch_tokens
        self.share_prompts = share_prompts
        self.gradient_checkpointing = gradient_checkpointing
        self.attention = attention
        self.model: nn.Module | None = None
        self._reference: list[nn.Module] = []  # in a list: neither optimised nor saved
        self.first_validation: dict[str, float] = {}
        self.problems: list[Problem] = []  # of the latest evaluation, over all ranks

    # Building

    def configure_model(self) -> None:
        """Load the weights and shard them, once; Lightning calls this on every rank, before optimizers are made."""
        if self.model is not None:
            return
        sharding.check_strategy(self.trainer.strategy)
        self.model = self._load(trainable=True)
        if self.objective.needs_reference:
            self._reference = [self._load(trainable=False).requires_grad_(False)]
        obstacle = sharing_obstacle(self.model) if self.share_prompts else None
        if obstacle is not None:
            raise ValueError(f"share_prompts=true cannot be: {obstacle}; set share_prompts: false")

    def _load(self, trainable: bool) -> nn.Module:
        model = load_model(self.model_name, self.attention, self.gradient_checkpointing and trainable)
        if self.device_mesh is not None:
            mesh = sharding.data_parallel_mesh(self.device_mesh, self.trainer.world_size)
            sharding.shard(model, mesh, str(self.trainer.precision))
        return model

    def configure_optimizers(self) -> Any:
        """One optimizer over the policy's parameters, and the scheduler if the recipe has one."""
        optimizer = self.optimizer_factory(self.parameters())
        if self.scheduler_factory is None:
            return optimizer
        return [optimizer], [self.scheduler_factory(optimizer)]

    def on_fit_start(self) -> None:
        """Bring the reference model to the policy's device."""
        for reference in self._reference:
            reference.to(self.device)

    # What the rollout side needs of the policy

    @property
    def version(self) -> int:
        """How many optimizer steps the weights have seen."""
        return int(self.trainer.global_step)

    @property
    def exact(self) -> bool:
        """Whether it scores in float32."""
        return str(self.trainer.precision) == "32-true"

    def gathered_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """(name, parameter), for `sync_weights` to hand on; every rank must walk it to the end."""
        return sharding.gathered_parameters(self._wrapped, self._model)

    @torch.no_grad()
    def score(
        self, prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]], temperature: float
    ) -> list[Tensor]:
        """log-probs of one response to each prompt; a collective under sharding. Each result is (len(response),).

        Equal prompts that follow one another share a packed row as in training, so that a check covers that layout.
        """
        runs = [list(run) for _, run in groupby(range(len(prompts)), key=lambda i: tuple(prompts[i]))]
        sizes = [len(run) for run in runs] if self.share_prompts else [1] * len(prompts)
        group = [row for row, run in enumerate(runs) for _ in run]
        nothing = [[0.0] * len(r) for r in responses]
        batch = token_batch([prompts[run[0]] for run in runs], group, responses, nothing, temperature, self.version)
        logprobs, _ = self._score(batch.to(self.device), sizes)
        return [row[: len(r)].cpu() for row, r in zip(logprobs, responses, strict=True)]

    def prepare(self, samples: Sequence[Rollout], updates: int, temperature: float) -> list[UpdateBatch]:
        """Complete a rollout batch: advantages, clip bounds, denominators, and old log-probs where weights will have
        moved.
        """
        rollouts = rollout_batch(samples, temperature, self.objective, self._ranks)
        plan = partial(plan_micro_batches, token_budget=self.micro_batch_tokens, share_prompts=self.share_prompts)
        batches = update_batches(rollouts, samples, updates, self.objective, plan, self._ranks)
        return [
            batch if batch.index == 0 else replace(batch, old_logprobs=self._old_logprobs(batch)) for batch in batches
        ]

    @torch.no_grad()
    def _old_logprobs(self, batch: UpdateBatch) -> Tensor:
        rollouts = batch.rollouts.to(self.device)
        old = torch.zeros_like(rollouts.sampler_logprobs)
        for micro in batch.micro_batches:
            part, sizes = self._part(rollouts, micro)
            logprobs, _ = self._score(part, sizes)
            if len(micro.rows):
                old[micro.rows.to(self.device), : logprobs.shape[1]] = logprobs
        return old.cpu()

    def forward(self, rollouts: RolloutBatch, sizes: Sequence[int]) -> tuple[Tensor, Tensor]:
        """`response_logprobs` of the policy; the way in from outside `training_step`, through the strategy's
        wrapper.
        """
        return response_logprobs(self._model, rollouts, sizes)

    def _score(self, rollouts: RolloutBatch, sizes: Sequence[int]) -> tuple[Tensor, Tensor]:
        with self.trainer.precision_plugin.forward_context():
            result: tuple[Tensor, Tensor] = self._wrapped(rollouts, sizes)
        return result

    # Learning

    def training_step(self, batch: UpdateBatch, batch_idx: int) -> None:
        """One optimizer step: micro-batches, gradients averaged on the last, clipped, applied."""
        sampled_at = batch.rollouts.policy_version
        if self.version != sampled_at + batch.index:
            raise RuntimeError(
                f"update {batch.index} of a rollout batch sampled at policy version {sampled_at} reached version "
                f"{self.version}; it belongs to version {sampled_at + batch.index}. A loader without a length makes "
                "Lightning fetch ahead."
            )
        optimizer: Any = self.optimizers()
        metrics = self._skipped_metrics(batch)
        for i, micro in enumerate(batch.micro_batches):
            with sharding.gradient_sync(self._wrapped, self._model, on=i == len(batch.micro_batches) - 1):
                loss, parts = self._micro_batch_loss(batch, micro)
                # DDP and FSDP average over ranks; the denominator already counts all of them, so the sum is wanted.
                self.manual_backward(loss * self.trainer.world_size)
            metrics = add_metrics(metrics, parts)
        norm = self._clip_gradients()
        learning_rate = optimizer.param_groups[0]["lr"]
        # Without a backward pass there are no gradients, and the step is empty: parameters and moments stay as they
        # are.
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        scheduler: Any = self.lr_schedulers()
        if scheduler is not None:
            scheduler.step()
        self._log_step(batch, metrics, {"grad_norm": float(norm), "learning_rate": learning_rate})

    def _micro_batch_loss(self, batch: UpdateBatch, micro: MicroBatch) -> tuple[Tensor, Metrics]:
        part, sizes = self._part(batch.rollouts, micro)
        logprobs, entropy = sharding.forward(self._wrapped, self, part, sizes)
        old = logprobs.detach()
        if batch.old_logprobs is not None and len(micro.rows):
            old = batch.old_logprobs[micro.rows.to(self.device), : logprobs.shape[1]]
        reference = None
        if self._reference:
            with torch.no_grad():
                reference, _ = response_logprobs(self._reference[0], part, sizes)
        mask = part.response_mask
        inputs = LossInputs(
            logprobs, old, part.sampler_logprobs, reference, mask, part.advantages, part.groups, part.bounds
        )
        loss, metrics = self.objective(inputs, batch.denominator)
        metrics["loss"] = Mean(loss.detach(), torch.zeros_like(loss))
        metrics["entropy"] = masked_mean(entropy, mask)
        return loss, metrics

    def _skipped_metrics(self, batch: UpdateBatch) -> Metrics:
        """Rollouts that need no gradient are unclipped by definition; they count, so that a fraction is of all
        tokens.
        """
        computed = [micro.rows for micro in batch.micro_batches]
        skipped = torch.ones(len(batch.rollouts), dtype=torch.bool)
        skipped[torch.cat([torch.zeros(0, dtype=torch.long), *computed])] = False
        part = batch.rollouts.select(skipped.nonzero()[:, 0].to(self.device))
        # Parts of the loss are divided by the denominator already: they add up, over ranks too, so all ranks count as
        # one.
        loss = Mean(
            torch.zeros((), device=self.device), torch.tensor(1.0 / self.trainer.world_size, device=self.device)
        )
        return {"loss": loss, **self.objective.skipped_metrics(part.response_mask, part.groups)}

    def _clip_gradients(self) -> Tensor:
        norm = sharding.clip_gradients(self._wrapped, list(self.parameters()), self.max_grad_norm)
        if not torch.isfinite(norm):
            raise RuntimeError(
                f"the gradient norm is {float(norm)} at update {self.version}; the step was not taken. "
                "Look for a diverged policy (entropy, kl) or a log-prob of -inf in the rollouts."
            )
        return norm

    def _log_step(self, batch: UpdateBatch, metrics: Metrics, step: dict[str, float]) -> None:
        metrics = {**metrics, **rollout_metrics(batch.rollouts.to(torch.device("cpu")), batch.samples)}
        values = reduce_metrics(metrics, self._ranks) | step | dict(batch.timings)
        values["policy_version"] = float(batch.rollouts.policy_version)
        values["step_skipped"] = float(not batch.micro_batches)
        self._record({f"train/{name}": value for name, value in values.items()})

    def _record(self, values: dict[str, float]) -> None:
        """Write one row under the policy version it belongs to; values are those of all ranks already.

        Lightning's own way to the loggers would repeat a name's last value in every later row that lacks it, and count
        steps from the one before.
        """
        self.log_dict(values, logger=False, batch_size=1)
        for logger in self.trainer.loggers:
            logger.log_metrics(values, step=self.version)
            logger.save()

    # Evaluation

    def on_validation_epoch_start(self) -> None:
        """Start counting."""
        self._evaluation = Evaluation()

    def on_test_epoch_start(self) -> None:
        """Start counting."""
        self._evaluation = Evaluation()

    def validation_step(self, batch: EvaluationBatch, batch_idx: int) -> None:
        """Count what the verifier said."""
        self._evaluation.update(batch)

    def test_step(self, batch: EvaluationBatch, batch_idx: int) -> None:
        """Count what the verifier said."""
        self._evaluation.update(batch)

    def on_validation_epoch_end(self) -> None:
        """Log under val/; the check before training is logged as step 0."""
        values = self._evaluated("validate", lambda name: "val")
        if self.trainer.sanity_checking:
            self.first_validation = values
        self._record(values)

    def on_test_epoch_end(self) -> None:
        """Log under test/<benchmark>/."""
        self._record(self._evaluated("test", lambda name: f"test/{name}"))

    def _evaluated(self, stage: str, prefix: Callable[[str], str]) -> dict[str, float]:
        """Gather the problems of all ranks into `problems`, and their figures under a prefix a benchmark."""
        self.problems = self._evaluation.compute(self._ranks)
        figures = {task.name: task.reward.figures for task in self.trainer.datamodule.tasks(stage)}  # type: ignore[attr-defined]
        return {
            f"{prefix(benchmark)}/{name}": value
            for benchmark, problems in groupby(self.problems, key=lambda problem: problem.benchmark)
            for name, value in scalars(list(problems), figures[benchmark]).items()
        }

    # Small helpers

    @property
    def _model(self) -> nn.Module:
        if self.model is None:
            raise RuntimeError("the model is built in configure_model, which Lightning calls; run this under a Trainer")
        return self.model

    @property
    def _wrapped(self) -> nn.Module:
        """The LightningModule as the strategy wrapped it."""
        wrapped: nn.Module = self.trainer.strategy.model or self
        return wrapped

    def _part(self, rollouts: RolloutBatch, micro: MicroBatch) -> tuple[RolloutBatch, Sequence[int]]:
        """The rollouts of a micro-batch; for one without rows a single masked token, to keep step with other ranks."""
        if len(micro.rows):
            return rollouts.select(micro.rows.to(self.device)), micro.sizes
        token = token_batch([[0]], [0], [[0]], [[0.0]], rollouts.temperature, rollouts.policy_version)
        return replace(token, response_lengths=torch.zeros(1, dtype=torch.long)).to(self.device), [1]

    @property
    def _ranks(self) -> sharding.Collectives:
        return sharding.Collectives(self.trainer.strategy)
