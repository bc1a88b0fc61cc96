"""Losses, gradients and clip metrics against verl 0.9.1 and TRL 1.16.0, entry by entry.

The two differ in two places, and here verl's way is taken:
- a row without tokens (c08): verl leaves it out of a mean over rows, TRL counts it;
- extreme log-ratios (c15): verl clamps a token's to ±20 and a sequence's to at most 10, TRL does not.
TRL's entries are there compared after undoing exactly that difference, and must differ before.
"""

import json
import math
from pathlib import Path

import pytest
import torch
from policy_inputs import loss_and_grad

from gapo_lit.clipping import ConstantClip, DualClip, PPOClip
from gapo_lit.policies import (
    ConstantLength,
    Focal,
    GroupMean,
    GroupStd,
    Objective,
    Ratio,
    SequenceMeanTokenMean,
    SequenceMeanTokenSum,
    SequenceRatio,
    TokenMean,
    TokenRatio,
    group_stats,
)
from gapo_lit.policies.masking import masked_mean
from gapo_lit.policies.ratio import sequence_log_ratio, token_log_ratio
from gapo_lit.types import ClipBounds, LossInputs

CASES = {
    case["id"]: case
    for case in json.loads((Path(__file__).parents[1] / "golden/policy_losses.json").read_text())["cases"]
}
ENTRIES = [(id_, i) for id_, case in CASES.items() for i in range(len(case["outputs"]))]
EMPTY_ROW, EXTREME = "c08_empty_row", "c15_extreme"

pytestmark = pytest.mark.usefixtures("float64")


class Unclamped(Ratio):
    """TRL's ratio: no bound on a log-ratio."""

    def __init__(self, level):
        self.function = token_log_ratio if level == "token" else sequence_log_ratio

    def __call__(self, logprobs, old_logprobs, response_mask):
        return self.function(logprobs, old_logprobs, response_mask, limit=math.inf)


def inputs_of(case, entry):
    mask = torch.tensor(case["mask"]).bool()
    rows = len(mask)
    rewards = torch.tensor(case["rewards"])
    bounds = case["row_bounds"][entry["row_bounds"]] if "row_bounds" in entry else entry
    bound = {side: torch.as_tensor(bounds[side]).expand(rows).double() for side in ("eps_lo", "eps_hi")}
    old = torch.tensor(case["old_logp"])
    return LossInputs(
        logprobs=torch.tensor(case["logp"]),
        old_logprobs=old,
        sampler_logprobs=old,
        ref_logprobs=None,
        response_mask=mask,
        advantages=torch.tensor(case["advantages"][entry["adv"]]),
        groups=group_stats(rewards, rewards > 0, torch.tensor(case["group_ids"])),
        bounds=ClipBounds(**bound),
    )


def aggregation_of(entry, tokens):
    if entry["agg"] == "seq-mean-token-sum-norm":
        return ConstantLength(entry.get("global_batch_info", {}).get("loss_scale_factor") or tokens)
    if entry["agg"] == "sum-over-B-times-L":
        return ConstantLength(entry["max_completion_length"])
    return {
        "token-mean": TokenMean,
        "seq-mean-token-mean": SequenceMeanTokenMean,
        "seq-mean-token-sum": SequenceMeanTokenSum,
    }[entry["agg"]]()


def objective_of(case, entry, ratio=None):
    c_dual = entry.get("clip_ratio_c") or entry.get("delta")
    return Objective(
        ratio=ratio or (TokenRatio() if entry["level"] == "token" else SequenceRatio()),
        advantage=GroupStd(),
        clip=ConstantClip(0.2, 0.2),
        surrogate=DualClip(c_dual) if c_dual else PPOClip(),
        aggregation=aggregation_of(entry, case["T"]),
        group_size=case["k"],
    )


def is_row_mean(entry):
    return entry["agg"] != "token-mean"


@pytest.mark.parametrize(
    ("case_id", "number"), ENTRIES, ids=[f"{c}-{CASES[c]['outputs'][i]['key']}" for c, i in ENTRIES]
)
def test_equals_the_peer(case_id, number):
    case = CASES[case_id]
    entry = case["outputs"][number]
    trl = entry["peer"] == "trl"
    inputs = inputs_of(case, entry)
    ratio = Unclamped(entry["level"]) if trl and case_id == EXTREME else None
    objective = objective_of(case, entry, ratio)
    loss, grad, metrics = loss_and_grad(objective, inputs)
    if trl and case_id == EMPTY_ROW and is_row_mean(entry):
        counted = objective.denominator(inputs.response_mask) / case["B"]
        loss, grad = loss * counted, grad * counted

    # verl adds 1e-8 to a row's length, which shows relative to the terms of a sum that mostly cancels
    adds_1e8 = not trl and entry["agg"] == "seq-mean-token-mean"
    slack = 2e-8 * magnitude(objective, inputs) if adds_1e8 else 1e-12
    torch.testing.assert_close(loss, torch.tensor(entry["loss"]), rtol=1e-10, atol=slack)
    torch.testing.assert_close(grad, torch.tensor(entry["grad"]), rtol=2e-8 if adds_1e8 else 1e-10, atol=1e-12)
    expected = entry["metrics"]
    actual = trl_metrics(objective, inputs, entry["level"]) if trl else verl_metrics(inputs, metrics, entry["level"])
    assert actual.keys() == expected.keys()
    for name, value in actual.items():
        # verl adds 1e-8 to the number of tokens
        torch.testing.assert_close(value, torch.tensor(expected[name]), rtol=1e-10 if trl else 2e-8, atol=1e-12)


def magnitude(objective, inputs):
    """The loss with every term taken positive."""
    mask = inputs.response_mask
    token = objective.surrogate(objective.ratio(inputs.logprobs, inputs.old_logprobs, mask), inputs)
    terms = objective.aggregation.weights(mask) * torch.where(mask, token.loss.abs(), 0.0)
    return (terms.sum() / objective.denominator(mask)).item()


def verl_metrics(inputs, metrics, level):
    # verl's ppo_kl is over the clamped token log-ratio with a token ratio, over the raw one with a sequence ratio
    limit = 20.0 if level == "token" else math.inf
    kl = -token_log_ratio(inputs.logprobs, inputs.old_logprobs, inputs.response_mask, limit)
    dual = metrics.get("clip_fraction/dual")
    return {
        "pg_clipfrac": metrics["clip_fraction"].value,
        "ppo_kl": masked_mean(kl, inputs.response_mask).value,
        "pg_clipfrac_lower": dual.value if dual else torch.tensor(0.0),
    }


def trl_metrics(objective, inputs, level):
    """TRL counts tokens with a token ratio, rows (empty ones too) with a sequence ratio; min and max are over rows."""
    mask = inputs.response_mask
    token = objective.surrogate(objective.ratio(inputs.logprobs, inputs.old_logprobs, mask), inputs)
    low, high = (clipped & mask for clipped in (token.clipped_low, token.clipped_high))

    def rows(clipped):
        return clipped.sum(1) / mask.sum(1).clamp(min=1)

    def mean(clipped):
        return rows(clipped).mean() if level == "sequence" else clipped.sum() / mask.sum()

    return {
        "clip_ratio/low_mean": mean(low),
        "clip_ratio/high_mean": mean(high),
        "clip_ratio/region_mean": mean(low | high),
        "clip_ratio/low_min": rows(low).min(),
        "clip_ratio/high_max": rows(high).max(),
    }


@pytest.mark.parametrize(
    "entry", [e for e in CASES[EMPTY_ROW]["outputs"] if e["peer"] == "trl"], ids=lambda e: e["key"]
)
def test_an_empty_row_is_not_counted_where_trl_counts_it(entry):
    case = CASES[EMPTY_ROW]
    loss, _, _ = loss_and_grad(objective_of(case, entry), inputs_of(case, entry))
    assert torch.isclose(loss, torch.tensor(entry["loss"]), rtol=1e-6) != is_row_mean(entry)


@pytest.mark.parametrize("entry", [e for e in CASES[EXTREME]["outputs"] if e["peer"] == "trl"], ids=lambda e: e["key"])
def test_extreme_ratios_are_clamped_where_trl_does_not(entry):
    case = CASES[EXTREME]
    inputs = inputs_of(case, entry)
    loss, grad, _ = loss_and_grad(objective_of(case, entry), inputs)
    _, raw_grad, _ = loss_and_grad(objective_of(case, entry, Unclamped(entry["level"])), inputs)
    raw = Unclamped(entry["level"])(inputs.logprobs, inputs.old_logprobs, inputs.response_mask)
    beyond = (raw.abs() > 20) if entry["level"] == "token" else (raw > 10)
    assert beyond.any()
    assert (grad[beyond] == 0).all()
    # a floor on the loss or an active upper bound hides the clamp: then the gradient beyond was 0 already
    matters = (raw_grad[beyond] != 0).any()
    assert torch.isclose(loss, torch.tensor(entry["loss"]), rtol=1e-6) != matters


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize(
    ("name", "advantage", "rtol"),
    [
        ("verl_grpo_std", GroupStd(), 1e-10),
        ("verl_grpo_nostd", GroupMean(), 1e-10),
        ("verl_grpo_vectorized_std", GroupStd(), 1e-4),  # computed in float32 by the peer
        ("verl_grpo_vectorized_nostd", GroupMean(), 1e-4),
        ("focal_std_g0.5", Focal(GroupStd(), 0.5), 1e-10),
        ("focal_std_g1", Focal(GroupStd(), 1.0), 1e-10),
        ("focal_std_g2", Focal(GroupStd(), 2.0), 1e-10),
        ("trl_group", GroupStd(eps=1e-4), 1e-10),
        ("trl_none", GroupMean(), 1e-10),
    ],
)
def test_advantages_equal_the_peer(case, name, advantage, rtol):
    actual = advantage(torch.tensor(case["rewards"]), torch.tensor(case["group_ids"]))
    torch.testing.assert_close(actual, torch.tensor(case["advantages"][name]), rtol=rtol, atol=rtol / 10)
