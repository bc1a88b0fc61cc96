"""Published golds against themselves, other spellings and each other, through the workers."""

import json
import re
from fractions import Fraction
from pathlib import Path

import pytest

from gapo_lit.rewards.math import MathVerify
from gapo_lit.types import Completion, Example, Prompt

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"
GOLDEN = Path(__file__).resolve().parents[1] / "golden"
SETS = ("math500", "gsm8k_test", "olympiadbench", "aime24")
WORDINGS = (r"Thus we are done: \boxed{%s}", "The answer is $%s$.")


@pytest.fixture(scope="module")
def reward():
    reward = MathVerify(workers=2, time_limit=60.0)
    yield reward
    reward.close()


def golds_of(name: str) -> list[str]:
    path = DATA / f"{name}.jsonl"
    if not path.exists():
        pytest.skip(f"{path.name} is not beside this checkout")
    return [json.loads(line)["answer"] for line in path.read_text().splitlines()]


def verdicts(reward: MathVerify, pairs: list[tuple[str, str]]) -> list[str]:
    prompts = [Prompt(Example(str(i), "?", gold), (1,), "?") for i, (gold, _) in enumerate(pairs)]
    return [v.kind for v in reward(prompts, [Completion((1,), (0.0,), text, "stop") for _, text in pairs])]


def refused_golds(reward: MathVerify, golds: list[str]) -> list[tuple[str, str]]:
    # A gold with dollars of its own does not get a second pair around it.
    pairs = [(g, w.replace("$%s$", "%s") % g if "$" in g else w % g) for g in golds for w in WORDINGS]
    return [pair for pair, kind in zip(pairs, verdicts(reward, pairs), strict=True) if kind != "correct"]


def mismatches(golds: list[str], shifts: range) -> list[tuple[str, str]]:
    return [(g, golds[(i + s) % len(golds)]) for i, g in enumerate(golds) for s in shifts if g]


def value(text: str) -> Fraction | str:
    """What the gold is worth by rules that share nothing with the verifier: a number, else its own letters."""
    text = re.sub(
        r"\\!|\\\$|\$|\^\\circ|\^\{\\circ\}|\\left|\\right|\\text\{[^}]*\}|\s|^\w=|(?<=\d),(?=\d{3})", "", text
    )
    percent, text = text.endswith("%"), text.rstrip("%\\.")
    text = re.sub(r"\\[dt]frac", r"\\frac", text).replace(":", "/")
    text = re.sub(r"\\frac\{?(\d+?)\}?\{?(\d+)\}?$", r"\1/\2", text)
    try:
        return Fraction(text) / (100 if percent else 1)
    except (ValueError, ZeroDivisionError):
        return text


def wrongly_accepted(reward: MathVerify, pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    kinds = verdicts(reward, [(g, rf"\boxed{{{a}}}") for g, a in pairs])
    assert "none" not in kinds
    return [(g, a) for (g, a), kind in zip(pairs, kinds, strict=True) if kind == "correct" and value(g) != value(a)]


@pytest.mark.parametrize("name", SETS)
def test_golds_equal_themselves(reward, name):
    golds = golds_of(name)
    assert refused_golds(reward, golds[:: 5 if len(golds) > 100 else 1]) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_every_gold_equals_itself(reward, name):
    assert refused_golds(reward, golds_of(name)) == []


def test_golds_of_other_problems_are_no_answers(reward):
    golds = golds_of("math500")[::2]
    assert wrongly_accepted(reward, mismatches(golds, range(1, 2))) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SETS, "deepscaler_sub"])
def test_golds_of_more_problems_are_no_answers(reward, name):
    assert wrongly_accepted(reward, mismatches(golds_of(name), range(1, 4))) == []


def test_equivalent_spellings_are_accepted(reward):
    rows = [json.loads(line) for line in (GOLDEN / "minerva_equivalent_pairs.jsonl").read_text().splitlines()]
    kinds = verdicts(reward, [(r["gold"], rf"\boxed{{{r['equivalent']}}}") for r in rows])
    assert kinds == ["correct"] * len(rows)
