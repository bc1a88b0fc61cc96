import math

import pytest
import torch

from gapo_lit.clipping import DualClip
from gapo_lit.clipping.surrogate import cispo, dual_clip, ppo_clip
from gapo_lit.types import ClipBounds

LO, HI = 0.2, 0.3
RATIOS = [0.5, 0.9, 1.0, 1.2, 1.5, 5.0]


def bounds(rows=1, lo=LO, hi=HI):
    return ClipBounds(torch.full((rows,), lo, dtype=torch.float64), torch.full((rows,), hi, dtype=torch.float64))


def log_ratios(ratios=RATIOS):
    return torch.tensor([ratios], dtype=torch.float64).log().requires_grad_()


def advantage(value):
    return torch.tensor([value], dtype=torch.float64)


def grad_of(token, leaf):
    return torch.autograd.grad(token.loss.sum(), leaf)[0][0].tolist()


def approx(values):
    return pytest.approx(values, rel=1e-12)


def test_ppo_clip_of_good_actions():
    leaf = log_ratios()
    token = ppo_clip(leaf, advantage(2.0), bounds())
    assert token.loss[0].tolist() == approx([-2 * min(r, 1.3) for r in RATIOS])
    assert token.clipped_high[0].tolist() == [False] * 4 + [True] * 2
    assert not token.clipped_low.any()
    assert grad_of(token, leaf) == approx([-2 * r if r <= 1.3 else 0 for r in RATIOS])


def test_ppo_clip_of_bad_actions():
    leaf = log_ratios()
    token = ppo_clip(leaf, advantage(-2.0), bounds())
    assert token.loss[0].tolist() == approx([2 * max(r, 0.8) for r in RATIOS])
    assert token.clipped_low[0].tolist() == [True] + [False] * 5
    assert not token.clipped_high.any()
    assert grad_of(token, leaf) == approx([2 * r if r >= 0.8 else 0 for r in RATIOS])


def test_ppo_clip_at_a_bound_keeps_its_whole_gradient():
    leaf = torch.zeros(1, 1, dtype=torch.float64, requires_grad=True)
    assert grad_of(ppo_clip(leaf, advantage(1.0), bounds(hi=0.0)), leaf) == [-1.0]


def test_bounds_are_each_rows_own():
    token = ppo_clip(
        torch.full((2, 1), math.log(1.25)),
        torch.ones(2),
        ClipBounds(torch.tensor([0.2, 0.2]), torch.tensor([0.2, 0.3])),
    )
    assert token.clipped_high.flatten().tolist() == [True, False]


def test_dual_clip():
    leaf = log_ratios()
    token = dual_clip(leaf, advantage(-2.0), bounds(), 3.0)
    assert token.loss[0].tolist() == approx([2 * min(3.0, max(r, 0.8)) for r in RATIOS])
    assert token.clipped_dual[0].tolist() == [False] * 5 + [True]
    assert grad_of(token, leaf)[-1] == 0
    good = dual_clip(log_ratios(), advantage(2.0), bounds(), 3.0)
    assert not good.clipped_dual.any()
    assert torch.equal(good.loss, ppo_clip(log_ratios(), advantage(2.0), bounds()).loss)


@pytest.mark.parametrize("value", [2.0, -2.0])
def test_cispo(value):
    ratio = log_ratios()
    log_probs = torch.full((1, len(RATIOS)), -0.7, dtype=torch.float64, requires_grad=True)
    token = cispo(ratio, log_probs, advantage(value), bounds(), torch.ones(1, len(RATIOS), dtype=torch.bool))
    weights = [min(r, 1.3) for r in RATIOS]
    assert token.loss[0].tolist() == approx([0.7 * value * w for w in weights])
    # the weight carries no gradient, and a clipped token keeps one
    assert grad_of(token, log_probs) == approx([-value * w for w in weights])
    assert token.clipped_high[0].tolist() == [False] * 4 + [True] * 2
    assert not token.clipped_low.any()


@pytest.mark.parametrize("log_ratio", [1e4, -1e4, math.inf])
def test_zero_advantage_is_exactly_zero(log_ratio):
    leaf = torch.full((1, 2), log_ratio, requires_grad=True)
    mask = torch.tensor([[True, False]])
    masked = torch.tensor([[-0.5, -math.inf]], requires_grad=True)
    zero = torch.zeros(1)
    flat = ClipBounds(torch.tensor([LO]), torch.tensor([HI]))
    for token, by in (
        (ppo_clip(leaf, zero, flat), leaf),
        (dual_clip(leaf, zero, flat, 3.0), leaf),
        (cispo(leaf, masked, zero, flat, mask), masked),
    ):
        assert (token.loss == 0).all()
        assert grad_of(token, by) == [0, 0]
        assert not (token.clipped_low | token.clipped_high).any()


@pytest.mark.parametrize("c_dual", [1.0, 0.0, math.inf, math.nan])
def test_dual_clip_settings(c_dual):
    with pytest.raises(ValueError, match="c_dual="):
        DualClip(c_dual)
