"""The laboratory's rule, and its questions as a source of prompts."""

import random
from collections import Counter

import pytest

from gapo_lit.lab.rule import OPERATIONS, STATES, Rule, draw_question
from gapo_lit.lab.task import ChainTask
from gapo_lit.rewards.number import ExactMatch

RULE = Rule.drawn(0, (0.9, 0.6, 0.2))


def test_an_answer_follows_the_operations_one_by_one() -> None:
    table = {"Aa": "b", "Bb": "d", "Ad": "c"}
    rule = Rule(table, dict.fromkeys(table, "p"), {"Aa": 0.5, "Bb": 0.8, "Ad": 1.0})
    assert rule.answer("aABA=") == "bdc"
    assert list(rule.facts("aABA=")) == ["Aa", "Bb", "Ad"]
    assert rule.chance("aABA=") == pytest.approx(0.4)
    assert rule.chance("aAB=") == pytest.approx(0.4)
    assert rule.chance("aA=") == pytest.approx(0.5)


def test_a_slip_is_never_right_and_reliabilities_are_dealt_evenly() -> None:
    assert len(RULE.table) == len(OPERATIONS) * len(STATES)
    assert [fact for fact in RULE.table if RULE.table[fact] == RULE.slip[fact]] == []
    dealt = Counter(RULE.reliability.values())
    assert max(dealt.values()) - min(dealt.values()) <= 1
    assert Rule.drawn(0, (0.9, 0.6, 0.2)) == RULE
    assert Rule.drawn(1, (0.9, 0.6, 0.2)) != RULE


@pytest.mark.parametrize("question", ["aAB=", "kCAD=", "pDCADB="])
def test_attempts_are_right_as_often_as_the_chance_says(question: str) -> None:
    rng = random.Random(0)
    right = sum(RULE.attempt(question, rng) == RULE.answer(question) for _ in range(4000)) / 4000
    assert right == pytest.approx(RULE.chance(question), abs=0.025)  # three standard deviations


def test_an_attempt_goes_on_from_what_it_wrote() -> None:
    rule = Rule({"Aa": "b", "Ab": "c", "Ac": "a"}, {"Aa": "c", "Ab": "a", "Ac": "b"}, {"Aa": 1e-9, "Ab": 1, "Ac": 1})
    assert rule.attempt("aAA=", random.Random(0)) == "ca"


def test_the_splits_share_no_question_and_are_the_same_at_every_call() -> None:
    train, val = ChainTask(size=400), ChainTask("validation", size=100, seed=5)
    asked = {example.question for example in train.examples()}
    assert len(asked) == 400
    assert asked.isdisjoint(example.question for example in val.examples())
    assert train.examples() == ChainTask(size=400).examples()
    ExactMatch().check(train.examples())
    for example in val.examples():
        assert len(example.answer) == example.columns["length"]
        assert example.columns["chance"] == val.rule.chance(example.question)


def test_what_cannot_be_asked_is_refused() -> None:
    with pytest.raises(ValueError, match=r"size=500, but .* distinct train questions .*give a smaller size"):
        ChainTask(size=500, lengths=(1, 2))
    with pytest.raises(ValueError, match=r"lengths=.0. must name"):
        ChainTask(lengths=(0,))
    with pytest.raises(ValueError, match="chances above 0"):
        Rule.drawn(0, (0.5, 1.5))
    with pytest.raises(ValueError, match="chances above 0"):
        Rule.drawn(0, ())


def test_questions_are_of_the_lengths_wanted() -> None:
    rng = random.Random(0)
    assert {len(draw_question(rng, (2, 4))) for _ in range(50)} == {4, 6}
