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
    close, far = LastNumber(tolerance=1), LastNumber(tolerance=0.5)
    for gold, text in (("9007199254740993", "9007199254740992"), ("1" + "0" * 400, "9" * 400), ("0.3", "1.3")):
        assert close([ask(gold)], [say(text)])[0].kind == "correct"
        assert far([ask(gold)], [say(text)])[0].kind == "incorrect"  # as floats the first two pairs are one number
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


def test_the_answer_is_one_text_however_it_is_written():
    texts = ("1,000", "1000.00", "1e3", "01000", "so 1,000.")
    assert {LastNumber()([ask("7")], [say(t)])[0].answer for t in texts} == {"1000"}
    assert LastNumber()([ask("7")], [say("none")])[0].answer is None
    assert {LastNumber()([ask("7")], [say(t)])[0].answer for t in ("0.50", ".5", "5e-1")} == {"0.5"}
    assert ExactMatch(ignore_case=True)([ask("Blue")], [say(" BLUE\n")])[0].answer == "blue"


def test_exact_match():
    assert ExactMatch()([ask("Blue")], [say(" Blue\n")])[0].kind == "correct"
    assert ExactMatch()([ask("Blue")], [say("blue")])[0].kind == "incorrect"
    assert ExactMatch(ignore_case=True)([ask("Blue")], [say("blue")])[0].kind == "correct"
    with pytest.raises(ValueError, match="b: empty"):
        ExactMatch().check([Example("b", "?", " ")])
