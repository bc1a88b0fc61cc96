import math

import pytest
import torch
from policy_inputs import RATIOS, name_of

from gapo_lit.policies import SequenceRatio, TokenRatio

MASK = torch.tensor([[True, True, False], [True, False, False]])
OLD = torch.tensor([[-1.0, -2.0, -math.inf], [-3.0, math.nan, 0.0]])
NEW = torch.tensor([[-0.5, -2.2, -math.inf], [-3.5, 1.0, math.nan]])


def test_values():
    torch.testing.assert_close(TokenRatio()(NEW, OLD, MASK), torch.tensor([[0.5, -0.2, 0.0], [-0.5, 0.0, 0.0]]))
    torch.testing.assert_close(SequenceRatio()(NEW, OLD, MASK), torch.tensor([[0.15, 0.15, 0.0], [-0.5, 0.0, 0.0]]))


def test_sequence_gradient_is_shared_by_the_tokens():
    leaf = NEW.clone().requires_grad_()
    (grad,) = torch.autograd.grad(SequenceRatio()(leaf, OLD, MASK)[0, 0], leaf)
    torch.testing.assert_close(grad, torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]))


@pytest.mark.parametrize(("log_ratio", "token", "sequence"), [(1e4, 20.0, 10.0), (-1e4, -20.0, -1e4), (5.0, 5.0, 5.0)])
def test_extremes_are_clamped_with_zero_gradient(log_ratio, token, sequence):
    mask = torch.ones(1, 2, dtype=torch.bool)
    for ratio, expected in ((TokenRatio(), token), (SequenceRatio(), sequence)):
        leaf = torch.full((1, 2), log_ratio, requires_grad=True)
        value = ratio(leaf, torch.zeros(1, 2), mask)
        assert (value == expected).all()
        assert torch.isfinite(value.exp()).all()
        (grad,) = torch.autograd.grad(value.sum(), leaf)
        assert (grad == (1.0 if expected == log_ratio else 0.0)).all()


@pytest.mark.parametrize("ratio", RATIOS, ids=name_of)
def test_half_precision_is_promoted(ratio):
    value = ratio(NEW.bfloat16(), OLD.bfloat16(), MASK)
    assert value.dtype == torch.float32
    assert value.shape == MASK.shape
