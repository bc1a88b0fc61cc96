"""What a reward of somebody's own got wrong is named before anything is made of its verdicts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from gapo_lit.rewards.base import Reward, graded
from gapo_lit.types import Completion, Example, Prompt, Verdict


class Theirs(Reward):
    """Says what it is told to."""

    def __init__(self, say: Callable[[int], Any]) -> None:
        self.say = say

    def __call__(self, prompts: Sequence[Prompt], completions: Sequence[Completion]) -> list[Verdict]:
        said: list[Verdict] = self.say(len(completions))
        return said


PROMPTS = [Prompt(Example(f"row {i}", "?", ""), (1,), "?") for i in range(3)]
COMPLETIONS = [Completion((1,), (0.0,), "", "stop")] * 3
RIGHT = Verdict.of(True)


def test_verdicts_of_every_kind_pass() -> None:
    said = [Verdict.none("time-out"), Verdict("correct", 1), Verdict("incorrect", np.float64(-0.5), "", {"a": 2})]
    assert graded(Theirs(lambda n: said), PROMPTS, COMPLETIONS) == said
    assert graded(Theirs(lambda n: tuple(said)), PROMPTS, COMPLETIONS) == said  # type: ignore[arg-type, return-value]
    assert graded(Theirs(lambda n: []), [], []) == []


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (None, r"None \(NoneType\), which is no Verdict"),
        (True, r"True \(bool\), which is no Verdict"),
        (1.0, r"1.0 \(float\), which is no Verdict"),
        ("correct", r"'correct' \(str\), which is no Verdict"),
        ((1.0, "good"), r"\(1.0, 'good'\) \(tuple\), which is no Verdict"),
        (Verdict("correct", math.nan), r"the score nan \(float\); give a finite float, or Verdict.none"),
        (Verdict("incorrect", -math.inf), r"the score -inf \(float\)"),
        (Verdict("correct", True), r"the score True \(bool\)"),
        (Verdict("correct", "1"), r"the score '1' \(str\)"),  # type: ignore[arg-type]
        (Verdict("correct", np.float32(1)), r"the score .*1.0.* \(float32\)"),  # type: ignore[arg-type]
        (Verdict("right", 1.0), "a verdict of kind 'right'; give one of correct, incorrect, none"),  # type: ignore[arg-type]
        (Verdict("correct", 1.0, "", {"length": math.nan}), r"the component 'length' the value nan"),
    ],
)
def test_a_mistake_names_reward_prompt_and_value(value: Any, says: str) -> None:
    with pytest.raises(ValueError, match=f"^Theirs gave {says}.* to a completion of row 1$"):
        graded(Theirs(lambda n: [RIGHT, value, RIGHT]), PROMPTS, COMPLETIONS)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (None, r"Theirs returned None \(NoneType\); a reward returns a list, one Verdict a completion"),
        (RIGHT, r"Theirs returned Verdict\(.*; a reward returns a list"),
        ("abc", r"Theirs returned 'abc' \(str\)"),
        ([RIGHT] * 2, "Theirs gave 2 verdicts for 3 completions; a reward gives one each"),
    ],
)
def test_what_is_no_list_of_verdicts(value: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        graded(Theirs(lambda n: value), PROMPTS, COMPLETIONS)
