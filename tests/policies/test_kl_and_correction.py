import math

import pytest
import torch

from gapo_lit.policies import K1, K2, K3, TruncatedImportance, mismatch_metrics

ESTIMATORS = [K1(), K2(), K3()]


def test_kl_values():
    policy, reference = torch.tensor([[-1.0, -2.0]]), torch.tensor([[-1.5, -1.0]])
    torch.testing.assert_close(K1()(policy, reference), torch.tensor([[0.5, -1.0]]))
    torch.testing.assert_close(K2()(policy, reference), torch.tensor([[0.125, 0.5]]))
    torch.testing.assert_close(K3()(policy, reference), torch.tensor([[math.exp(-0.5) - 0.5, math.e - 2]]))


def test_kl_in_expectation():
    """Over the policy's own distribution k1 and k3 equal the KL, and k2's gradient is the KL's."""
    logits = torch.randn(7, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    reference = torch.randn(7, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).log_softmax(0)
    policy = logits.log_softmax(0)
    probability = policy.exp().detach()
    kl = (policy.exp() * (policy - reference)).sum()
    for estimator in (K1(), K3()):
        torch.testing.assert_close((probability * estimator(policy, reference)).sum(), kl)
    (kl_grad,) = torch.autograd.grad(kl, logits, retain_graph=True)
    grads = [
        torch.autograd.grad((probability * e(policy, reference)).sum(), logits, retain_graph=True)[0]
        for e in ESTIMATORS
    ]
    torch.testing.assert_close(grads[0], torch.zeros_like(kl_grad))
    torch.testing.assert_close(grads[1], kl_grad)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("distance", [-1e4, 0.0, 1e4])
def test_kl_is_finite(estimator, distance):
    leaf = torch.full((1, 3), distance, requires_grad=True)
    value = estimator(leaf, torch.zeros(1, 3))
    (grad,) = torch.autograd.grad(value.sum(), leaf)
    assert torch.isfinite(value).all()
    assert torch.isfinite(grad).all()
    assert distance != 0 or (value == 0).all()


MASK = torch.tensor([[True, True, False], [True, True, True], [False, False, False]])
OLD = torch.tensor([[-1.0, -1.0, math.nan], [-2.0, -1.0, -0.5], [math.nan] * 3])
SAMPLER = torch.tensor([[-3.0, -0.9, -math.inf], [-1.0, -1.0, -0.7], [-math.inf] * 3])


def test_truncated_importance_by_token():
    expected = torch.tensor([[2.0, math.exp(-0.1), 0.0], [math.exp(-1.0), 1.0, math.exp(0.2)], [0.0] * 3])
    torch.testing.assert_close(TruncatedImportance()(OLD, SAMPLER, MASK), expected)


def test_truncated_importance_by_sequence():
    expected = torch.tensor([[3.0, 3.0, 0.0], [math.exp(-0.8)] * 3, [0.0] * 3])
    torch.testing.assert_close(TruncatedImportance(cap=3.0, level="sequence")(OLD, SAMPLER, MASK), expected)


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("size", [-1e4, 1e4])
def test_truncated_importance_is_finite_and_without_gradient(level, size):
    old = torch.full((1, 2), size, requires_grad=True)
    weights = TruncatedImportance(level=level)(old, torch.zeros(1, 2), torch.ones(1, 2, dtype=torch.bool))
    assert torch.isfinite(weights).all()
    assert not weights.requires_grad


@pytest.mark.parametrize("settings", [{"cap": 0.5}, {"cap": math.inf}, {"level": "word"}])
def test_truncated_importance_settings(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        TruncatedImportance(**settings)


def test_mismatch_metrics():
    metrics = mismatch_metrics(OLD, SAMPLER, MASK)
    d = torch.tensor([2.0, -0.1, -1.0, 0.0, 0.2])
    torch.testing.assert_close(metrics["mismatch/logprob_abs_diff"].value, d.abs().mean())
    torch.testing.assert_close(metrics["mismatch/ratio"].value, d.exp().mean())
    torch.testing.assert_close(metrics["mismatch/kl"].value, (d.exp() - 1 - d).mean())
    assert metrics["mismatch/kl"].count == 5
    agreed = mismatch_metrics(OLD, OLD, MASK)
    assert agreed["mismatch/logprob_abs_diff"].value == 0
    assert agreed["mismatch/ratio"].value == 1
    assert agreed["mismatch/kl"].value == 0
