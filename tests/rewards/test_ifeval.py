"""Instructions that a program can check, against the verdicts of an independent implementation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapo_lit.evaluation.problems import problems_of
from gapo_lit.evaluation.results import total_components
from gapo_lit.rewards.ifeval import IFEval, followed, variants
from gapo_lit.rewards.ifeval_instructions import row_checks
from gapo_lit.types import Completion, EvaluationBatch, Example, Prompt, Rollout, Verdict

GOLDEN = json.loads((Path(__file__).resolve().parents[1] / "golden" / "ifeval_verdicts.json").read_text())
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
