"""A function of the user's as a reward: every way to name it, to call it, to answer, and to fail."""

from __future__ import annotations

import datetime
import json
import math
import re
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gapo_lit.rewards import function_worker
from gapo_lit.rewards.function import FunctionReward
from gapo_lit.rewards.function_source import find_task
from gapo_lit.types import Completion, Example, Prompt, Verdict

THEIRS = '''
import ctypes, datetime, os, sys, time

def act(text):
    """What a completion says is done."""
    if text == "exit": sys.exit(0)
    if text == "die": os._exit(0)
    if text == "hang": time.sleep(600)
    if text == "crash": ctypes.string_at(0)
    if text == "memory": bytearray(10**10)
    if text == "recurse": act(text)
    if text == "raise": return {}[text]
    if text == "print": print("a word from the reward")
    return len(text)

def one(completion):
    return act(completion)

def many(completions):
    return [act(text) for text in completions]

def together(completions):
    if len(completions) > 1: raise RuntimeError("one at a time, please")
    return [1]

def arguments(completion, prompt, question, answer, brand, extra="default", **columns):
    return len(f"{completion} {prompt} {question} {answer} {brand} {extra} {sorted(columns)}")

def seen(completion, **columns):
    return {f"{name}={value!r}": 1 for name, value in [*columns.items(), ("completion", completion)]}

def lists(completions, prompts, questions, answers, brand, size=0):
    from gapo_lit.types import Verdict
    said = zip(completions, prompts, questions, answers, brand, size, strict=True)
    return [Verdict("incorrect", 0.5, repr(row), {"part": 2.0}, "x") for row in said]

def brands(completions, brand, size="the default"):
    sizes = size if isinstance(size, list) else [size] * len(brand)
    return [{f"{name} {s}": 1} for name, s in zip(brand, sizes, strict=True)]

def counted(completions):
    return [float(len(completions))] * (len(completions) + 1)

def early(completion, day):
    return day < datetime.date(2020, 1, 1)

def sized(completion, *, limit, unit=1):
    return len(completion) <= limit * unit

class Sized:
    def __init__(self, limit):
        self.limit = limit

    def __call__(self, completion):
        return len(completion) <= self.limit

class Silent: ...

async def later(completion): ...

def blind(text): ...

def both(completion, completions): ...

def positional(completion, /): ...

number = 3
'''


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("theirs") / "title_rules.py"
    path.write_text(THEIRS)
    return str(path)


class Here:
    """A pool that works in this process: what is asked and answered is the same, and no process starts."""

    def __init__(self, module: str, *, arguments: Sequence[str], **limits: Any) -> None:
        given = json.loads(arguments[0])
        self.task = find_task(given["function"], given["settings"])

    def map(self, requests: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        return [json.loads(json.dumps(function_worker.answer(self.task, request))) for request in requests]

    def close(self) -> None: ...

    def pids(self) -> list[int]:
        return []


@pytest.fixture
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gapo_lit.rewards.function.WorkerPool", Here)
    monkeypatch.setattr("sys.path", [*sys.path])


here = pytest.mark.usefixtures("_here")


def rows(*texts: str, **columns: Sequence[Any]) -> tuple[list[Prompt], list[Completion]]:
    """A prompt and a completion for each text; columns: their values, row by row."""
    examples = [
        Example(f"p{i}", f"q{i}", f"a{i}", {name: values[i] for name, values in columns.items()})
        for i in range(len(texts))
    ]
    return [Prompt(e, (1,), f"ask {e.question}") for e in examples], [
        Completion((1,), (0.0,), t, "stop") for t in texts
    ]


def grade(
    function: str, *texts: str, columns: dict[str, Sequence[Any]] | None = None, **settings: Any
) -> tuple[list[Verdict], list[str]]:
    """Verdicts and warnings of one call; workers of their own, gone afterwards."""
    reward = FunctionReward(function, workers=1, **settings)
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            verdicts = reward(*rows(*texts, **(columns or {})))
    finally:
        reward.close()
    assert reward.pool.pids() == []
    return verdicts, [str(w.message) for w in said]


# What it may return


@pytest.mark.parametrize(
    ("value", "score", "kind", "components"),
    [
        (0.25, 0.25, None, {}),
        (-3, -3.0, None, {}),
        (True, 1.0, "correct", {}),
        (False, 0.0, "incorrect", {}),
        (None, None, None, {}),
        (np.float32(0.5), 0.5, None, {}),
        (np.int64(2), 2.0, None, {}),
        (np.bool_(False), 0.0, "incorrect", {}),
        (np.array(1.5), 1.5, None, {}),
        (torch.tensor(0.5), 0.5, None, {}),
        (torch.tensor(True), 1.0, "correct", {}),
        ({"brand": 1, "length": 0.5}, 1.5, None, {"brand": 1.0, "length": 0.5}),
        ({"brand": True, "caps": np.float64(-1)}, 0.0, None, {"brand": 1.0, "caps": -1.0}),
        (Verdict.of(True, "why", "42"), 1.0, "correct", {}),
        (Verdict("incorrect", 0.5, "why", {"a": 1.0}), 0.5, "incorrect", {"a": 1.0}),
        (Verdict.none("why"), None, "none", {}),
    ],
)
def test_what_counts_as_a_value(value: Any, score: float | None, kind: str | None, components: dict[str, Any]) -> None:
    said = function_worker.outcome(value)
    assert (said["score"], said["kind"], said["components"]) == (score, kind, components)
    assert type(said["score"]) in (float, type(None))
    if isinstance(value, Verdict):
        assert (said["reason"], said["answer"]) == (value.reason, value.answer)


def test_a_part_without_a_value_leaves_the_whole_without_a_verdict() -> None:
    said = function_worker.outcome({"brand": 1, "judge": None})
    assert (said["score"], said["reason"]) == (None, "the function gave no value for judge")


class Hostile:
    shape = ()

    def item(self) -> float:
        raise SystemError("no")

    def __repr__(self) -> str:
        raise SystemError("no")


@pytest.mark.parametrize(
    "value",
    [
        *(math.nan, math.inf, 10**400, 1j, "1", b"1", "correct", (1.0, "good"), [1.0], [], {}, set(), object()),
        *({"a": math.nan}, {"a": "1"}, {1: 1.0}, np.array([1.0]), np.float32("nan"), torch.ones(2), torch.ones(1)),
        *(Verdict("right", 1.0), Verdict("correct", math.nan), Verdict("correct", 1.0, "", {"a": math.inf})),  # type: ignore[arg-type]
        *(np.datetime64("2020-01-01"), Hostile(), abs, (x for x in ())),
    ],
)
def test_what_does_not(value: Any) -> None:
    said = function_worker.outcome(value)
    assert set(said) == {"failure", "kind"}
    assert said["failure"].startswith("returned ")
    assert type(value).__name__ in said["failure"]


# Naming it


def test_a_path_a_module_and_an_entry_point(theirs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(theirs).parent
    (tmp_path / "own_rules-1.0.dist-info").mkdir()
    (tmp_path / "own_rules-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: own-rules\nVersion: 1\n"
    )
    points = tmp_path / "own_rules-1.0.dist-info" / "entry_points.txt"
    points.write_text("[gapo_lit.rewards]\ntitle_length = title_rules:one\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.chdir(folder)
    for name in (f"{theirs}:one", "title_rules.py:one", "title_rules:one", "title_length"):
        verdicts, said = grade(name, "abc")
        assert [v.score for v in verdicts] == [3.0]
        assert said == []


@here
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("{folder}/title_rule.py:one", r"there is no file .*title_rule.py; did you mean title_rules.py"),
        ("{theirs}:onee", r"has no 'onee'; did you mean one"),
        ("{theirs}:number", "is int and no function or class"),
        ("{theirs}:blind", "has the parameters text; give it one called completion, for one completion"),
        ("{theirs}:both", "has the parameters completion, completions; give it one"),
        ("{theirs}:later", "is async"),
        ("{theirs}:positional", "takes 'completion' by position alone"),
        ("{theirs}:Silent", "makes objects that cannot be called"),
        ("{theirs}:Sized", "could not be made: TypeError: .*missing 1 required positional argument: 'limit'"),
        ("jsonn:loads", "there is no module 'jsonn' on Python's path"),
        ("json:lods", "json has no 'lods'; did you mean loads"),
        ("title_length", "no entry point 'title_length' in the group gapo_lit.rewards.*path/to/file.py:name"),
        ("gapo_lit.rewards.number:ExactMatch", "is a Reward already"),
    ],
)
def test_what_cannot_be_found_or_called(name: str, says: str, theirs: str) -> None:
    """In this process, which the real one only wraps."""
    with pytest.raises(ValueError, match=says):
        find_task(name.format(theirs=theirs, folder=Path(theirs).parent), {})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import nowhere_at_all", r"could not be imported: ModuleNotFoundError: .*nowhere_at_all.* \(bad.py:1\)"),
        ("import sys\nsys.exit(3)", r"could not be imported: SystemExit: 3 \(bad.py:2\)"),
        ("def one(:", "could not be imported: SyntaxError"),
        ("import os\nos._exit(3)", r"did not start: worker died \(exit status 3\)"),
    ],
)
def test_a_file_that_fails_is_refused_at_once(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(text)
    with pytest.raises(ValueError, match=says):
        FunctionReward(f"{tmp_path}/bad.py:one", workers=1)


@here
def test_settings_of_a_class_and_of_a_function(theirs: str) -> None:
    for name in ("Sized", "sized"):
        verdicts, _ = grade(f"{theirs}:{name}", "abc", "abcd", settings={"limit": 3})
        assert [v.kind for v in verdicts] == ["correct", "incorrect"]
    with pytest.raises(ValueError, match="no setting 'limt'; did you mean limit"):
        find_task(f"{theirs}:Sized", {"limt": 3})
    assert find_task(f"{theirs}:sized", {"limit": 3}).required == ("completion",)


def test_settings_that_cannot_be(theirs: str) -> None:
    for settings, says in (
        ({"correct_at": math.nan}, "correct_at=nan"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"time_limit": 0}, "time_limit=0"),
        ({"workers": 0}, "workers=0"),
    ):
        with pytest.raises(ValueError, match=says):
            FunctionReward(f"{theirs}:one", **settings)  # type: ignore[arg-type]


# Filling its parameters


@here
def test_parameters_are_filled_by_name(theirs: str) -> None:
    columns = {"brand": ["Nia", "Oru"], "other": [1, 2]}
    verdicts, _ = grade(f"{theirs}:arguments", "x", "yy", columns=columns)
    expected = [
        f"{c} ask q{i} q{i} a{i} {b} default ['other']" for i, (c, b) in enumerate([("x", "Nia"), ("yy", "Oru")])
    ]
    assert [v.score for v in verdicts] == [len(text) for text in expected]


def test_all_columns_and_values_that_json_has_no_words_for(theirs: str) -> None:
    day = datetime.date(2019, 5, 1)
    columns = {"day": [day], "raw": [b"\xff"], "pair": [(1, 2)], "vector": [np.array([1, 2])]}
    (verdict,), _ = grade(f"{theirs}:seen", "\ud800", columns=columns)
    given = {**{name: values[0] for name, values in columns.items()}, "completion": "\ud800"}
    given |= {"prompt": "ask q0", "question": "q0", "answer": "a0"}
    assert set(verdict.components) == {f"{name}={value!r}" for name, value in given.items()}
    (verdict,), _ = grade(f"{theirs}:early", "x", columns={"day": [day]})
    assert verdict.kind == "correct"


@here
def test_a_batch_is_given_lists(theirs: str) -> None:
    columns = {"brand": ["A", "B", "C"], "size": [None, 7, 8]}
    verdicts, said = grade(f"{theirs}:lists", "x", "y", "z", columns=columns, batch_size=2)
    assert [v.reason for v in verdicts] == [
        "('x', 'ask q0', 'q0', 'a0', 'A', None)",
        "('y', 'ask q1', 'q1', 'a1', 'B', 7)",
        "('z', 'ask q2', 'q2', 'a2', 'C', 8)",
    ]
    assert {(v.kind, v.score, v.components["part"], v.answer) for v in verdicts} == {("incorrect", 0.5, 2.0, "x")}
    assert said == []


@here
def test_a_row_may_lack_a_column_that_others_of_its_batch_have(theirs: str) -> None:
    reward = FunctionReward(f"{theirs}:brands", workers=1, batch_size=2)
    columns: list[dict[str, Any]] = [{"brand": "A"}, {"brand": "B", "size": 7}, {"brand": "C"}]
    prompts = [Prompt(Example(f"p{i}", "q", "", row), (1,), "q") for i, row in enumerate(columns)]
    verdicts = reward(prompts, rows("x", "y", "z")[1])
    reward.close()
    assert [list(v.components) for v in verdicts] == [["A None"], ["B 7"], ["C the default"]]


@here
def test_a_parameter_without_a_column_is_named_before_the_run(theirs: str) -> None:
    reward = FunctionReward(f"{theirs}:lists", workers=1)
    with pytest.raises(
        ValueError, match=r"'brand', which 1 of 2 rows have no column for \(b\); did you mean brnd.*prompts"
    ):
        reward.check([Example("a", "q", "", {"brand": 1}), Example("b", "q", "", {"brnd": 1})])
    reward.check([Example("a", "q", "", {"brand": 1})])
    with pytest.raises(ValueError, match=r"a: column 'brand' \(function\) cannot be handed to"):
        reward.check([Example("a", "q", "", {"brand": lambda: 1, "unused": lambda: 1})])
    assert reward([], []) == []


@here
def test_correct_from_a_reward_on(theirs: str) -> None:
    verdicts, _ = grade(f"{theirs}:one", "a", "abc", "abcd", correct_at=3)
    assert [(v.kind, v.score) for v in verdicts] == [("incorrect", 1.0), ("correct", 3.0), ("correct", 4.0)]


# Failing

FAILURES = {
    "raise": r"KeyError: 'raise' \(title_rules.py:12\)",
    "exit": r"SystemExit: 0 \(title_rules.py:6\)",
    "die": r"worker died \(exit status 0\)",
    "crash": r"worker died \(exit status -11\)",
    "hang": "time limit of 1 s",
    "memory": "MemoryError",
    "recurse": "RecursionError",
}


@pytest.mark.parametrize("function", ["one", "many"])
def test_a_failure_costs_its_own_verdict_and_is_told_once(function: str, theirs: str) -> None:
    texts = ["ok", *FAILURES, "print", "raise", "ok"]
    verdicts, said = grade(f"{theirs}:{function}", *texts, time_limit=1.0, memory_mb=1024)
    assert [v.kind for v in verdicts] == ["correct", *["none"] * len(FAILURES), "correct", "none", "correct"]
    for verdict, reason in zip(verdicts[1:], FAILURES.values(), strict=False):
        assert verdict.score is None
        assert re.match(reason, verdict.reason), verdict.reason
    assert len(said) == len(FAILURES), "once a kind"
    (told,) = (text for text in said if "KeyError" in text)
    assert f"{theirs}:{function} gave no verdict for a completion of p1: KeyError: 'raise'" in told
    assert 'title_rules.py:12 in act: if text == "raise": return {}[text]' in told


@here
def test_a_batch_of_wrong_length_is_nobodys(theirs: str) -> None:
    verdicts, said = grade(f"{theirs}:counted", "a", "b")
    assert [v.reason for v in verdicts] == ["returned 3 values for a batch of 2"] * 2
    assert len(said) == 1


@here
def test_a_batch_that_only_fails_together_is_told(theirs: str) -> None:
    verdicts, said = grade(f"{theirs}:together", "a", "b")
    assert [v.score for v in verdicts] == [1.0, 1.0]
    assert "failed for 2 completions together and for none of them alone: RuntimeError" in said[0]


def test_what_it_prints_reaches_the_user(theirs: str, capfd: pytest.CaptureFixture[str]) -> None:
    grade(f"{theirs}:one", "print")
    assert "a word from the reward" in capfd.readouterr().err


def test_it_may_do_what_a_program_may(tmp_path: Path) -> None:
    """The function is trusted: it writes files and starts programs."""
    text = f"""
import subprocess, sys
def one(completion):
    open({str(tmp_path / "log")!r}, "a").write(completion)
    return subprocess.run([sys.executable, "-c", "raise SystemExit(7)"]).returncode
"""
    (tmp_path / "busy.py").write_text(text)
    (verdict,), _ = grade(f"{tmp_path}/busy.py:one", "words")
    assert verdict.score == 7
    assert (tmp_path / "log").read_text() == "words"
