"""Rewards of form: the formulas at their corners, and patterns that never end."""

from __future__ import annotations

import pytest

from gapo_lit.rewards.base import Reward
from gapo_lit.rewards.shaping import FormatReward, LengthReward, OverlongPunishment
from gapo_lit.types import Completion, Example, Prompt, Verdict


def verdict(reward: Reward, text: str = "", tokens: int = 1) -> Verdict:
    completion = Completion((1,) * tokens, (0.0,) * tokens, text, "stop")
    (said,) = reward([Prompt(Example("p", "?", ""), (1,), "?")], [completion])
    return said


# L_max = 20,480 and L_cache = 4,096 are arXiv:2503.14476's; its Eq. 13 by hand.
@pytest.mark.parametrize(
    ("length", "score"),
    [
        (0, 0.0),
        (1, 0.0),
        (16384, 0.0),
        (16385, -1 / 4096),
        (18432, -0.5),
        (20479, -4095 / 4096),
        (20480, -1),
        (30000, -1),
    ],
)
def test_soft_overlong_punishment(length: int, score: float) -> None:
    said = verdict(OverlongPunishment(max_tokens=20480, buffer=4096), tokens=length)
    assert said.score == score
    assert said.kind == ("incorrect" if score else "correct")


def test_overlong_without_a_free_part() -> None:
    assert verdict(OverlongPunishment(4, 4), tokens=1).score == -0.25
    for buffer in (0, 5):
        with pytest.raises(ValueError, match=f"buffer={buffer} is no part of max_tokens=4"):
            OverlongPunishment(4, buffer)


@pytest.mark.parametrize(
    ("length", "score"), [(0, 0.0), (5, 0.5), (9, 0.9), (10, 1.0), (20, 1.0), (21, 0.9), (30, 0.0), (99, 0.0)]
)
def test_length_ramps_on_both_sides(length: int, score: float) -> None:
    said = verdict(LengthReward(shortest=10, longest=20, margin=10), tokens=length)
    assert said.score == pytest.approx(score)
    assert said.kind == ("correct" if score == 1 else "incorrect")


def test_length_without_margin_or_end() -> None:
    assert [verdict(LengthReward(longest=3), tokens=n).score for n in (0, 3, 4)] == [1, 1, 0]
    assert [verdict(LengthReward(shortest=3), tokens=n).score for n in (2, 3, 9999)] == [0, 1, 1]
    for wrong in ({"shortest": -1}, {"shortest": 5, "longest": 4}, {"margin": -1}):
        with pytest.raises(ValueError, match="no length to reward"):
            LengthReward(**wrong)


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("<think>2 + 2\nis 4</think>\n<answer>4</answer>", True),
        ("  <think></think><answer></answer>\n", True),
        ("<think>2 + 2</think> 4", False),
        ("So: <think>2 + 2</think><answer>4</answer>", False),
        ("", False),
    ],
)
def test_format_of_the_whole(text: str, right: bool) -> None:
    pattern = r"<think>.*?</think>\s*<answer>.*?</answer>"
    assert verdict(FormatReward(pattern), text).score == float(right)
    assert verdict(FormatReward(pattern), text).kind == ("correct" if right else "incorrect")
    assert verdict(FormatReward(pattern, whole=False), f"x{text}x").score == float("<answer>" in text)


def test_a_pattern_that_never_ends_gives_no_verdict() -> None:
    """(a+)+b over 40,000 a's would outlast the universe."""
    said = verdict(FormatReward(r"(a+)+b"), "a" * 40_000)
    assert (said.kind, said.score) == ("none", None)
    assert "longer than 0.2 s" in said.reason
    assert verdict(FormatReward(r"(a+)+b"), "a" * 40_000 + "b").kind == "correct"


def test_settings_of_format() -> None:
    with pytest.raises(ValueError, match=r"pattern='\(a' is no regular expression: missing \)"):
        FormatReward("(a")
    with pytest.raises(ValueError, match="time_limit=0"):
        FormatReward("a", time_limit=0)
