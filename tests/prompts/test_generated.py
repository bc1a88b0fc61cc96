import json
import re

import pytest

from gapo_lit.prompts import ArithmeticTask, ReasoningGymTask
from gapo_lit.prompts.arithmetic import KINDS
from gapo_lit.registry import components


def canonical(words: str) -> tuple:
    numbers = sorted(re.findall(r"\d+", words), key=int) if "-" not in words else re.findall(r"\d+", words)
    return (re.sub(r"\d+", "#", words), *numbers)


@pytest.mark.parametrize("level", range(len(KINDS)))
def test_arithmetic_answers_are_right_and_splits_are_apart(level):
    train = ArithmeticTask("train", 30, seed=1, levels=[level]).examples()
    validation = ArithmeticTask("validation", 10, seed=2, levels=[level], suffix="").examples()
    for e in (*train, *validation):
        words = e.question.removesuffix(" Answer with a number.")
        numbers = [int(n) for n in re.findall(r"\d+", words)]
        formula = re.fullmatch(r"What is ([\d +*-]+)\?", words)
        assert int(e.answer) == (max(numbers) if level == 1 else eval(formula[1]))
        assert e.columns == {"level": level, "kind": KINDS[level]}
    questions = {canonical(e.question.removesuffix(" Answer with a number.")) for e in train}
    assert not questions & {canonical(e.question) for e in validation}
    assert len({e.id for e in train}) == 30


def test_all_of_both_splits_are_disjoint_and_complete():
    def whole(split):
        with pytest.raises(ValueError, match="distinct") as refused:
            ArithmeticTask(split, 10**6)
        size = int(re.search(r"have (\d+) distinct", str(refused.value))[1])
        return {canonical(e.question) for e in ArithmeticTask(split, size, suffix="").examples()}, size

    (train, n), (validation, m) = whole("train"), whole("validation")
    assert not train & validation
    # Operands that may change places give one question: a + b or b + a, not both.
    assert (len(train), len(validation)) == (n, m)
    assert n + m == 55 + 90 * 89 // 2 + 55 + 900 + 90 * 91 // 2 + 220 + 55 + 90 * 91 // 2


def test_levels_come_in_turn_and_draws_follow_the_seed():
    first, again, other = (ArithmeticTask("train", 80, seed=s).examples() for s in (3, 3, 4))
    assert first == again
    assert first != other
    assert [e.columns["level"] for e in first] == list(range(8)) * 10
    assert len({e.question for e in first}) == 80


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"split": "test"}, "split='test'"),
        ({"size": 0}, "size=0"),
        ({"levels": [9]}, "levels=\\[9\\]"),
        ({"levels": []}, "levels"),
        ({"levels": [0, 0]}, "levels"),
        ({"size": 101, "levels": [0]}, "size=101.*smaller size or more levels"),
        ({"validation_fraction": 1.0}, "validation_fraction"),
    ],
)
def test_bad_arithmetic_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        ArithmeticTask(**settings)


def test_reasoning_gym_splits_are_apart():
    pytest.importorskip("reasoning_gym")
    config = {"min_digits": 1, "max_digits": 1, "min_terms": 2, "max_terms": 2}
    train = ReasoningGymTask("chain_sum", "train", 40, seed=0, config=config, suffix=" !").examples()
    validation = ReasoningGymTask("chain_sum", "validation", 20, seed=1, config=config).examples()
    assert {e.columns["entry_question"] for e in train}.isdisjoint(e.question for e in validation)
    assert len({e.question for e in train}) == 40
    assert train[0].question.endswith(" !")
    assert train == ReasoningGymTask("chain_sum", "train", 40, seed=0, config=config, suffix=" !").examples()
    json.dumps([dict(e.columns) for e in train])


def test_reasoning_gym_errors():
    pytest.importorskip("reasoning_gym")
    with pytest.raises(ValueError, match=r"did you mean .*chain_sum"):
        ReasoningGymTask("chain_sums", size=1)
    with pytest.raises(ValueError, match="min_trms"):
        ReasoningGymTask("chain_sum", size=1, config={"min_trms": 2})
    with pytest.raises(ValueError, match="fewer than size=500"):
        ReasoningGymTask("chain_sum", size=500, config={"max_digits": 1, "min_terms": 2, "max_terms": 2})


def test_reasoning_gym_is_asked_for_by_name(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "reasoning_gym", None)
    with pytest.raises(ImportError, match="pip install reasoning-gym"):
        ReasoningGymTask("chain_sum", size=1)


def test_sources_are_registered():
    names = {c.name for c in components("prompts")}
    assert {"ArithmeticTask", "HubPrompts", "JsonlPrompts", "ReasoningGymTask"} <= names
