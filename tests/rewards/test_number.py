import time

import pytest

from gapo_lit.rewards.number import ExactMatch, LastNumber
from gapo_lit.rewards.text import last_number
from gapo_lit.types import Completion, Example, Prompt


def ask(gold: str) -> Prompt:
    return Prompt(Example("row", "?", gold), (1,), "?")


def say(text: str) -> Completion:
    return Completion((1,), (0.0,), text, "stop")


@pytest.mark.parametrize(
    ("gold", "text", "right"),
    [
        ("1234", "That makes 1,234.", True),
        ("1,234", "1234", True),
        ("1234567.5", "about 1,234,567.50 of them", True),
        ("3", "3.", True),
        ("3", "so 3.\n", True),
        ("3", "3.0", True),
        ("-4", "x = -4", True),
        ("-4", "x = −4", True),
        ("4", "x = -4", False),
        ("3", "7-3", True),
        ("-3", "7-3", False),
        ("34", "1,2,34", True),
        ("3", "12, 3", True),
        ("0.5", ".5", True),
        ("7", "007", True),
        ("100000", "1e5", True),
        ("72", "48 + 24 = 72 clips", True),
        ("48", "48 + 24 = 72 clips", False),
        ("5", "$5", True),
        ("50", "50%", True),
        ("5", "five", False),
        ("5", "", False),
        ("1", "1e9999", False),
        ("5", "٥", False),  # other scripts' digits are no number here
    ],
)
def test_the_last_number_counts(gold, text, right):
    (verdict,) = LastNumber()([ask(gold)], [say(text)])
    assert (verdict.kind == "correct") == right
    assert verdict.score == float(right)


def test_no_number_is_incorrect_with_a_reason():
    assert LastNumber()([ask("5")], [say("no idea")])[0].reason == "no number"


@pytest.mark.parametrize("hostile", ["9" * 300_000, "1," * 150_000, "-." * 150_000, "1e" * 150_000, "1,111" * 60_000])
def test_hostile_text_takes_bounded_time(hostile):
    start = time.process_time()
    assert LastNumber()([ask("5")], [say(hostile)])[0].kind == "incorrect"
    assert time.process_time() - start < 1


def test_a_cut_off_number_is_not_taken_for_a_short_one():
    assert last_number("1" * 5000, limit=2000) is None


def test_tolerance():
    third = [ask("0.333333")], [say("0.33333")]
    assert LastNumber()(*third)[0].kind == "incorrect"
    assert LastNumber(tolerance=1e-4)(*third)[0].kind == "correct"
    assert LastNumber(tolerance=1e-4)([ask("1")], [say("1e9999")])[0].kind == "incorrect"
    with pytest.raises(ValueError, match="tolerance=-1"):
        LastNumber(tolerance=-1)


def test_order_is_kept_and_lengths_must_agree():
    golds = [str(i) for i in range(20)]
    verdicts = LastNumber()([ask(g) for g in golds], [say(str(i if i % 3 else i + 1)) for i in range(20)])
    assert [v.score for v in verdicts] == [float(i % 3 != 0) for i in range(20)]
    with pytest.raises(ValueError, match="2 prompts but 1 completions"):
        LastNumber()([ask("1")] * 2, [say("1")])


def test_check_names_the_rows():
    rows = [Example("a", "?", "4"), Example("b", "?", ""), Example("c", "?", "four")]
    with pytest.raises(ValueError, match=r"2 of 3 .*b: empty.*c: not a number"):
        LastNumber().check(rows)
    LastNumber().check(rows[:1])


def test_exact_match():
    assert ExactMatch()([ask("Blue")], [say(" Blue\n")])[0].kind == "correct"
    assert ExactMatch()([ask("Blue")], [say("blue")])[0].kind == "incorrect"
    assert ExactMatch(ignore_case=True)([ask("Blue")], [say("blue")])[0].kind == "correct"
    with pytest.raises(ValueError, match="b: empty"):
        ExactMatch().check([Example("b", "?", " ")])
