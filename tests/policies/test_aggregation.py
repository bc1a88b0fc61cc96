import math

import pytest
import torch
from policy_inputs import AGGREGATIONS, name_of

from gapo_lit.policies import ConstantLength, SequenceMeanTokenMean, SequenceMeanTokenSum, TokenMean

MASK = torch.tensor([[True, True, True, True], [True, True, False, False], [False, False, False, False]])


@pytest.mark.parametrize(
    ("aggregation", "expected", "count"),
    [
        (TokenMean(), [1.0, 1.0, 0.0], 6),
        (SequenceMeanTokenMean(), [0.25, 0.5, 0.0], 2),
        (SequenceMeanTokenSum(), [1.0, 1.0, 0.0], 2),
        (ConstantLength(8), [0.125, 0.125, 0.0], 2),
    ],
    ids=name_of,
)
def test_weights_and_counts(aggregation, expected, count):
    """An empty row is never counted."""
    weights = aggregation.weights(MASK)
    torch.testing.assert_close(weights, MASK * torch.tensor(expected)[:, None])
    assert aggregation.count(MASK) == count


@pytest.mark.parametrize("aggregation", AGGREGATIONS, ids=name_of)
def test_everything_masked(aggregation):
    nothing = torch.zeros(3, 2, dtype=torch.bool)
    assert (aggregation.weights(nothing) == 0).all()
    assert aggregation.count(nothing) == 0


@pytest.mark.parametrize("length", [0, -1.0, math.inf, math.nan])
def test_constant_length_must_be_a_length(length):
    with pytest.raises(ValueError, match="length="):
        ConstantLength(length)
