"""Names in docs/metrics.md that no shipped recipe's run logs; whole runs are compared in `tests/test_end_to_end.py`."""

from dataclasses import replace
from pathlib import Path

import torch

from gapo_lit.callbacks import RunLogger
from gapo_lit.callbacks.history import read_history
from gapo_lit.clipping.schedules import GAPOClip
from gapo_lit.clipping.surrogate import DualClip
from gapo_lit.metrics.rollouts import sample_metrics
from gapo_lit.policies.advantages import GroupMean
from gapo_lit.policies.aggregation import TokenMean
from gapo_lit.policies.kl import K3
from gapo_lit.policies.objective import Objective
from gapo_lit.policies.ratio import SequenceRatio
from gapo_lit.types import LossInputs
from tests.callbacks.fake_run import group_of, run, update_batch
from tests.processes import as_documented, documented


def test_a_reference_model_and_a_dual_clip_add_the_documented_names() -> None:
    batch = update_batch(group_of(0, 1) + group_of(1, 3), 0, 0).rollouts
    zeros = torch.zeros(len(batch), 3)
    objective = Objective(
        SequenceRatio(), GroupMean(), GAPOClip(0.1, 0.2), DualClip(), TokenMean(), kl=K3(), kl_coef=0.1, group_size=4
    )
    inputs = LossInputs(zeros, zeros, zeros, zeros, batch.response_mask, batch.advantages, batch.groups, batch.bounds)
    _, metrics = objective(inputs, torch.tensor(1.0))
    names = {
        as_documented(f"train/{name}/c=1" if mean.total.ndim else f"train/{name}") for name, mean in metrics.items()
    }
    assert {"train/kl", "train/clip_fraction/dual"} <= names
    assert names <= documented()


def test_the_parts_of_a_combined_reward_have_the_documented_names() -> None:
    samples = [replace(s, verdict=replace(s.verdict, components={"format": 1.0})) for s in group_of(0, 2)]
    assert "reward/format" in sample_metrics(samples)
    assert {"train/reward/<part>", "val/reward/<part>"} <= documented()


def test_the_run_that_callbacks_are_tested_with_logs_what_real_runs_do(tmp_path: Path) -> None:
    trainer = run(tmp_path)
    logger = trainer.loggers[0]
    assert isinstance(logger, RunLogger)
    logged = {as_documented(name) for row in read_history(logger.metrics_path).rows for name in row}
    assert len(logged) > 10
    assert logged <= documented()
