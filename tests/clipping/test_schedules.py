import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gapo_lit.clipping import (
    ConstantClip,
    ExponentialClip,
    GAPOClip,
    HarmonicClip,
    MatchedWidthClip,
    ReversedClip,
    TwoSidedClip,
)
from gapo_lit.policies import group_stats

LO, MAX = 3e-3, 5e-3


def build(cls, form="count", lo=LO, high=MAX):
    extra = {"lam": 0.5} if cls is ExponentialClip else {}
    return cls(lo, high, form=form, **extra)


WIDENING = [GAPOClip, ExponentialClip, HarmonicClip]
ADAPTIVE = [*WIDENING, MatchedWidthClip, ReversedClip]
each = pytest.mark.parametrize("cls", ADAPTIVE)
widening = pytest.mark.parametrize("cls", WIDENING)
forms = pytest.mark.parametrize("form", ["count", "advantage"])
group_sizes = pytest.mark.parametrize("k", [2, 3, 8, 16, 64])


def every_count(k, dtype=torch.float32):
    """One group for each success count 0..k: the right rollouts first."""
    counts = torch.arange(k + 1)
    correct = (torch.arange(k) < counts[:, None]).flatten()
    return group_stats(correct.to(dtype), correct, counts.repeat_interleave(k))


def by_count(clip, k, dtype=torch.float32):
    """The upper bound of a correct rollout for c = 1..k."""
    groups = every_count(k, dtype)
    high = clip(groups).eps_hi
    return torch.stack([high[groups.correct & (groups.success_count == c)].unique().squeeze() for c in range(1, k + 1)])


@forms
@group_sizes
def test_gapo_is_eq_11(form, k):
    c = torch.arange(1, k + 1, dtype=torch.float64)
    expected = LO + (MAX - LO) * (k - c) / (k - 1)
    torch.testing.assert_close(by_count(build(GAPOClip, form), k, torch.float64), expected, rtol=1e-12, atol=0)


@widening
@forms
@group_sizes
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_end_points_are_exact_and_the_rest_is_monotone(cls, form, k, dtype):
    high = by_count(build(cls, form), k, dtype)
    assert high[-1] == torch.tensor(LO, dtype=dtype)
    # by count the scarcity of c=1 is exactly 1; by advantage it is as exact as the group's mean
    if form == "count":
        assert high[0] == torch.tensor(MAX, dtype=dtype)
    torch.testing.assert_close(high[0], torch.tensor(MAX, dtype=dtype))
    assert (high[:-1] > high[1:]).all()


@each
@forms
def test_incorrect_rollouts_and_lower_bounds_are_eps_lo(cls, form):
    groups = every_count(8)
    bounds = build(cls, form)(groups)
    low = torch.tensor(LO)
    assert (bounds.eps_lo == low).all()
    assert (bounds.eps_hi[~groups.correct] == low).all()
    assert (groups.success_count[~groups.correct] == 0).any()
    assert (bounds.eps_hi >= low).all()
    assert (bounds.eps_hi <= MAX + 1e-9).all()


@each
@forms
def test_a_group_left_with_one_rollout_keeps_eps_lo(cls, form):
    correct = torch.tensor([True, True, False, False])
    groups = group_stats(correct.float(), correct, torch.tensor([0, 1, 1, 1]))
    bounds = build(cls, form)(groups)
    assert bounds.eps_hi[0] == torch.tensor(LO)
    assert torch.isfinite(bounds.eps_hi).all()


def test_each_group_has_its_own_size():
    correct = torch.tensor([True, False, True, True, False, False])
    groups = group_stats(correct.double(), correct, torch.tensor([0, 0, 1, 1, 1, 1]))
    expected = [MAX, LO, LO + (MAX - LO) * 2 / 3, LO + (MAX - LO) * 2 / 3, LO, LO]
    torch.testing.assert_close(build(GAPOClip)(groups).eps_hi, torch.tensor(expected, dtype=torch.float64))


@each
@settings(max_examples=20, deadline=None, derandomize=True)
@given(data=st.lists(st.tuples(st.booleans(), st.integers(0, 3)), min_size=1, max_size=20))
def test_both_forms_agree_on_binary_rewards(cls, data):
    correct = torch.tensor([right for right, _ in data])
    groups = group_stats(correct.double(), correct, torch.tensor([g for _, g in data]))
    count, advantage = (build(cls, form)(groups).eps_hi for form in ("count", "advantage"))
    matters = groups.centered != 0
    if cls is MatchedWidthClip:
        # the count form's mean also covers all-right groups, whose bound cannot act
        return
    torch.testing.assert_close(count[matters], advantage[matters], rtol=1e-10, atol=0)


@each
def test_equal_ends_are_symmetric(cls):
    bounds = build(cls, lo=0.2, high=0.2)(every_count(8))
    assert torch.equal(bounds.eps_hi, bounds.eps_lo)
    assert (bounds.eps_hi == torch.tensor(0.2)).all()


def test_exponential_shape():
    """exp(A/λ) − 1 with A = (k−c)/k, scaled to the end points."""
    k, lam = 8, 0.5
    advantage = (k - torch.arange(1, k + 1, dtype=torch.float64)) / k
    raw = torch.exp(advantage / lam) - 1
    expected = LO + (MAX - LO) * raw / raw[0]
    torch.testing.assert_close(by_count(ExponentialClip(LO, MAX, lam=lam), k, torch.float64), expected)


@group_sizes
def test_exponential_tends_to_the_line(k):
    linear = by_count(GAPOClip(LO, MAX), k, torch.float64)
    torch.testing.assert_close(by_count(ExponentialClip(LO, MAX, lam=1e3), k, torch.float64), linear, rtol=1e-3, atol=0)
    bent = by_count(ExponentialClip(LO, MAX, lam=1e-3), k)
    assert torch.isfinite(bent).all()
    assert (by_count(ExponentialClip(LO, MAX, lam=0.5), k, torch.float64) <= linear + 1e-15).all()


def test_harmonic_shape():
    k = 8
    inverse = 1 / torch.arange(1, k + 1, dtype=torch.float64)
    expected = LO + (MAX - LO) * (inverse - 1 / k) / (1 - 1 / k)
    torch.testing.assert_close(by_count(HarmonicClip(LO, MAX), k, torch.float64), expected)


@group_sizes
def test_reversed_is_gapo_backwards(k):
    high = by_count(ReversedClip(LO, MAX), k, torch.float64)
    torch.testing.assert_close(high, by_count(GAPOClip(LO, MAX), k, torch.float64).flip(0))


def test_matched_width_has_gapos_mean_and_is_uniform():
    correct = torch.rand(64, generator=torch.Generator().manual_seed(0)) < 0.4
    groups = group_stats(correct.double(), correct, torch.arange(8).repeat(8))
    matched, gapo = MatchedWidthClip(LO, MAX)(groups).eps_hi, GAPOClip(LO, MAX)(groups).eps_hi
    assert len(matched[correct].unique()) == 1
    assert gapo[correct].std() > 0
    torch.testing.assert_close(matched[correct].mean(), gapo[correct].mean(), rtol=1e-12, atol=0)
    torch.testing.assert_close(matched.mean(), gapo.mean(), rtol=1e-12, atol=0)


def test_matched_width_of_a_batch_without_success():
    correct = torch.zeros(4, dtype=torch.bool)
    groups = group_stats(correct.float(), correct, torch.zeros(4, dtype=torch.long))
    assert (MatchedWidthClip(LO, MAX)(groups).eps_hi == torch.tensor(LO)).all()


def test_graded_rewards_widen_by_advantage():
    rewards = torch.tensor([0.9, 0.5, 0.1, 0.1], dtype=torch.float64)
    groups = group_stats(rewards, rewards > 0.8, torch.zeros(4, dtype=torch.long))
    high = GAPOClip(0.1, 0.3, form="advantage")(groups).eps_hi
    torch.testing.assert_close(
        high, torch.tensor([0.1 + 0.2 * 0.5 * 4 / 3, 0.1 + 0.2 * 0.1 * 4 / 3, 0.1, 0.1]).double()
    )


def test_two_sided_mirrors_the_schedule():
    k = 8
    groups = every_count(k, torch.float64)
    one, two = GAPOClip(0.1, 0.3)(groups), TwoSidedClip(GAPOClip(0.1, 0.3))(groups)
    assert torch.equal(one.eps_hi, two.eps_hi)
    assert (two.eps_lo[groups.correct] == 0.1).all()
    wrong = ~groups.correct
    expected = 0.1 + 0.2 * groups.success_count / (k - 1)
    torch.testing.assert_close(two.eps_lo[wrong], expected.double()[wrong])
    mirrored = TwoSidedClip(ConstantClip(0.2, 0.28))(groups)
    assert (mirrored.eps_lo == 0.28).all()


def test_two_sided_refuses_bounds_below_a_ratio_of_zero():
    TwoSidedClip(GAPOClip(0.2, 0.9)).check(8)
    with pytest.raises(ValueError, match=r"reaches 1\.5"):
        TwoSidedClip(GAPOClip(0.2, 1.5)).check(8)
    with pytest.raises(ValueError, match="group_size=1"):
        TwoSidedClip(GAPOClip(0.2, 0.9)).check(1)


@each
def test_groups_of_one_are_refused(cls):
    with pytest.raises(ValueError, match=f"{cls.__name__}.*group_size=1"):
        build(cls).check(1)
    build(cls).check(2)


@each
@pytest.mark.parametrize(
    ("lo", "high", "message"),
    [
        (5e-3, 3e-3, "eps_max=0.003 is below eps_lo=0.005"),
        (0.0, 0.1, "eps_lo=0.0"),
        (1.0, 2.0, "eps_lo=1.0"),
        (-0.1, 0.1, "eps_lo=-0.1"),
        (math.nan, 0.1, "eps_lo=nan"),
        (0.1, math.nan, "eps_max=nan"),
        (0.1, math.inf, "eps_max=inf"),
    ],
)
def test_bad_bounds(cls, lo, high, message):
    with pytest.raises(ValueError, match=message):
        build(cls, lo=lo, high=high)


@pytest.mark.parametrize(("lo", "high"), [(0.2, 0.0), (0.2, math.inf), (0.2, math.nan), (1.0, 0.2), (math.nan, 0.2)])
def test_bad_constant_bounds(lo, high):
    with pytest.raises(ValueError, match=r"eps_(lo|hi)="):
        ConstantClip(lo, high)


def test_other_bad_settings():
    with pytest.raises(ValueError, match="form='rank'"):
        GAPOClip(0.1, 0.2, form="rank")
    for lam in (0.0, -1.0, 1e9, math.nan):
        with pytest.raises(ValueError, match="lam="):
            ExponentialClip(0.1, 0.2, lam=lam)


def test_constant_bounds():
    bounds = ConstantClip(0.2, 0.28)(every_count(4))
    assert (bounds.eps_lo == torch.tensor(0.2)).all()
    assert (bounds.eps_hi == torch.tensor(0.28)).all()
    ConstantClip(0.2, 0.2).check(1)


@each
def test_rows_may_come_in_any_order(cls):
    groups = every_count(6)
    order = torch.randperm(len(groups.correct), generator=torch.Generator().manual_seed(3))
    shuffled = replace(
        groups,
        **{name: getattr(groups, name)[order] for name in ("correct", "success_count", "group_size", "centered")},
    )
    torch.testing.assert_close(build(cls)(shuffled).eps_hi, build(cls)(groups).eps_hi[order])
