"""Every preset of data/ and benchmark/ loads a data set of the hub's columns, from a folder in place of the hub's."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonargparse import ArgumentParser

from gapo_lit.cli.parts import load_parts
from gapo_lit.cli.recipe import compose
from gapo_lit.prompts import HubPrompts, PromptSource, Template
from gapo_lit.prompts.contamination import find_shared
from gapo_lit.registry import lookup
from gapo_lit.rewards.code_tasks import task_of
from gapo_lit.types import Example

datasets = pytest.importorskip("datasets")

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "recipes"
SHARED = ROOT.parent / "shared" / "data"
Row = dict[str, Any]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path_factory.mktemp("cache")))
    datasets.disable_progress_bars()


def problem(i: int) -> Row:
    return {"problem": f"What is $\\frac{{{i}}}{{7}}$ of {{7}}?", "answer": str(i), "solution": f"\\boxed{{{i}}}"}


def worked(i: int) -> Row:
    return {"question": f"Ann has {i} pens and buys 2. How many?", "answer": f"She has <<{i}+2>>.\n#### {i + 2}"}


def function(i: int) -> Row:
    head = f'def add_{i}(a: int) -> int:\n    """Add {i} to {{a}}."""\n'
    test = f"def check(candidate):\n    assert candidate(1) == {i + 1}\n"
    return {"task_id": f"T/{i}", "prompt": head, "canonical_solution": f"    return a + {i}\n", "test": test} | {
        "entry_point": f"add_{i}"
    }


def contest(i: int) -> Row:
    """Two of three are in the window; every other one completes a class."""
    cases = json.dumps([{"input": "1", "output": str(i), "testtype": "functional" if i % 2 else "stdin"}])
    return {
        **{
            "question_title": "t",
            "question_content": f"Print {{{i}}}.",
            "platform": "atcoder",
            "question_id": f"abc{i}",
        },
        **{"contest_id": "c", "contest_date": ("2024-07-31", "2024-08-01", "2025-01-31")[i % 3] + "T00:00:00"},
        **{"starter_code": "class Solution:\n    def f(self, n):" if i % 2 else "", "difficulty": "easy"},
        **{"public_test_cases": cases, "private_test_cases": "[]"},
        **{"metadata": json.dumps({"func_name": "f"} if i % 2 else {})},
    }


def program(i: int) -> Row:
    return {
        "problem": f"Print {i}.",
        "tests": json.dumps([{"input": "", "output": str(i), "type": "stdin_stdout"}]),
    } | {"solutions": [f"print({i})"]}


def completed(i: int) -> Row:
    tests = json.dumps([{"input": "1", "output": str(i), "testtype": "functional"}])
    return {"problem": f"Return {i}.", "tests": tests, "starter_code": "class Solution:\n    def f(self, n):"} | {
        "metadata": {"func_name": "f"}
    }


def instructed(i: int) -> Row:
    ids = ["punctuation:no_comma", "length_constraints:number_words"]
    return {"key": 1000 + i, "prompt": f"Write about {{{i}}} cats, in 9 words.", "instruction_id_list": ids} | {
        "kwargs": [{"num_words": None, "relation": None}, {"num_words": 9, "relation": "at least"}]
    }


def olympiad(i: int) -> Row:
    row = {"id": i, "question": problem(i)["problem"], "final_answer": [f"${i}$"], "is_multiple_answer": False}
    return row | {"context": None, "error": None, "answer_type": "Numerical", "unit": None, "subfield": "Algebra"}


# The rows of each data set, by the columns that its preset's head names: {(config, split): (maker, rows)}.
Tables = dict[tuple[str | None, str], tuple[Callable[[int], Row], int]]
HUB: dict[str, Tables] = {
    "data/deepscaler": {(None, "train"): (problem, 300)},
    "data/math": {(None, "train"): (lambda i: problem(i) | {"unique_id": f"u{i}", "level": 1 + i % 5}, 300)},
    "data/gsm8k": {("main", "train"): (worked, 300), ("main", "test"): (worked, 3)},
    "data/deepcoder": {
        ("primeintellect", "train"): (program, 200),
        ("taco", "train"): (
            lambda i: program(i + 200) | {"tests": json.dumps({"inputs": ["1"], "outputs": ["2"]})},
            200,
        ),
        ("lcbv5", "train"): (completed, 200),
        ("codeforces", "test"): (program, 3),
    },
    "benchmark/gsm8k": {("main", "train"): (worked, 9), ("main", "test"): (worked, 3)},
    "benchmark/math500": {(None, "test"): (lambda i: problem(i) | {"unique_id": f"test/{i}", "level": 1}, 3)},
    "benchmark/aime24": {(None, "train"): (lambda i: problem(i) | {"id": 60 + i, "year": "2024"}, 3)},
    "benchmark/aime25": {(None, "test"): (lambda i: problem(i) | {"id": str(i)}, 3)},
    "benchmark/amc": {(None, "train"): (lambda i: problem(i) | {"id": i, "answer": float(i)}, 3)},
    "benchmark/minerva": {(None, "test"): (lambda i: {"question": f"How far, {i}?", "answer": str(i)}, 3)},
    "benchmark/olympiadbench": {
        ("OE_TO_maths_en_COMP", "train"): (olympiad, 3),
        ("TP_TO_maths_en_COMP", "train"): (worked, 2),
    },
    "benchmark/humaneval": {(None, "test"): (function, 3)},
    "benchmark/humaneval_plus": {(None, "test"): (function, 3)},
    "benchmark/livecodebench": {(None, "test"): (contest, 6)},
    "benchmark/ifeval": {(None, "train"): (instructed, 3)},
}
DATA = [name for name in HUB if name.startswith("data/")]
BENCHMARKS = [name for name in HUB if name.startswith("benchmark/")]


def hub(folder: Path, tables: dict[tuple[str | None, str], list[Row]]) -> Path:
    """A folder that loads as a hub data set does."""
    files: dict[str, list[tuple[str, str]]] = {}
    for (config, split), rows in tables.items():
        file = folder / (config or "default") / f"{split}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        files.setdefault(config or "default", []).append((split, f"{file.parent.name}/{file.name}"))
    lines = ["---", "configs:"]
    for config, splits in files.items():
        lines += [f"- config_name: {config}", "  data_files:"]
        lines += [line for split, path in splits for line in (f"  - split: {split}", f"    path: {path}")]
    (folder / "README.md").write_text("\n".join([*lines, "---", ""]))
    return folder


def own_hub(folder: Path, name: str) -> Path:
    return hub(folder, {key: [make(i) for i in range(count)] for key, (make, count) in HUB[name].items()})


def loaded(part: Row, folder: Path) -> HubPrompts:
    """A preset's source, with the folder for the data set that it names."""
    assert part["class_path"] == "HubPrompts"
    given = dict(part["init_args"])
    assert given.keys() <= inspect.signature(HubPrompts).parameters.keys()
    if given["name"] == "json":
        assert all(file.startswith("hf://datasets/") for file in given["data_files"])
        given["data_files"] = [str(file) for file in sorted(folder.rglob("*.jsonl"))]
    else:
        assert given["name"].count("/") == 1
        given["name"] = str(folder)
    return HubPrompts(**given)


def benchmark(name: str, folder: Path) -> tuple[list[Example], list[str]]:
    """The examples of a benchmark's preset, and what is asked of each."""
    ((called, entry),) = compose([RECIPES / f"{name}.yaml"])["data"]["benchmarks"].items()
    assert called == Path(name).name
    load_parts()
    lookup("reward", entry["reward"]["class_path"])
    examples = list(loaded(entry["prompts"], folder).examples())
    return examples, [Template(**entry["template"]).asked(example) for example in examples]


def test_a_preset_comes_through_the_parser_as_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """jsonargparse reads text once more as YAML, where `#` begins a comment."""
    monkeypatch.setenv("JSONARGPARSE_DEPRECATION_WARNINGS", "off")
    parser = ArgumentParser(parser_mode="omegaconf+", exit_on_error=False)
    parser.add_argument("--config", action="config")
    parser.add_argument("--prompts", type=PromptSource)
    parser.add_argument("--template", type=Template)
    for name in ("data/deepcoder", "data/gsm8k", "benchmark/livecodebench"):
        data = compose([RECIPES / f"{name}.yaml"])["data"]
        entries = data["benchmarks"].values() if "benchmarks" in data else [{**data, "prompts": data["train"]}]
        for entry in entries:
            given = {"prompts": entry["prompts"], "template": entry["template"]}
            parsed = parser.instantiate(parser.parse_args(["--config", yaml.safe_dump(given)]))
            assert parsed.template == Template(**entry["template"])
            assert vars(parsed.prompts) == vars(HubPrompts(**entry["prompts"]["init_args"]))


def test_every_preset_is_here() -> None:
    names = {
        str(p.relative_to(RECIPES).with_suffix(""))
        for part in ("data", "benchmark")
        for p in (RECIPES / part).iterdir()
    }
    assert names == HUB.keys()


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_asks_its_questions(name: str, tmp_path: Path) -> None:
    examples, asked = benchmark(name, own_hub(tmp_path, name))
    assert len(examples) == (4 if name.endswith("livecodebench") else 3)
    for example, text in zip(examples, asked, strict=True):
        assert example.question in text
        assert "{question}" not in text
    if "boxed" in asked[0]:
        assert all(text.endswith(" \\boxed{}.") for text in asked)
        assert all(example.answer.strip("$").isdigit() for example in examples)


@pytest.mark.parametrize("name", DATA)
def test_training_data_are_held_apart_from_validation(name: str, tmp_path: Path) -> None:
    data = compose([RECIPES / "base.yaml", RECIPES / f"{name}.yaml"])["data"]
    load_parts()
    lookup("reward", data["reward"]["class_path"])
    folder = own_hub(tmp_path, name)
    train, val = (loaded(data[part], folder).examples() for part in ("train", "val"))
    assert len(val) < len(train)
    assert len(val) + len(train) == sum(count for (_, split), (_, count) in HUB[name].items() if split == "train")
    assert [s for s in find_shared(train, {"val": val}) if s.kind == "equal"] == []
    template = Template(**data["template"])
    assert all(example.question in template.asked(example) for example in (*train[:9], *val))


@pytest.mark.parametrize("name", DATA)
def test_training_data_are_the_same_whatever_lay_below(name: str) -> None:
    """Settings merge over those of the same class below, so a preset says all that another might have said."""
    own = compose([RECIPES / "base.yaml", RECIPES / f"{name}.yaml"])["data"]
    for other in DATA:
        over = compose([RECIPES / "base.yaml", RECIPES / f"{other}.yaml", RECIPES / f"{name}.yaml"])["data"]
        assert {part: over[part] for part in ("train", "val", "reward", "template")} == {
            part: own[part] for part in ("train", "val", "reward", "template")
        }


@pytest.mark.parametrize("name", ["benchmark/humaneval", "benchmark/humaneval_plus", "benchmark/livecodebench"])
def test_programs_come_with_tests_and_in_the_form_that_their_row_asks_for(name: str, tmp_path: Path) -> None:
    examples, asked = benchmark(name, own_hub(tmp_path, name))
    kinds = [task_of(example, "auto").kind for example in examples]
    if not name.endswith("livecodebench"):
        assert kinds == ["assert"] * 3
        assert all(f"```python\n{example.question}```" in text for example, text in zip(examples, asked, strict=True))
        return
    assert [example.id for example in examples] == ["abc1", "abc2", "abc4", "abc5"]
    assert kinds == ["call", "stdin", "stdin", "call"]
    assert ["class Solution" in text for text in asked] == [kind == "call" for kind in kinds]
    assert ["standard input" in text for text in asked] == [kind == "stdin" for kind in kinds]


def test_deepcoder_programs_have_tests(tmp_path: Path) -> None:
    data = compose([RECIPES / "data" / "deepcoder.yaml"])["data"]
    train = loaded(data["train"], own_hub(tmp_path, "data/deepcoder")).examples()
    assert {task_of(example, "auto").kind for example in train} == {"stdin", "call"}
    assert {example.answer for example in train} == {""}


REAL = {
    "benchmark/math500": ("math500", (None, "test"), lambda r: {"problem": r["prompt"], "unique_id": r["id"]}),
    "benchmark/aime24": ("aime24", (None, "train"), lambda r: {"problem": r["prompt"], "id": int(r["id"][7:])}),
    "benchmark/olympiadbench": (
        "olympiadbench",
        ("OE_TO_maths_en_COMP", "train"),
        lambda r: {"question": r["prompt"], "id": int(r["id"].split("-")[1]), "final_answer": r["answers"]},
    ),
    "benchmark/gsm8k": (
        "gsm8k_test",
        ("main", "test"),
        lambda r: {"question": r["prompt"], "answer": f"so {r['answer']}\n#### {r['answer']}"},
    ),
    "benchmark/humaneval": (
        "humaneval",
        (None, "test"),
        lambda r: {"task_id": r["id"], "canonical_solution": r["answer"]},
    ),
    "benchmark/ifeval": ("ifeval", (None, "train"), lambda r: {"key": int(r["id"].split("-")[1]), "answer": None}),
}


@pytest.mark.skipif(not SHARED.is_dir(), reason="the data sets are not on this machine")
@pytest.mark.parametrize("name", REAL)
def test_a_benchmarks_own_rows_load_whole(name: str, tmp_path: Path) -> None:
    file, table, columns = REAL[name]
    rows = [json.loads(line) for line in (SHARED / f"{file}.jsonl").read_text(encoding="utf-8").splitlines()]
    examples, asked = benchmark(name, hub(tmp_path, {table: [row | columns(row) for row in rows]}))
    assert [example.question for example in examples] == [row["prompt"] for row in rows]
    assert all(row["prompt"] in text for row, text in zip(rows, asked, strict=True))
    if name != "benchmark/ifeval":
        assert [example.answer for example in examples] == [row["answer"] for row in rows]
