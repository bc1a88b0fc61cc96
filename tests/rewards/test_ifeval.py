"""Instructions that a program can check, against the verdicts of an independent implementation."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapo_lit.evaluation.problems import problems_of
from gapo_lit.evaluation.results import total_components
from gapo_lit.rewards.ifeval import IFEval, followed, variants
from gapo_lit.rewards.ifeval_instructions import row_checks
from gapo_lit.rewards.ifeval_text import capital_words, language, language_detector, sentence_splitter, sentences
from gapo_lit.types import Completion, EvaluationBatch, Example, Prompt, Rollout, Verdict

GOLDEN = json.loads((Path(__file__).resolve().parents[1] / "golden" / "ifeval_verdicts.json").read_text())
LENGTH = "length_constraints"
DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "ifeval.jsonl"


def row(ids: list[str], kwargs: list[dict[str, Any]], id: str = "row") -> Prompt:
    return Prompt(Example(id, "?", "", {"instruction_id_list": ids, "kwargs": kwargs}), (1,), "?")


def say(text: str) -> Completion:
    return Completion((1,), (0.0,), text, "stop")


def graded(prompt: Prompt, text: str, **settings: Any) -> Verdict:
    (verdict,) = IFEval(**settings)([prompt], [say(text)])
    return verdict


@pytest.mark.parametrize("number", range(len(GOLDEN["cases"])))
def test_each_instruction_is_judged_as_by_the_reference(number: int) -> None:
    case = GOLDEN["cases"][number]
    checks = row_checks({"instruction_id_list": case["ids"], "kwargs": case["kwargs"]})
    strict, loose = followed(case["response"], [check for _, check in checks])
    ours = {"strict": list(strict), "loose": list(loose)}
    assert ours == {mode: case[mode] for mode in ours}


def test_every_instruction_of_the_data_set_is_among_them() -> None:
    assert len({id for case in GOLDEN["cases"] for id in case["ids"]}) == 25


def test_an_evaluation_reports_the_four_published_accuracies() -> None:
    """The reference's own figures for the same responses: instructions count over all prompts, not prompt by prompt."""
    reward = IFEval()
    prompts = [row(c["ids"], c["kwargs"], str(i)) for i, c in enumerate(GOLDEN["cases"])]
    completions = [say(c["response"]) for c in GOLDEN["cases"]]
    verdicts = reward(prompts, completions)
    rollouts = [Rollout(p, c, v, i, 0) for i, (p, c, v) in enumerate(zip(prompts, completions, verdicts, strict=True))]
    problems = problems_of(EvaluationBatch("ifeval", tuple(range(len(rollouts))), tuple(rollouts)))
    assert reward.figures(total_components(problems)) == pytest.approx(GOLDEN["accuracies"])
    assert reward.figures({}) == {}


def test_correct_means_all_and_the_score_may_be_the_share() -> None:
    prompt = row(["punctuation:no_comma", "change_case:english_lowercase"], [{}, {}])
    assert graded(prompt, "all is well").kind == "correct"
    partly = graded(prompt, "all is well, they say", score="instruction")
    assert (partly.kind, partly.score) == ("incorrect", 0.5)
    assert partly.reason == "not followed: punctuation:no_comma"
    assert graded(prompt, "all is well, they say").score == 0
    assert graded(prompt, "Sure, here you are:\nall is well", mode="loose").kind == "correct"
    assert graded(prompt, "Sure, here you are:\nall is well").kind == "incorrect"


def test_only_the_response_counts() -> None:
    prompt = row(["punctuation:no_comma"], [{}])
    thought = "Hm, well, let me see.</think>\nno commas here"
    assert graded(prompt, thought).kind == "incorrect"
    assert graded(prompt, thought, response_after="</think>").kind == "correct"
    assert graded(prompt, "no commas but no end of thought", response_after="</think>").kind == "incorrect"
    for blank in ("", " \n "):
        assert graded(prompt, blank).kind == "incorrect"


@pytest.mark.parametrize(
    ("ids", "kwargs", "said"),
    [
        (["punctuation:no_coma"], [{}], "punctuation:no_comma"),
        (["punctuation:no_comma"], [], "row"),
        (["length_constraints:number_words"], [{"num_words": 3}], "relation"),
        (["keywords:existence"], [{"keyword": ["a"]}], "keyword"),
        (["language:response_language"], [{"language": "zh"}], "zh-cn"),
        (["length_constraints:number_paragraphs"], [{"num_paragraphs": 0}], "at least 1"),
        (
            [f"{LENGTH}:nth_paragraph_first_word"],
            [{"num_paragraphs": 2, "nth_paragraph": 3, "first_word": "a"}],
            "3 of 2",
        ),
        ("import os", "[]", "neither JSON nor a Python literal"),
        ("__import__('os').system('touch M')", "[{}]", "neither JSON nor a Python literal"),
    ],
)
def test_rows_that_cannot_be_checked_are_named_before_the_run(ids: Any, kwargs: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="1 of 1 rows have instructions that cannot be checked: row: ") as refusal:
        IFEval().check([row(ids, kwargs).example])
    assert said in str(refusal.value)
    assert not Path("M").exists()


def test_columns_may_be_lists_json_or_python_text_with_unused_arguments() -> None:
    """As on the hub, where every row has every argument, most of them null, and as in a file of text columns."""
    ids, kwargs = ["length_constraints:number_words"], [{"relation": "at least", "num_words": 2, "keywords": None}]
    for encode in (lambda v: v, json.dumps, repr):
        prompt = row(encode(ids), encode(kwargs))
        assert (graded(prompt, "one two").kind, graded(prompt, "one").kind) == ("correct", "incorrect")


def follows(id: str, text: str, **arguments: Any) -> bool:
    return graded(row([id], [arguments]), text).kind == "correct"


def test_where_we_differ_from_the_reference_on_purpose() -> None:
    """Each row of the table in tests/golden/README.md that one response can show."""
    letter = {"letter": "#", "let_frequency": 3, "let_relation": "at least"}
    assert follows("keywords:letter_frequency", "# one # two #", **letter)
    assert not follows("keywords:letter_frequency", "abc" * 99, **letter)
    assert follows("keywords:existence", "I write c++.", keywords=["C++"])
    assert not follows("keywords:existence", "abc", keywords=["a.c"])
    assert follows("keywords:forbidden_words", "An ergo.", forbidden_words=["e.g"])
    assert follows("detectable_format:multiple_sections", "Q&A (1", section_spliter="Q&A (", num_sections=1)
    assert not follows("detectable_format:json_format", "[" * 100_000 + "]" * 100_000)
    assert len(sentences("Hi. . . . Yo.")) == 2


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Dr. Smith left at 3.5 p.m. He was tired.", 2),
        ("Really?!", 2),
        ("Really?! Yes.", 2),
        ("(He left.) She stayed.", 2),
        ("He said “yes.” Then he left.", 1),  # curly quotes are no punctuation to NLTK 3.9
        ("no end", 1),
        ("", 0),
    ],
)
def test_sentences_are_those_of_nltk(text: str, count: int) -> None:
    assert len(sentences(text)) == count


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("DON'T", 2),
        ("DON’T", 2),
        ("JOHN'S. Then", 2),
        ("then JOHN'S.", 2),
        ("NASA's WELL-KNOWN probe", 2),
        ("COVID-19 I CANNOT", 4),
        ("WORD—WORD A/B", 2),
        ("DNA, RNA", 2),
        ("1,000 No", 0),
    ],
)
def test_capital_words_are_those_of_the_treebank(text: str, count: int) -> None:
    assert capital_words(text) == count


def test_a_long_text_is_counted_no_further_than_it_must_be() -> None:
    for threshold in (1, 7, 400, 401, 3_000):
        for relation in ("at least", "less than"):
            want = (threshold <= 400) == (relation == "at least")
            text = "The sun rose over HILLS. " * 400
            assert follows(f"{LENGTH}:number_sentences", text, num_sentences=threshold, relation=relation) == want
            capital = {"capital_frequency": threshold, "capital_relation": relation}
            assert follows("change_case:capital_word_frequency", text, **capital) == want


def test_the_language_is_always_the_same() -> None:
    assert len({language("Hola, hello, hallo, ciao: banana radio hotel taxi.") for _ in range(20)}) == 1
    assert language("123 !?") is None
    assert follows("language:response_language", "123 !?", language="hi")  # as in the reference: nothing to tell by


@pytest.mark.parametrize(
    ("module", "id", "arguments"),
    [
        ("punkt", f"{LENGTH}:number_sentences", {"num_sentences": 3, "relation": "at least"}),
        ("langdetect.detector_factory", "change_case:english_capital", {}),
    ],
)
def test_what_is_not_installed_is_said_before_the_run(
    monkeypatch: pytest.MonkeyPatch, module: str, id: str, arguments: dict[str, Any]
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    for load in (language_detector, sentence_splitter):
        load.cache_clear()
    with pytest.raises(ImportError, match=r"gapo-lit\[ifeval\]"):
        IFEval().check([row([id], [arguments]).example])
    IFEval().check([row(["punctuation:no_comma"], [{}]).example])


HOSTILE = [
    "a" * 1_000_000,
    "* " * 300_000,
    "\n" * 500_000,
    "<<" * 200_000,
    "[" * 300_000,
    "a, " * 200_000,
    "\0" * 9,
    "\ud800",
]
HOSTILE += [
    "{" * 100_000,
    '"' * 300_000,
    "P.S. " * 100_000,
    "." * 500_000,
    "*a" * 200_000,
    "***" * 200_000,
    "\u202e\u200f",
    "p. " * 20_000,
    "x's. " * 20_000,
    "?! " * 20_000,
]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text[:4]))
def test_hostile_completions_get_a_verdict(text: str) -> None:
    """Every instruction of the golden cases at once; a quadratic one would take hours."""
    seen: dict[str, dict[str, Any]] = {}
    for case in GOLDEN["cases"]:
        seen.update(zip(case["ids"], case["kwargs"], strict=True))
    verdict = graded(row(list(seen), list(seen.values())), text)
    assert verdict.kind in ("correct", "incorrect")


@given(st.text(max_size=60))
def test_loose_is_never_stricter(text: str) -> None:
    checks = [check for _, check in row_checks({"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]})]
    strict, loose = followed(text, checks)
    assert loose >= strict
    assert variants(text)[0] == text
    assert len(variants(text)) <= 8


@pytest.mark.skipif(not DATA.is_file(), reason="the IFEval file is not beside the repository")
def test_every_row_of_the_data_set_can_be_checked() -> None:
    rows = [json.loads(line) for line in DATA.read_text().splitlines()]
    assert len(rows) == 541
    IFEval().check([Example(r["id"], r["prompt"], "", r) for r in rows])


@pytest.mark.parametrize("settings", [{"mode": "lax"}, {"score": "words"}, {"response_after": ""}])
def test_unknown_settings_are_refused(settings: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(settings))}="):
        IFEval(**settings)
