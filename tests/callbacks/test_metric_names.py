"""docs/metrics.md names what is logged, all of it and nothing else."""

import re
from pathlib import Path

import torch

from gapo_lit.callbacks import RunLogger
from gapo_lit.callbacks.history import read_history
from gapo_lit.clipping.schedules import GAPOClip
from gapo_lit.clipping.surrogate import DualClip
from gapo_lit.metrics.pass_at_k import PassAtK
from gapo_lit.metrics.rollouts import rollout_metrics, sample_metrics
from gapo_lit.policies.advantages import GroupMean
from gapo_lit.policies.aggregation import TokenMean
from gapo_lit.policies.kl import K3
from gapo_lit.policies.objective import Objective
from gapo_lit.policies.ratio import SequenceRatio
from gapo_lit.types import LossInputs
from tests.callbacks.fake_run import TIMINGS, group_of, run, update_batch

DOCS = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
# Logged by the module beside what the functions below return.
BY_MODULE = {"loss", "entropy", "grad_norm", "policy_version", "step_skipped", "learning_rate", "time/score"}


def documented() -> set[str]:
    return set(re.findall(r"^\| `([^`]+)` \|", DOCS.read_text(encoding="utf-8"), flags=re.M))


def general(name: str) -> str:
    """A name as the table has it."""
    name = re.sub(r"/c=\d+$", "/c=<c>", name)
    name = re.sub(r"^val/pass@\d+$", "val/pass@<k>", name)
    return re.sub(r"/reward/.+$", "/reward/<part>", name)


def possible() -> set[str]:
    samples = group_of(0, 1) + group_of(1, 3)
    batch = update_batch(samples, 0, 0).rollouts
    zeros = torch.zeros(len(batch), 3)
    objective = Objective(
        SequenceRatio(), GroupMean(), GAPOClip(0.1, 0.2), DualClip(), TokenMean(), kl=K3(), kl_coef=0.1, group_size=4
    )
    inputs = LossInputs(zeros, zeros, zeros, zeros, batch.response_mask, batch.advantages, batch.groups, batch.bounds)
    _, metrics = objective(inputs, torch.tensor(1.0))
    metrics |= objective.skipped_metrics(batch.response_mask, batch.groups) | rollout_metrics(batch, samples)
    train = {f"{name}/c=0" if mean.total.ndim else name for name, mean in metrics.items()}
    train |= BY_MODULE | TIMINGS.keys() | {"reward/format"}
    passed = PassAtK([1])
    passed.update(torch.tensor([4]), torch.tensor([2]))
    val = sample_metrics(samples).keys() | passed.compute().keys() | {"reward", "reward/format"}
    names = {f"train/{name}" for name in train} | {f"val/{name}" for name in val} | {"step", "epoch"}
    return {general(name) for name in names}


def test_the_table_has_every_metric_that_can_be_logged_and_no_other() -> None:
    assert documented() == possible()


def test_the_names_of_a_run_are_in_the_table(tmp_path: Path) -> None:
    trainer = run(tmp_path)
    logger = trainer.loggers[0]
    assert isinstance(logger, RunLogger)
    logged = {general(name) for row in read_history(logger.metrics_path).rows for name in row}
    assert len(logged) > 10
    assert logged <= documented()
