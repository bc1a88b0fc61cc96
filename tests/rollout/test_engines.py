"""What both engines promise, checked on a real (tiny, random) model with tied and with untied embeddings."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from gapo_lit.rollout import (
    Engine,
    EngineError,
    SyncMismatch,
    TransformersEngine,
    VLLMEngine,
    sync_weights,
    verify_sync,
)
from gapo_lit.types import Completion, Sampling
from tests.tiny import tiny_model

has_vllm = pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vllm is not installed")

PROMPTS = [(3, 90, 40, 203), tuple(range(5, 160)), (70,) * 37]
SEEDS = [10_000, 20_000, 30_000]
LIMIT = 256


@dataclass
class Served:
    """An engine beside the model whose weights it should hold."""

    engine: Engine
    policy: torch.nn.Module
    folder: str

    def load(self, version: int = 0) -> None:
        sync_weights(self.engine, self.policy.named_parameters(remove_duplicate=False), version)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("vllm", True), id="vllm-tied", marks=has_vllm),
        pytest.param(("vllm", False), id="vllm-untied", marks=has_vllm),
        pytest.param(("transformers", True), id="transformers-tied"),
        pytest.param(("transformers", False), id="transformers-untied"),
    ],
)
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    kind, tied = request.param
    folder = str(tiny_model(tmp_path_factory.mktemp("model"), tied=tied))
    engine: Engine
    if kind == "vllm":
        engine = VLLMEngine(folder, max_model_len=LIMIT, max_num_seqs=32, kv_cache_gib=0.0625)
    else:
        engine = TransformersEngine(folder, max_model_len=LIMIT, batch_size=7)
    before = random_state()
    engine.start()
    assert_state(before)
    yield Served(engine, None, folder)  # type: ignore[arg-type]
    engine.close()
    engine.close()


@pytest.fixture
def served(running: Served) -> Served:
    """The running engine with the checkpoint's own weights, beside a new copy of the model."""
    policy = AutoModelForCausalLM.from_pretrained(running.folder, dtype=torch.float32).eval()
    served = Served(running.engine, policy, running.folder)
    served.load()
    return served


def random_state() -> tuple[torch.Tensor, object, float]:
    return torch.get_rng_state(), random.getstate(), float(np.random.get_state()[1].sum())


def assert_state(before: tuple[torch.Tensor, object, float]) -> None:
    after = random_state()
    assert torch.equal(after[0], before[0])
    assert after[1:] == before[1:]


@torch.no_grad()
def reference(policy: torch.nn.Module, prompt: tuple[int, ...], response: tuple[int, ...], temperature: float):
    """(T, V) log-probs of the tokens of a response, one sequence at a time and without a cache."""
    logits = policy(torch.tensor([[*prompt, *response]])).logits[0]
    return (logits[len(prompt) - 1 : -1].double() / temperature).log_softmax(-1)


def worst_gap(policy: torch.nn.Module, groups: list[list[Completion]], temperature: float = 1.0) -> float:
    gaps = []
    for prompt, group in zip(PROMPTS, groups, strict=True):
        for completion in group:
            expected = reference(policy, prompt, completion.token_ids, temperature)
            own = expected[torch.arange(len(expected)), list(completion.token_ids)]
            gaps.append((own - torch.tensor(completion.logprobs, dtype=torch.float64)).abs().max())
    return float(torch.stack(gaps).max())


def score_with(policy: torch.nn.Module):
    def score(prompts, responses, temperature):
        pairs = zip(prompts, responses, strict=True)
        full = [reference(policy, tuple(p), tuple(r), temperature) for p, r in pairs]
        return [lp[torch.arange(len(lp)), list(r)] for lp, r in zip(full, responses, strict=True)]

    return score


def ids(groups: list[list[Completion]]) -> list[list[tuple[int, ...]]]:
    return [[completion.token_ids for completion in group] for group in groups]


def perturb(policy: torch.nn.Module, scale: float = 0.05) -> None:
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(scale * torch.randn(parameter.shape, generator=generator))


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_logprobs_are_the_models_own_at_the_sampling_temperature(served: Served, temperature: float) -> None:
    before = random_state()
    groups = served.engine.generate(PROMPTS, Sampling(temperature, 24), 4, SEEDS)
    assert_state(before)
    assert [len(group) for group in groups] == [4, 4, 4]
    assert worst_gap(served.policy, groups, temperature) < 1e-3
    assert len({c for group in ids(groups) for c in group}) == 12


def test_truncated_sampling_reports_the_renormalised_distribution(served: Served) -> None:
    groups = served.engine.generate(PROMPTS, Sampling(0.7, 12, top_p=0.8, top_k=20), 2, SEEDS)
    for prompt, group in zip(PROMPTS, groups, strict=True):
        for completion in group:
            rows = reference(served.policy, prompt, completion.token_ids, 0.7).exp()
            for row, token, logprob in zip(rows, completion.token_ids, completion.logprobs, strict=True):
                kept = dict(sorted(enumerate(row.tolist()), key=lambda item: -item[1])[:20])
                total, mass, nucleus = sum(kept.values()), 0.0, {}
                for index, probability in kept.items():
                    if mass >= 0.8 * total:
                        break
                    nucleus[index] = probability
                    mass += probability
                assert token in nucleus
                assert np.log(nucleus[token] / mass) == pytest.approx(logprob, abs=1e-3)


def test_greedy_takes_the_likeliest_token_and_reports_temperature_one(served: Served) -> None:
    groups = served.engine.generate(PROMPTS, Sampling(0.0, 8), 1, SEEDS)
    for prompt, (completion,) in zip(PROMPTS, groups, strict=True):
        likeliest = reference(served.policy, prompt, completion.token_ids, 1.0).argmax(-1)
        assert tuple(likeliest.tolist()) == completion.token_ids
    assert worst_gap(served.policy, groups) < 1e-3


def test_seeds_decide_and_the_rest_of_the_call_does_not(served: Served) -> None:
    sampling = Sampling(1.0, 16)
    first = ids(served.engine.generate(PROMPTS, sampling, 4, SEEDS))
    torch.manual_seed(99)
    assert ids(served.engine.generate(PROMPTS, sampling, 4, SEEDS)) == first
    assert ids(served.engine.generate(PROMPTS[::-1], sampling, 4, SEEDS[::-1])) == first[::-1]
    assert ids(served.engine.generate(PROMPTS[1:2], sampling, 2, SEEDS[1:2])) == [first[1][:2]]
    other = ids(served.engine.generate(PROMPTS, sampling, 4, [seed + 500 for seed in SEEDS]))
    assert not {c for group in other for c in group} & {c for group in first for c in group}


def test_new_weights_are_used_at_once_even_for_cached_prompts(served: Served) -> None:
    sampling = Sampling(1.0, 16)
    old = served.engine.generate(PROMPTS, sampling, 2, SEEDS)
    perturb(served.policy)
    before = random_state()
    served.load(7)
    assert_state(before)
    assert served.engine.version == 7
    new = served.engine.generate(PROMPTS, sampling, 2, SEEDS)
    assert ids(new) != ids(old)
    assert worst_gap(served.policy, new) < 1e-3
    assert worst_gap(served.policy, old) > 0.05


def test_a_tied_weight_may_be_given_under_one_name(served: Served) -> None:
    perturb(served.policy)
    sync_weights(served.engine, served.policy.named_parameters(), 1)
    assert worst_gap(served.policy, served.engine.generate(PROMPTS, Sampling(1.0, 8), 1, SEEDS)) < 1e-3


def test_every_end_token_ends_a_completion_and_belongs_to_it(served: Served) -> None:
    groups = served.engine.generate(PROMPTS, Sampling(1.0, 60), 24, SEEDS)
    ends = {2, 4}
    completions = [c for group in groups for c in group]
    assert {c.token_ids[-1] for c in completions if c.finish_reason == "stop"} == ends
    for completion in completions:
        assert not ends & set(completion.token_ids[:-1])
        assert (completion.token_ids[-1] in ends) == (completion.finish_reason == "stop")
        assert len(completion.token_ids) == 60 or completion.finish_reason == "stop"
        assert "<|im_end|>" not in completion.text
    assert any(c.text for c in completions)


def test_verify_sync_passes_after_a_sync_and_explains_a_head_left_behind(served: Served) -> None:
    assert verify_sync(served.engine, score_with(served.policy), PROMPTS, temperature=0.8) < 1e-3
    with torch.no_grad():
        served.policy.get_output_embeddings().weight.mul_(1.5)
    with pytest.raises(SyncMismatch, match=r"worst difference .* in the engine, .* in the trainer.*lm_head"):
        verify_sync(served.engine, score_with(served.policy), PROMPTS)


@pytest.mark.parametrize(
    ("prompts", "sampling", "n", "seeds", "error", "says"),
    [
        ([(5, 6), (7,) * 250], Sampling(1.0, 16), 1, [1, 9], EngineError, "prompt 1 has 250 tokens.*1 to 240"),
        ([()], Sampling(1.0, 16), 1, [1], EngineError, "prompt 0 has 0 tokens"),
        ([(5, 261)], Sampling(1.0, 16), 1, [1], EngineError, "prompt 0 .*vocabulary of 261"),
        ([(5,), (6,)], Sampling(1.0, 4), 8, [1, 8], ValueError, "seeds 1 and 8 .*n=8"),
        ([(5,)], Sampling(1.0, 4), 1, [-1], ValueError, "negative"),
        ([(5,)], Sampling(1.0, 4), 1, [1, 2], ValueError, "2 seeds for 1 prompts"),
        ([(5,)], Sampling(0.0, 4), 2, [1], ValueError, "greedy"),
        ([(5,)], Sampling(0.005, 4), 2, [1], ValueError, "temperature=0.005"),
        ([(5,)], Sampling(1.0, 4), 0, [1], ValueError, "n=0"),
    ],
)
def test_a_request_that_cannot_be_served_is_refused_and_harms_nothing(
    served: Served, prompts, sampling, n, seeds, error, says
) -> None:
    with pytest.raises(error, match=says):
        served.engine.generate(prompts, sampling, n, seeds)
    assert served.engine.generate([], Sampling(), 3, []) == []
    assert len(served.engine.generate([(5,) * 240], Sampling(1.0, 16), 1, [3])[0][0].token_ids) <= 16


def test_a_partial_sync_is_an_error_and_the_engine_then_waits_for_a_restart(served: Served) -> None:
    absent = "model.layers.0.self_attn.k_proj.weight"
    weights = ((name, p) for name, p in served.policy.named_parameters() if name != absent)
    with pytest.raises(EngineError, match=f"1 of 21 parameters were not given: {absent}"):
        served.engine.load_weights(weights, 1)
    with pytest.raises(EngineError, match="close"):
        served.engine.generate(PROMPTS, Sampling(), 1, SEEDS)
    with pytest.raises(EngineError, match="close"):
        served.load(2)
    served.engine.close()
    with pytest.raises(EngineError, match="start"):
        served.engine.generate(PROMPTS, Sampling(), 1, SEEDS)
    served.engine.start()
    assert served.engine.version == -1
    foreign = iter([("model.layers.9.self_attn.k_proj.weight", torch.zeros(1)), *served.policy.named_parameters()])
    with pytest.raises(EngineError, match=r"no parameter 'model\.layers\.9"):
        served.engine.load_weights(foreign, 1)
    assert next(foreign, None) is None, "other ranks would wait for the gathers that were left"
    served.engine.close()
    served.engine.start()
    assert worst_gap(served.policy, served.engine.generate(PROMPTS, Sampling(1.0, 8), 1, SEEDS)) < 1e-3


def test_weights_that_are_not_finite_name_the_request(served: Served) -> None:
    with torch.no_grad():
        served.policy.get_input_embeddings().weight[90] = torch.nan  # a token of the first prompt only
    served.load(1)
    with pytest.raises(EngineError, match=r"sample \d of prompt 0 .*log-prob"):
        served.engine.generate(PROMPTS, Sampling(1.0, 8), 2, SEEDS)
