"""What the objective adds to its parts: the KL term, weights, metrics by success count, and its refusals."""

import math
from dataclasses import replace

import pytest
import torch
from policy_inputs import loss_and_grad, random_inputs

from gapo_lit.clipping import ConstantClip, DualClip, GAPOClip, PPOClip, Surrogate
from gapo_lit.policies import (
    K1,
    K3,
    GroupMean,
    Objective,
    SequenceMeanTokenMean,
    SequenceRatio,
    TokenMean,
    TokenRatio,
    TruncatedImportance,
)
from gapo_lit.types import LossInputs


def objective(**settings):
    parts = {
        "ratio": TokenRatio(),
        "advantage": GroupMean(),
        "clip": GAPOClip(0.05, 0.2),
        "surrogate": PPOClip(),
        "aggregation": TokenMean(),
    }
    return Objective(**parts | settings)


def test_a_few_gradient_steps_outside_lightning():
    """The scarce right answer of a group of four gains probability, until its clip stops it."""
    scores = torch.zeros(4, 5, requires_grad=True)
    sampled = torch.tensor([[2], [0], [1], [4]])
    gapo = Objective(SequenceRatio(), GroupMean(), GAPOClip(0.1, 0.4), PPOClip(), SequenceMeanTokenMean(), group_size=4)
    rewards = torch.tensor([1.0, 0.0, 0.0, 0.0])
    advantages, groups, bounds = gapo.credit(rewards, rewards > 0, torch.zeros(4, dtype=torch.long))
    mask = torch.ones(4, 1, dtype=torch.bool)
    old = scores.log_softmax(1).gather(1, sampled).detach()
    for _ in range(20):
        log_probs = scores.log_softmax(1).gather(1, sampled)
        inputs = LossInputs(log_probs, old, old, None, mask, advantages, groups, bounds)
        loss, metrics = gapo(inputs, gapo.denominator(mask))
        (grad,) = torch.autograd.grad(loss, scores)
        scores = (scores - grad).detach().requires_grad_()
    ratio = (log_probs - old).exp().flatten()
    assert ratio[0] > 1.4
    assert metrics["by_count/clip_fraction_high"].value[1] == 0.25
    assert metrics["clip_fraction/low"].value == 0.75


def test_kl_term_adds_to_the_loss_and_its_metric():
    inputs = random_inputs(1)
    mask, denominator = inputs.response_mask, inputs.response_mask.sum()
    plain, plain_grad, _ = loss_and_grad(objective(), inputs)
    loss, grad, metrics = loss_and_grad(objective(kl=K1(), kl_coef=0.5), inputs)
    kl = torch.where(mask, inputs.logprobs - inputs.ref_logprobs, 0.0).sum()
    torch.testing.assert_close(metrics["kl"].total, kl)
    torch.testing.assert_close(loss, plain + 0.5 * kl / denominator)
    torch.testing.assert_close(grad, plain_grad + 0.5 * mask / denominator)


def test_correction_weighs_the_surrogate_and_not_the_kl():
    inputs = random_inputs(2)
    sure = replace(inputs, sampler_logprobs=inputs.old_logprobs - 5, advantages=inputs.advantages * 0)
    parts = {"kl": K3(), "kl_coef": 0.1}
    assert (
        loss_and_grad(objective(**parts), sure)[0]
        == loss_and_grad(objective(**parts, correction=TruncatedImportance()), sure)[0]
    )
    moved = replace(inputs, sampler_logprobs=inputs.old_logprobs - 5)
    torch.testing.assert_close(
        loss_and_grad(objective(correction=TruncatedImportance(cap=2.0)), moved)[0],
        2 * loss_and_grad(objective(), moved)[0],
    )


def test_metrics_by_success_count():
    inputs = random_inputs(3, groups=5, drift=1.0)
    _, _, metrics = loss_and_grad(objective(group_size=4, surrogate=DualClip()), inputs)
    counts = inputs.groups.success_count
    mask = inputs.response_mask
    for name, whole in (
        ("clip_fraction_low", "clip_fraction/low"),
        ("clip_fraction_high", "clip_fraction/high"),
        ("ratio_deviation", "ratio/deviation"),
    ):
        binned = metrics[f"by_count/{name}"]
        assert binned.total.shape == (5,)
        torch.testing.assert_close(binned.total.sum(), metrics[whole].total, check_dtype=False)
        assert binned.count.tolist() == [mask[counts == c].sum() for c in range(5)]
    # in a group that is all right or all wrong nothing can clip
    assert metrics["by_count/clip_fraction_low"].total[[0, 4]].tolist() == [0, 0]
    either = metrics["clip_fraction/low"].total + metrics["clip_fraction/high"].total
    assert metrics["clip_fraction"].total == either > 0
    deviation = torch.where(mask, ((inputs.logprobs - inputs.old_logprobs).exp() - 1).abs(), 0.0).sum()
    torch.testing.assert_close(metrics["ratio/deviation"].total, deviation)
    assert all(not mean.total.requires_grad for mean in metrics.values())


def test_metric_names_follow_the_parts():
    inputs = random_inputs(4)
    plain = set(loss_and_grad(objective(), inputs)[2])
    assert plain == {
        "clip_fraction",
        "clip_fraction/low",
        "clip_fraction/high",
        "ratio/deviation",
        "mismatch/logprob_abs_diff",
        "mismatch/ratio",
        "mismatch/kl",
    }
    full = set(loss_and_grad(objective(kl=K3(), surrogate=DualClip(), group_size=4), inputs)[2])
    assert full - plain == {
        "kl",
        "clip_fraction/dual",
        "by_count/clip_fraction_low",
        "by_count/clip_fraction_high",
        "by_count/ratio_deviation",
    }


def test_skipping_is_exact_only_without_other_terms():
    class Entropic(Surrogate):
        zero_without_advantage = False

        def __call__(self, log_ratio, inputs):
            raise NotImplementedError

    assert objective().exact_zero_skip
    assert objective(correction=TruncatedImportance()).exact_zero_skip
    assert not objective(kl=K3(), kl_coef=0.1).exact_zero_skip
    assert not objective(surrogate=Entropic()).exact_zero_skip
    assert objective(kl=K3()).needs_reference
    assert not objective().needs_reference


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kl_coef": 0.1}, "without a KL estimator"),
        ({"kl": K3(), "kl_coef": -1.0}, "kl_coef=-1.0"),
        ({"kl": K3(), "kl_coef": math.nan}, "kl_coef=nan"),
        ({"group_size": 1}, "group_size=1"),
        ({"group_size": 0, "clip": ConstantClip(0.2, 0.2)}, "group_size=0"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        objective(**settings)


def test_a_missing_reference_is_named():
    inputs = replace(random_inputs(5), ref_logprobs=None)
    with pytest.raises(ValueError, match="ref_logprobs is None"):
        loss_and_grad(objective(kl=K3()), inputs)
