"""Several rewards as one: the sum, who decides, what is missing, and the same from a recipe and from flags."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from gapo_lit.cli import main
from gapo_lit.metrics.rollouts import sample_metrics
from gapo_lit.rewards.base import Reward
from gapo_lit.rewards.combined import CombinedReward, Part
from gapo_lit.types import Completion, Example, Prompt, Rollout, Verdict
from tests.tiny import tiny_model

QUICKSTART = Path(__file__).resolve().parents[2] / "recipes" / "quickstart.yaml"


class Says(Reward):
    """Gives the verdicts it was made with."""

    def __init__(self, *verdicts: Any, problem: str = "") -> None:
        self.verdicts, self.problem, self.closed = list(verdicts), problem, 0

    def __call__(self, prompts: Sequence[Prompt], completions: Sequence[Completion]) -> list[Verdict]:
        return self.verdicts

    def check(self, examples: Sequence[Example]) -> None:
        if self.problem:
            raise ValueError(self.problem)

    def close(self) -> None:
        self.closed += 1
        if self.problem:
            raise OSError(self.problem)


def grade(reward: Reward, count: int = 1) -> list[Verdict]:
    prompts = [Prompt(Example(f"p{i}", "?", ""), (1,), "?") for i in range(count)]
    return reward(prompts, [Completion((1,), (0.0,), "", "stop")] * count)


RIGHT, WRONG, MISSING = Verdict.of(True, "equal", "4"), Verdict.of(False, "unequal", "5"), Verdict.none("time-out")
LONG = Verdict("incorrect", -0.5, "long")


def test_the_sum_and_who_decides() -> None:
    reward = CombinedReward({"right": Part(Says(RIGHT, WRONG)), "overlong": Part(Says(LONG, LONG), 0.5)})
    first, second = grade(reward, 2)
    assert first == Verdict("correct", 0.75, "equal", {"right": 1.0, "overlong": -0.5}, "4")
    assert second == Verdict("incorrect", -0.25, "unequal", {"right": 0.0, "overlong": -0.5}, "5")


def test_another_part_may_decide() -> None:
    parts = {"length": Part(Says(LONG), 2.0), "right": Part(Says(RIGHT), 0.0)}
    (verdict,) = grade(CombinedReward(parts, correct="right"))
    assert verdict == Verdict("correct", -1.0, "equal", {"length": -0.5, "right": 1.0}, "4")


@pytest.mark.parametrize(
    ("right", "shape", "weight", "kind"),
    [
        (MISSING, RIGHT, 1.0, "none"),
        (RIGHT, MISSING, 1.0, "none"),
        (RIGHT, MISSING, -0.1, "none"),
        (RIGHT, MISSING, 0.0, "correct"),
        (MISSING, RIGHT, 0.0, "none"),
    ],
)
def test_no_verdict_never_becomes_a_number(right: Verdict, shape: Verdict, weight: float, kind: str) -> None:
    (verdict,) = grade(CombinedReward({"right": Part(Says(right)), "shape": Part(Says(shape), weight)}))
    assert verdict.kind == kind
    if kind == "none":
        assert verdict.score is None
        assert verdict.components == {}
        assert verdict.reason == ("right: time-out" if right is MISSING else "shape: time-out")
    else:
        assert verdict.components == {"right": 1.0}, "a part that is only logged has nothing to log"


def test_parts_of_parts_are_logged_under_both_names() -> None:
    inner = CombinedReward({"brand": Part(Says(RIGHT)), "length": Part(Says(LONG))})
    (verdict,) = grade(CombinedReward({"title": Part(inner, 2.0), "format": Part(Says(WRONG))}))
    assert verdict.score == 1.0
    assert verdict.components == {"title": 0.5, "title/brand": 1.0, "title/length": -0.5, "format": 0.0}
    assert (verdict.kind, verdict.answer) == ("correct", "4")


def test_the_mean_reward_is_the_weighted_sum_of_the_logged_means() -> None:
    reward = CombinedReward({"a": Part(Says(RIGHT, WRONG, RIGHT), 1.0), "b": Part(Says(LONG, RIGHT, MISSING), 0.5)})
    verdicts = grade(reward, 3)
    prompt, completion = Prompt(Example("p", "?", ""), (1,), "?"), Completion((1,), (0.0,), "", "stop")
    metrics = sample_metrics([Rollout(prompt, completion, v, 0, 0) for v in verdicts])
    scores = [v.score for v in verdicts if v.score is not None]
    assert float(metrics["reward/a"].value) + 0.5 * float(metrics["reward/b"].value) == sum(scores) / len(scores)
    assert float(metrics["verdicts/none_fraction"].value) == pytest.approx(1 / 3)


def test_a_parts_mistake_is_its_own() -> None:
    with pytest.raises(ValueError, match=r"Says gave the score nan .* to a completion of p0"):
        grade(CombinedReward({"a": Part(Says(Verdict("correct", math.nan)))}))
    with pytest.raises(ValueError, match="Says gave 0 verdicts for 1 completions"):
        grade(CombinedReward({"a": Part(Says())}))
    with pytest.raises(ValueError, match="1 prompts but 0 completions"):
        CombinedReward({"a": Part(Says())})([Prompt(Example("p", "?", ""), (1,), "?")], [])


def test_check_and_close_reach_every_part() -> None:
    parts = {"a": Part(Says(problem="no gold")), "b": Part(Says())}
    reward = CombinedReward(parts)
    with pytest.raises(ValueError, match="part a: no gold"):
        reward.check([])
    with pytest.raises(OSError, match="no gold"):
        reward.close()
    assert [part.reward.closed for part in parts.values()] == [1, 1]  # type: ignore[attr-defined]


def test_settings_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="parts is empty"):
        CombinedReward({})
    with pytest.raises(ValueError, match="correct='rigt' is no part; did you mean right"):
        CombinedReward({"right": Part(Says())}, correct="rigt")
    with pytest.raises(ValueError, match="weight=nan"):
        Part(Says(), math.nan)


# In a recipe

PARTS = """
data:
  reward:
    class_path: CombinedReward
    init_args:
      parts:
        right: {reward: {class_path: LastNumber, init_args: {tolerance: 0.1}}}
        overlong:
          reward: {class_path: OverlongPunishment, init_args: {max_tokens: "${data.sampling.max_tokens}", buffer: 2}}
          weight: 0.5
      correct: right
"""
OVERLAY = (
    "data: {reward: {init_args: {parts: {overlong: {weight: 1e-1}, short: {reward: {class_path: LengthReward}}}}}}"
)


def parts_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    with pytest.raises(SystemExit) as stopped:
        main(["fit", *arguments, "--print_config"])
    assert not stopped.value.code
    settings: dict[str, Any] = yaml.safe_load(capsys.readouterr().out)["data"]["reward"]["init_args"]["parts"]
    return settings


@pytest.fixture
def recipes(tmp_path: Path) -> list[str]:
    """The quickstart, graded by parts; and what lies over it."""
    (tmp_path / "parts.yaml").write_text(PARTS)
    (tmp_path / "overlay.yaml").write_text(OVERLAY)
    return [word for name in (QUICKSTART, tmp_path / "parts.yaml") for word in ("--config", str(name))]


def test_an_overlay_or_a_flag_changes_one_weight(
    recipes: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = parts_of(capsys, *recipes)
    assert parts["overlong"]["weight"] == 0.5
    assert parts["overlong"]["reward"]["init_args"] == {"max_tokens": 6, "buffer": 2}
    flags = ("--data.reward.parts.right.weight", "2", "--data.reward.parts.overlong.reward.init_args.buffer", "3")
    over = parts_of(capsys, *recipes, "--config", str(tmp_path / "overlay.yaml"), *flags)
    assert over["right"] == {**parts["right"], "weight": 2.0}
    assert over["overlong"]["weight"] == 0.1
    assert over["overlong"]["reward"]["init_args"] == {"max_tokens": 6, "buffer": 3}
    assert over["short"]["reward"]["init_args"] == {"shortest": 0, "longest": None, "margin": 0}


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--data.reward.parts.overlong.wieght 2", "Part has no setting called 'wieght'; did you mean weight"),
        (
            "--data.reward.parts.right.reward LastNumbr",
            "there is no reward called 'LastNumbr'; did you mean LastNumber",
        ),
        ("--data.reward.correct rigt", "correct='rigt' is no part; did you mean right"),
        ("--data.reward.parts.overlong.reward.init_args.buffer 9", "buffer=9 is no part of max_tokens=6"),
    ],
)
def test_a_mistake_in_a_part_is_explained(
    flags: str, says: str, recipes: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", *recipes, *flags.split(), "--dry-run"]) == 2
    assert says in capsys.readouterr().err


def test_a_combined_recipe_is_sound(recipes: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tiny_model(tmp_path / "model")
    few = ["--data.train.size", "64", "--data.val.size", "8", "--data.train.levels", "[3]", "--data.val.levels", "[3]"]
    assert main(["fit", *recipes, "--model.model", str(model), *few, "--dry-run"]) == 0, capsys.readouterr().err
    assert "CombinedReward(" in capsys.readouterr().out
