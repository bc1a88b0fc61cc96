"""Responses packed behind one shared prompt are scored as if each stood alone."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM

from gapo_lit.batching import token_batch
from gapo_lit.logprobs import response_logprobs
from gapo_lit.packing import pack, plan_micro_batches
from gapo_lit.types import RolloutBatch

PROMPTS = [[5, 6, 7], [8, 9, 10, 11, 12], [4]]
GROUP = [0, 1, 0, 1, 0, 2]
RESPONSES = [[1, 2, 3], [4], [6, 6, 6, 6], [], [9, 8], [7, 7]]


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=50, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, initializer_range=0.3,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def batch(temperature: float = 1.0) -> RolloutBatch:
    nothing = [[0.0] * len(r) for r in RESPONSES]
    return token_batch(PROMPTS, GROUP, RESPONSES, nothing, temperature, 0)


def alone(model: LlamaForCausalLM, row: int, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probs and entropies of one response from a forward pass of its own."""
    prompt, response = PROMPTS[GROUP[row]], RESPONSES[row]
    logits = model(torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1] / temperature
    logprobs = logits.log_softmax(-1)
    return logprobs[torch.arange(len(response)), response], -(logprobs.exp() * logprobs).sum(-1)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("budget", [4, 12, 10_000])
@pytest.mark.parametrize("share", [True, False])
def test_logprobs_and_entropy_are_those_of_each_response_alone(
    model: LlamaForCausalLM, share: bool, budget: int, temperature: float
) -> None:
    rollouts = batch(temperature)
    seen = []
    with torch.no_grad():
        for micro in plan_micro_batches(rollouts, torch.arange(len(GROUP)), budget, share):
            logprobs, entropy = response_logprobs(model, rollouts.select(micro.rows), micro.sizes)
            for at, row in enumerate(micro.rows.tolist()):
                seen.append(row)
                length = len(RESPONSES[row])
                expected = alone(model, row, temperature)
                torch.testing.assert_close(logprobs[at, :length], expected[0], atol=1e-5, rtol=1e-5)
                torch.testing.assert_close(entropy[at, :length], expected[1], atol=1e-5, rtol=1e-5)
    assert sorted(seen) == list(range(len(GROUP)))


def test_sharing_a_prompt_does_not_change_the_gradient(model: LlamaForCausalLM) -> None:
    rollouts = batch()
    gradients = []
    for share in (True, False):
        model.zero_grad()
        for micro in plan_micro_batches(rollouts, torch.arange(len(GROUP)), 10_000, share):
            part = rollouts.select(micro.rows)
            logprobs, _ = response_logprobs(model, part, micro.sizes)
            (logprobs * part.response_mask).sum().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-4, rtol=1e-4)


def test_a_shared_prompt_is_computed_once() -> None:
    (micro,) = plan_micro_batches(batch(), torch.tensor([0, 2, 4]), 1000, share_prompts=True)
    assert micro.sizes == (3,)


def test_no_rows_make_no_micro_batch() -> None:
    assert plan_micro_batches(batch(), torch.tensor([], dtype=torch.long), 100, share_prompts=True) == []


@settings(max_examples=60, deadline=None)
@given(
    prompts=st.lists(st.integers(1, 30), min_size=1, max_size=5),
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=25),
    budget=st.integers(1, 200),
    share=st.booleans(),
)
def test_every_rollout_is_planned_once_and_the_budget_holds(
    prompts: list[int], lengths: list[int], budget: int, share: bool
) -> None:
    group = [i % len(prompts) for i in range(len(lengths))]
    responses = [[1] * n for n in lengths]
    rollouts = token_batch([[1] * p for p in prompts], group, responses, [[0.0] * n for n in lengths], 1.0, 0)
    plan = plan_micro_batches(rollouts, torch.arange(len(lengths)), budget, share)
    assert sorted(i for micro in plan for i in micro.rows.tolist()) == list(range(len(lengths)))
    for micro in plan:
        assert all(len({group[i] for i in row.tolist()}) == 1 for row in micro.rows.split(list(micro.sizes)))
        packed = pack(rollouts.select(micro.rows), micro.sizes)
        assert packed.input_ids.numel() <= budget or len(micro.rows) == 1


def test_padding_to_the_longest_prompt_and_the_longest_response_counts() -> None:
    rollouts = token_batch([[1] * 1000, [1] * 10], [0, 1], [[1] * 10, [1] * 1000], [[], []], 1.0, 0)
    assert len(plan_micro_batches(rollouts, torch.arange(2), 2020, share_prompts=True)) == 2


def test_shared_rows_never_make_a_mask_beyond_the_limit() -> None:
    """A long row without a mask of its own must not stretch that of shared ones."""
    responses = [[1] * 5000, [1], [1]]
    rollouts = token_batch([[1], [1]], [0, 1, 1], responses, [[], [], []], 1.0, 0)
    plan = plan_micro_batches(rollouts, torch.arange(3), 10**6, share_prompts=True)
    assert sorted(m.sizes for m in plan) == [(1,), (2,)]
