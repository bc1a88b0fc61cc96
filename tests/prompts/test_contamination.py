"""Questions that training shares with validation or a benchmark, told from those that only sound alike."""

import json
import random
from pathlib import Path

import pytest

from gapo_lit.checks.contamination import check_contamination, listing, write_shared
from gapo_lit.prompts import ArithmeticTask, ReasoningGymTask
from gapo_lit.prompts.contamination import Shared, dropped, find_shared
from gapo_lit.types import Example

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"
BIRDS = (
    "A keeper walks along the river every morning and writes down {} herons, {} ducks and {} geese in a green "
    "notebook. On Sundays she rests. How many birds does she write down in a week of six working days?"
)
TAIL = (
    " can be written as $\\frac{m}{n}$, where $m$ and $n$ are relatively prime positive integers. Find the remainder "
    "when $m+n$ is divided by $1000$."
)


def examples(prefix: str, *questions: str) -> list[Example]:
    return [Example(f"{prefix}{i}", question, "1") for i, question in enumerate(questions)]


def found(train: list[str], other: list[str], **settings: float) -> list[tuple[str, str, str]]:
    pairs = find_shared(examples("t", *train), {"set": examples("o", *other)}, **settings)
    return [(s.train, s.id, s.kind) for s in pairs]


def filler(seed: int, count: int = 40) -> str:
    """Words that no other seed has in this order."""
    draw = random.Random(seed)
    return " ".join(draw.choice("abcdefghij") + draw.choice("klmnopqrst") + draw.choice("aeiou") for _ in range(count))


def test_equal_questions_are_found_whatever_their_spacing_and_latex() -> None:
    assert found(["Other.", "Find $\\dfrac{1}{2}+x$."], ["find  \\(\\frac{1}{2} + x\\)"]) == [("t1", "o0", "equal")]
    (shared,) = find_shared(examples("t", "What is 1 + 1?"), {"aime24": examples("a", "what is 1+1")})
    assert shared == Shared("t0", "aime24", "a0", "equal", 1.0)


def test_every_row_of_every_set_is_listed_in_training_order() -> None:
    train = examples("t", "Two.", "One.", "two", "Three.")
    pairs = find_shared(train, {"b": examples("b", "Three"), "a": examples("a", "Two", "Two?")})
    assert [(s.train, s.set, s.id) for s in pairs] == [
        *(("t0", "a", "a0"), ("t0", "a", "a1")),
        *(("t2", "a", "a0"), ("t2", "a", "a1")),
        ("t3", "b", "b0"),
    ]


def test_a_question_put_another_way_overlaps() -> None:
    told = BIRDS.format(3, 5, 7)
    retold = told.replace("A keeper", "Each day Anna").replace("On Sundays she rests. ", "Altogether, then: ")
    assert found([retold], [told]) == [("t0", "o0", "overlap")]
    assert found([told + " " + filler(0)], [told]) == [("t0", "o0", "overlap")]
    assert found([filler(1) + " " + " ".join(told.split()[:14]) + " " + filler(2)], [told + filler(3)]) == []
    assert found([filler(1) + " " + " ".join(told.split()[:14])], [told + filler(3)], least=0.0) != []


def test_a_phrase_of_many_questions_flags_none() -> None:
    """The end of contest questions, and a template whose numbers alone differ."""
    contest = [filler(i) + TAIL for i in range(40)]
    assert found(contest[:30], contest[30:]) == []
    birds = [BIRDS.format(i, 2 * i + 1, 40 - i) for i in range(40)]
    assert found(birds[:30], birds[30:]) == []
    assert found(birds[:6], birds[6:9]) == []  # as common in a small set
    assert found([*contest, contest[0] + " Then stop."], [contest[0]]) == [
        ("t0", "o0", "equal"),
        ("t40", "o0", "overlap"),
    ]


def test_short_questions_are_only_ever_equal_unless_they_stand_whole_in_another() -> None:
    sums = [f"What is {i} + {j}?" for i in range(9) for j in range(9)]
    assert found(sums[:60], sums[60:]) == []
    assert found(sums, ["What is 3 + 4 + 5?", "Say: what is 3 + 4", "What is 3 - 4?"]) == []
    assert found(["Which of the numbers is prime, 7 or 8?"], ["Which of the numbers is prime, 7 or 9?"]) == []
    short = "How many positive divisors does the number 2024 have?"
    for one, two in ((short, "Quickly: " + short + " Think."), ("Quickly: " + short + " Think.", short)):
        assert found([one], [two]) == [("t0", "o0", "overlap")]


def test_generated_tasks_are_apart_by_construction_and_stay_unflagged() -> None:
    train, val = (ArithmeticTask(split, 200).examples() for split in ("train", "validation"))
    assert find_shared(train, {"val": val}) == ()
    pytest.importorskip("reasoning_gym")
    train, val = (ReasoningGymTask("chain_sum", split, 60).examples() for split in ("train", "validation"))
    assert find_shared(train, {"val": val}) == ()


def test_settings_that_would_flag_everything_are_refused() -> None:
    with pytest.raises(ValueError, match="n=3 words"):
        found(["a"], ["b"], n=3)
    with pytest.raises(ValueError, match="least=2"):
        found(["a"], ["b"], least=2)
    assert found([], ["a"]) == found(["a"], []) == []


EQUAL, NEAR = Shared("t1", "aime24", "a3", "equal", 1.0), Shared("t7", "math500", "m5", "overlap", 0.512)


def test_refuse_stops_at_equal_questions_only() -> None:
    with pytest.raises(ValueError, match=r"1 row asks questions of aime24 \(1\) too: t1 = aime24:a3; .*drop"):
        check_contamination([EQUAL, NEAR], "refuse")
    (warning,) = check_contamination([NEAR], "refuse")
    assert "1 row overlaps questions of math500 (1) by much of their words: t7 ~ math500:m5 (0.51)." in warning
    assert check_contamination([], "refuse") == check_contamination([], "drop") == []


def test_warn_tells_of_both_and_drop_leaves_both_out() -> None:
    equal, near = check_contamination([EQUAL, NEAR], "warn")
    assert "1 row asks questions of aime24" in equal
    assert "1 row overlaps" in near
    (said,) = check_contamination([EQUAL, NEAR], "drop")
    assert "2 rows are left out of training, for questions of aime24 (1), math500 (1) that they ask or overlap" in said
    assert dropped([EQUAL, NEAR, EQUAL]) == {"t1", "t7"}


def test_a_long_list_is_cut_for_the_eye_and_whole_in_the_file(tmp_path: Path) -> None:
    many = [Shared(f"t{i}", "a", f"a{i}", "equal", 1.0) for i in range(8)]
    assert listing(many).endswith("t4 = a:a4 and 3 more")
    assert listing(many, None).count("=") == 8
    write_shared(many, tmp_path / "contamination.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "contamination.jsonl").read_text().splitlines()]
    assert [Shared(**row) for row in rows] == many


@pytest.mark.skipif(not DATA.is_dir(), reason="the data sets are not on this machine")
def test_on_real_questions() -> None:
    def load(name: str) -> list[Example]:
        rows = map(json.loads, (DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines())
        return [Example(row["id"], row["prompt"], "") for row in rows]

    tests = {name: load(name) for name in ("math500", "aime24", "olympiadbench")}
    near = find_shared(load("deepscaler_sub"), tests)
    # Two problems with other numbers, and one told apart by a space inside a product.
    assert {(s.id, s.kind) for s in near} == {
        ("math500-test/intermediate_algebra/1126.json", "overlap"),
        ("math500-test/algebra/2430.json", "overlap"),
        ("olympiadbench-1930", "overlap"),
    }
    assert len(find_shared(load("humaneval"), {"plus": load("humaneval_plus_mini")})) == 164
    functions = load("humaneval")
    assert find_shared(functions[:80], {"rest": functions[80:]}) == ()
