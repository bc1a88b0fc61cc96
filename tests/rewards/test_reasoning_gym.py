from pathlib import Path

import pytest

from gapo_lit.prompts import ReasoningGymTask
from gapo_lit.rewards.reasoning_gym import ReasoningGymReward
from gapo_lit.types import Completion, Example, Prompt

pytest.importorskip("reasoning_gym")


def say(text: str) -> Completion:
    return Completion((1,), (0.0,), text, "stop")


@pytest.fixture(scope="module")
def reward():
    reward = ReasoningGymReward(workers=1, time_limit=60)
    yield reward
    reward.close()


@pytest.fixture(scope="module")
def prompts():
    source = ReasoningGymTask("chain_sum", size=4, suffix=" Answer with a number.")
    return [Prompt(e, (1,), e.question) for e in source.examples()]


def test_the_tasks_own_verifier_grades(reward, prompts):
    reward.check([p.example for p in prompts])
    texts = [p.example.answer for p in prompts]
    right = [f"<answer>{texts[0]}</answer>", f"so the sum is {texts[1]}.", texts[2], rf"\boxed{{{texts[3]}}}"]
    assert [v.kind for v in reward(prompts, [say(t) for t in right])] == ["correct"] * 4
    wrong = reward(
        prompts, [say("12345678"), say(""), say("no idea at all, really none of any kind, sorry"), say(texts[3])]
    )
    assert [v.kind for v in wrong] == ["incorrect"] * 3 + ["correct"]
    assert wrong[1].reason == "no answer"


def test_graded_scores_are_kept_and_only_1_is_correct(prompts):
    reward = ReasoningGymReward(extract="text", workers=1, time_limit=60)
    try:
        gold = prompts[0].example.answer
        (verdict,) = reward(prompts[:1], [say(f"{gold} or so")])
        assert verdict.kind == "incorrect"
        assert verdict.score == pytest.approx(len(gold) / len(f"{gold} or so"))
    finally:
        reward.close()


def test_what_a_verifier_evaluates_cannot_act(reward, tmp_path):
    mark = tmp_path / "M"
    (example,) = ReasoningGymTask("countdown", size=1).examples()
    prompt = Prompt(example, (1,), "?")
    attack = f"<answer>__import__('os').system('touch {mark}')</answer>"
    writes = f"<answer>open('{mark}', 'w').close()</answer>"
    verdicts = reward([prompt] * 3, [say(attack), say(writes), say(f"<answer>{example.answer}</answer>")])
    assert [v.kind for v in verdicts] == ["incorrect", "incorrect", "correct"]
    assert not Path(mark).exists()


def test_entries_that_cannot_be_made_again_give_no_verdict(reward, prompts):
    moved = Example("m", "?", "1", {**prompts[0].example.columns, "index": prompts[0].example.columns["index"] + 1})
    broken = Example("b", "?", "1", {**prompts[0].example.columns, "task": "gone"})
    verdicts = reward([Prompt(moved, (1,), "?"), Prompt(broken, (1,), "?")], [say("1"), say("1")])
    assert [v.kind for v in verdicts] == ["none", "none"]
    assert "another question" in verdicts[0].reason


def test_bad_settings_and_strange_rows_are_refused(reward):
    with pytest.raises(ValueError, match="extract='tags'"):
        ReasoningGymReward(extract="tags")
    with pytest.raises(ValueError, match="rows x are no reasoning-gym entries"):
        reward.check([Example("x", "?", "1")])
