import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_inputs import name_of

from gapo_lit.policies import Focal, GroupMean, GroupStd, LeaveOneOut, group_mean, group_stats

ADVANTAGES = [GroupMean(), GroupStd(), LeaveOneOut(), Focal(GroupStd(), 1.0), Focal(Focal(LeaveOneOut(), 0.5), 2.0)]
each = pytest.mark.parametrize("advantage", ADVANTAGES, ids=name_of)


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(
    ("advantage", "expected"),
    [
        (GroupMean(), [0.75, -0.25, -0.25, -0.25]),
        (GroupStd(eps=1e-12), [1.5, -0.5, -0.5, -0.5]),  # std with ddof 1 is 0.5
        (LeaveOneOut(), [1.0, -1 / 3, -1 / 3, -1 / 3]),
        (Focal(GroupMean(), 2.0), [0.75**3, -0.25 * 0.75**2, -0.25 * 0.75**2, -0.25 * 0.75**2]),
        (Focal(GroupMean(), 0.0), [0.75, -0.25, -0.25, -0.25]),
    ],
)
def test_values(advantage, expected):
    torch.testing.assert_close(advantage(tensor(1, 0, 0, 0), torch.zeros(4, dtype=torch.long)), tensor(*expected))


@each
def test_uneven_groups_are_found_by_id(advantage):
    rewards = tensor(1, 2, 3, 4, 10, 12, 5, 6, 7)
    group = torch.tensor([0, 0, 0, 0, 1, 1, 2, 2, 2])
    result = advantage(rewards, group)
    for id_ in range(3):
        rows = group == id_
        assert abs(result[rows].sum()) < 1e-12
        torch.testing.assert_close(result[rows], advantage(rewards[rows], group[rows]))


@each
def test_tiled_prompts_are_grouped_by_id(advantage):
    tiled = advantage(tensor(1, 0, 0, 0, 1, 1), torch.tensor([5, 9, 5, 9, 5, 9]))
    sorted_ = advantage(tensor(1, 0, 1, 0, 0, 1), torch.tensor([5, 5, 5, 9, 9, 9]))
    torch.testing.assert_close(tiled[[0, 2, 4, 1, 3, 5]], sorted_)


@each
@pytest.mark.parametrize("reward", [0.2, 0.0, 1.0, 0.1 + 0.2, 1e6])
@pytest.mark.parametrize("size", [1, 3, 7, 16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_unanimous_group_is_exactly_zero(advantage, reward, size, dtype):
    rewards = torch.full((size + 2,), reward, dtype=dtype)
    rewards[-1] += 1
    group = torch.tensor([3] * size + [8] * 2)
    result = advantage(rewards, group)
    assert (result[:size] == 0).all()
    assert torch.isfinite(result).all()


@each
@settings(max_examples=20, deadline=None, derandomize=True)
@given(data=st.lists(st.tuples(st.floats(-10, 10), st.integers(0, 4)), max_size=24))
def test_each_group_sums_to_zero(advantage, data):
    rewards = tensor(*(r for r, _ in data))
    group = torch.tensor([g for _, g in data], dtype=torch.long)
    result = advantage(rewards, group)
    assert torch.isfinite(result).all()
    torch.testing.assert_close(group_mean(result, group), torch.zeros_like(result), rtol=0, atol=1e-8)


@each
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_reward_that_is_not_finite_is_named(advantage, bad):
    with pytest.raises(ValueError, match=r"rewards\[1\]=.*no verdict"):
        advantage(tensor(1, bad, 3), torch.zeros(3, dtype=torch.long))


def test_whole_number_rewards_are_taken():
    group = torch.zeros(2, dtype=torch.long)
    assert GroupMean()(torch.tensor([1, 0]), group).tolist() == [0.5, -0.5]
    assert Focal(GroupMean(), 1.0)(torch.tensor([True, False]), group).tolist() == [0.25, -0.25]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: GroupStd(eps=0.0), "eps=0.0"),
        (lambda: GroupStd(eps=math.nan), "eps=nan"),
        (lambda: Focal(GroupMean(), -1.0), "gamma=-1.0"),
        (lambda: Focal(GroupMean(), math.inf), "gamma=inf"),
    ],
)
def test_bad_settings(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_group_stats():
    rewards = tensor(1, 0, 1, 1, 0)
    stats = group_stats(rewards, rewards > 0, torch.tensor([4, 4, 2, 4, 2]))
    assert stats.success_count.tolist() == [2, 2, 1, 2, 1]
    assert stats.group_size.tolist() == [3, 3, 2, 3, 2]
    torch.testing.assert_close(stats.centered, tensor(1 / 3, -2 / 3, 0.5, 1 / 3, -0.5))
