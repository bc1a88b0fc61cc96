"""An engine that returns something else than what it was asked for is named before anything is learnt from it."""

from __future__ import annotations

import math

import pytest

from gapo_lit.rollout.collect import Collector, check_completions
from gapo_lit.rollout.engine import EngineError
from gapo_lit.types import Completion, Example, Prompt, Sampling
from tests.fakes import ScriptedEngine, ScriptedReward


def completion(*logprobs: float) -> Completion:
    return Completion((1,) * len(logprobs), logprobs, "", "stop")


def test_counts_are_checked() -> None:
    check_completions([[completion(-1.0), completion()]], prompts=1, samples=2)
    for drawn in ([], [[completion()]], [[completion()] * 3]):
        with pytest.raises(EngineError, match="completions for 1 prompts of 2 samples"):
            check_completions(drawn, prompts=1, samples=2)


@pytest.mark.parametrize("value", [math.nan, -math.inf, None])
def test_unusable_logprobs_are_refused_with_the_sample(value: float) -> None:
    with pytest.raises(EngineError, match="sample 1 of prompt 0"):
        check_completions([[completion(-1.0), completion(value)]], prompts=1, samples=2)


def test_one_logprob_a_token() -> None:
    with pytest.raises(EngineError, match="2 tokens but 1 log-probs"):
        check_completions([[Completion((1, 2), (-1.0,), "", "stop")]], prompts=1, samples=1)


def test_seeds_depend_on_run_purpose_and_position_and_not_on_the_company() -> None:
    prompts = [Prompt(Example(str(i), "?", "0.5"), (i + 1,), "") for i in range(2)]

    def texts(seed: int, purpose: str, positions: list[int]) -> list[str]:
        collector = Collector(ScriptedEngine(), ScriptedReward(), seed)
        drawn = collector.collect(prompts[: len(positions)], 2, Sampling(max_tokens=3), purpose, positions)
        return [rollout.completion.text for rollout in drawn]

    both = texts(0, "train", [5, 6])
    assert texts(0, "train", [5]) == both[:2]
    assert len(set(both)) == 4
    for other in (texts(1, "train", [5, 6]), texts(0, "validation", [5, 6]), texts(0, "train", [7, 8])):
        assert not set(other) & set(both)
