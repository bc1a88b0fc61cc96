"""What must never change a loss or a gradient, for every ratio, surrogate and aggregation."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from policy_inputs import AGGREGATIONS, GARBAGE, RATIOS, SURROGATES, loss_and_grad, name_of, random_inputs, select

from gapo_lit.clipping import ConstantClip, GAPOClip, PPOClip
from gapo_lit.policies import (
    K3,
    GroupMean,
    GroupStd,
    Objective,
    SequenceMeanTokenMean,
    SequenceRatio,
    TokenRatio,
    TruncatedImportance,
)
from gapo_lit.types import LossInputs

pytestmark = pytest.mark.usefixtures("float64")

few = settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
seeds = st.integers(0, 10**6)
garbage = st.sampled_from(GARBAGE)
drifts = st.sampled_from([0.0, 0.01, 0.3, 3.0, 30.0])
compositions = pytest.mark.parametrize(
    ("ratio", "surrogate", "aggregation"),
    list(itertools.product(RATIOS, SURROGATES, AGGREGATIONS)),
    ids=lambda part: name_of(part),
)


def compose(ratio, surrogate, aggregation, everything=False, k=4):
    extra = {"kl": K3(), "kl_coef": 0.1, "correction": TruncatedImportance()} if everything else {}
    return Objective(ratio, GroupMean(), GAPOClip(0.05, 0.2), surrogate, aggregation, group_size=k, **extra)


def assert_same(actual, expected, rtol=1e-9):
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=1e-12)


@compositions
@few
@given(seed=seeds, drift=drifts, fill=garbage, extra=st.integers(1, 5), everything=st.booleans())
def test_padding_changes_nothing(ratio, surrogate, aggregation, seed, drift, fill, extra, everything):
    objective = compose(ratio, surrogate, aggregation, everything)
    inputs = random_inputs(seed, drift=drift, garbage=0.0)
    loss, grad, metrics = loss_and_grad(objective, inputs)

    def pad(values, value):
        wide = torch.cat([values, values.new_zeros(len(values), extra)], 1)
        mask = torch.nn.functional.pad(inputs.response_mask, (0, extra))
        return torch.where(mask, wide, value)

    names = ("logprobs", "old_logprobs", "sampler_logprobs", "ref_logprobs")
    wider = {name: pad(getattr(inputs, name), fill) for name in names}
    padded = replace(inputs, **wider, response_mask=torch.nn.functional.pad(inputs.response_mask, (0, extra)))
    padded_loss, padded_grad, padded_metrics = loss_and_grad(objective, padded)
    assert_same(padded_loss, loss)
    assert_same(padded_grad, torch.nn.functional.pad(grad, (0, extra)))
    for name, mean in metrics.items():
        assert_same(padded_metrics[name].total, mean.total)


@compositions
@few
@given(seed=seeds, drift=drifts, everything=st.booleans())
def test_row_order_changes_nothing(ratio, surrogate, aggregation, seed, drift, everything):
    objective = compose(ratio, surrogate, aggregation, everything)
    inputs = random_inputs(seed, drift=drift)
    order = torch.randperm(len(inputs.advantages), generator=torch.Generator().manual_seed(seed))
    loss, grad, _ = loss_and_grad(objective, inputs)
    shuffled_loss, shuffled_grad, _ = loss_and_grad(objective, select(inputs, order))
    assert_same(shuffled_loss, loss)
    assert_same(shuffled_grad, grad[order])


@compositions
@few
@given(seed=seeds, drift=drifts, parts=st.integers(2, 5), everything=st.booleans())
def test_micro_batching_changes_nothing(ratio, surrogate, aggregation, seed, drift, parts, everything):
    objective = compose(ratio, surrogate, aggregation, everything)
    inputs = random_inputs(seed, drift=drift)
    denominator = objective.denominator(inputs.response_mask)
    loss, grad, metrics = loss_and_grad(objective, inputs)
    owner = torch.randint(parts, (len(grad),), generator=torch.Generator().manual_seed(seed))
    total, sums, count = torch.zeros(()), {}, 0
    for part in range(parts):
        rows = (owner == part).nonzero().flatten()
        micro = select(inputs, rows)
        micro_loss, micro_grad, micro_metrics = loss_and_grad(objective, micro, denominator)
        total = total + micro_loss
        count = count + objective.denominator(micro.response_mask)
        assert_same(micro_grad, grad[rows])
        sums = {name: mean + sums[name] if sums else mean for name, mean in micro_metrics.items()}
    assert count == denominator
    assert_same(total, loss)
    for name, mean in metrics.items():
        assert_same(sums[name].total, mean.total)
        assert torch.equal(sums[name].count, mean.count)


@compositions
@few
@given(seed=seeds, drift=drifts)
def test_rollouts_without_advantage_may_be_skipped(ratio, surrogate, aggregation, seed, drift):
    objective = compose(ratio, surrogate, aggregation)
    assert objective.exact_zero_skip
    inputs = random_inputs(seed, drift=drift)
    loss, grad, metrics = loss_and_grad(objective, inputs)
    trained, skipped = inputs.advantages != 0, inputs.advantages == 0
    kept = select(inputs, trained)
    kept_loss, kept_grad, kept_metrics = loss_and_grad(objective, kept, objective.denominator(inputs.response_mask))
    assert_same(kept_loss, loss)
    assert_same(kept_grad, grad[trained])
    assert (grad[skipped] == 0).all()
    rest = objective.skipped_metrics(inputs.response_mask[skipped], inputs.groups.select(skipped))
    assert rest.keys() == {name for name in metrics if "clip_fraction" in name}
    for name, mean in rest.items():
        both = mean + kept_metrics[name]
        assert_same(both.total, metrics[name].total)
        assert torch.equal(both.count, metrics[name].count)


@compositions
@few
@given(
    seed=seeds,
    drift=st.sampled_from([0.0, 1.0, 100.0, 1e4]),
    fill=garbage,
    advantage=st.sampled_from([None, 0.0, 1.0, -1.0]),
    masked=st.booleans(),
    everything=st.booleans(),
)
def test_nothing_is_ever_nan(ratio, surrogate, aggregation, seed, drift, fill, advantage, masked, everything):
    objective = compose(ratio, surrogate, aggregation, everything)
    inputs = random_inputs(seed, drift=drift, garbage=fill, dtype=torch.float32)
    if advantage is not None:
        inputs = replace(inputs, advantages=torch.full_like(inputs.advantages, advantage))
    if masked:
        inputs = replace(inputs, response_mask=torch.zeros_like(inputs.response_mask))
    loss, grad, metrics = loss_and_grad(objective, inputs)
    assert torch.isfinite(loss)
    assert torch.isfinite(grad).all()
    assert all(torch.isfinite(mean.total).all() for mean in metrics.values())
    assert (grad[~inputs.response_mask] == 0).all()
    if masked or (advantage == 0 and not everything):
        assert loss == 0
        assert (grad == 0).all()


@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize("size", [1e2, 1e4])
@compositions
def test_log_ratios_of_one_size_stay_finite(ratio, surrogate, aggregation, sign, size):
    inputs = random_inputs(0, drift=0.0, dtype=torch.float32)
    moved = replace(inputs, logprobs=inputs.logprobs + sign * size)
    loss, grad, metrics = loss_and_grad(compose(ratio, surrogate, aggregation), moved)
    assert torch.isfinite(loss)
    assert torch.isfinite(grad).all()
    assert all(torch.isfinite(mean.total).all() for mean in metrics.values())


@compositions
@few
@given(seed=seeds)
def test_ratios_of_one_token_do_not_depend_on_the_level(ratio, surrogate, aggregation, seed):
    inputs = random_inputs(seed, tokens=1, drift=2.0)
    loss, grad, _ = loss_and_grad(compose(ratio, surrogate, aggregation), inputs)
    for other in RATIOS:
        other_loss, other_grad, _ = loss_and_grad(compose(other, surrogate, aggregation), inputs)
        assert torch.equal(other_loss, loss)
        assert torch.equal(other_grad, grad)


@few
@given(seed=seeds, eps=st.sampled_from([3e-3, 0.05, 0.2]), drift=drifts)
def test_gapo_with_equal_ends_is_symmetric_gspo(seed, eps, drift):
    inputs = random_inputs(seed, drift=drift)
    results = []
    for clip in (GAPOClip(eps, eps), ConstantClip(eps, eps)):
        objective = Objective(SequenceRatio(), GroupMean(), clip, PPOClip(), SequenceMeanTokenMean(), group_size=4)
        results.append(loss_and_grad(objective, replace(inputs, bounds=clip(inputs.groups))))
    (loss, grad, metrics), (other_loss, other_grad, other_metrics) = results
    assert torch.equal(loss, other_loss)
    assert torch.equal(grad, other_grad)
    assert all(torch.equal(metrics[name].total, other_metrics[name].total) for name in metrics)


@few
@given(seed=seeds, k=st.integers(2, 6))
def test_credit_depends_on_group_ids_alone(seed, k):
    g = torch.Generator().manual_seed(seed)
    group = torch.randint(5, (5 * k,), generator=g)
    correct = torch.rand(5 * k, generator=g) < 0.5
    objective = Objective(SequenceRatio(), GroupStd(), GAPOClip(0.1, 0.2), PPOClip(), SequenceMeanTokenMean())
    advantages, stats, bounds = objective.credit(correct.double(), correct, group)
    order = torch.randperm(len(group), generator=g)
    renamed = torch.tensor([7, -3, 100, 0, 12])[group][order]
    other_advantages, other_stats, other_bounds = objective.credit(correct.double()[order], correct[order], renamed)
    assert_same(other_advantages, advantages[order])
    assert torch.equal(other_stats.success_count, stats.success_count[order])
    assert torch.equal(other_stats.group_size, stats.group_size[order])
    assert_same(other_bounds.eps_hi, bounds.eps_hi[order])


def test_an_empty_micro_batch_is_nothing():
    objective = compose(TokenRatio(), PPOClip(), SequenceMeanTokenMean(), everything=True)
    inputs = random_inputs(0)
    nothing: LossInputs = select(inputs, torch.zeros(0, dtype=torch.long))
    loss, grad, metrics = loss_and_grad(objective, nothing, objective.denominator(inputs.response_mask))
    assert loss == 0
    assert grad.shape == (0, 6)
    assert metrics["clip_fraction"].count == 0
    assert math.isnan(metrics["clip_fraction"].value)
