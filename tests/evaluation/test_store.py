"""Samples that are graded once are never asked again, and never taken for those of another evaluation."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from gapo_lit.evaluation.benchmark import Task
from gapo_lit.evaluation.store import SampleStore, StoreError, batch_of, weights_on_disk
from gapo_lit.prompts import EncodedPrompts
from gapo_lit.types import Completion, EvaluationBatch, Example, Prompt, Rollout, Sampling, Verdict
from tests.fakes import ScriptedReward


def task(count: int = 3, samples: int = 2, **changes: Any) -> Task:
    prompts = tuple(Prompt(Example(f"p{i}", f"question {i}", "1"), (i + 1,), f"asked {i}") for i in range(count))
    made = Task("bench", EncodedPrompts(prompts, ()), ScriptedReward(), Sampling(max_tokens=4), samples, "benchmark")
    return replace(made, **changes)


def graded(of: Task, position: int, group: int = 0, text: str = "said") -> list[Rollout]:
    verdicts = [Verdict.of(True, answer="1"), Verdict.none("lost")]
    completion = Completion((3, 4), (-0.25, -1.5), text, "length")
    prompt = of.prompts.prompts[position]
    return [Rollout(prompt, completion, verdict, group, 7) for verdict in verdicts[: of.samples]]


def opened(folder: Path, of: Task, **policy: Any) -> SampleStore:
    store = SampleStore(folder, policy or {"model": "m"})
    store.open(of)
    return store


def test_what_is_written_is_read_back_as_it_was(tmp_path: Path) -> None:
    bench = task()
    verdict = Verdict("correct", 0.75, "because", {"format": 0.5}, "42")
    rollout = replace(graded(bench, 2)[0], verdict=verdict)
    batch = EvaluationBatch("bench", (2, 0), (rollout, rollout, *graded(bench, 0, group=1)))
    opened(tmp_path, bench).write(batch)
    done = opened(tmp_path, bench).done(bench)
    assert sorted(done) == [0, 2]
    again = batch_of(bench, {p: done[p] for p in (2, 0)})
    assert again.positions == (2, 0)
    assert again.rollouts == batch.rollouts


def test_a_problem_with_too_few_samples_is_asked_again(tmp_path: Path) -> None:
    bench = task()
    opened(tmp_path, bench).write(EvaluationBatch("bench", (0,), tuple(graded(bench, 0)[:1])))
    assert not opened(tmp_path, bench).done(bench)


@pytest.mark.parametrize(
    ("other", "policy", "named"),
    [
        (task(samples=1), {"model": "m"}, "samples 2 there, 1 now"),
        (task(count=4), {"model": "m"}, "problems 3 there, 4 now; prompts "),
        (task(sampling=Sampling(0.5, 4)), {"model": "m"}, "sampling "),
        (task(), {"model": "other"}, 'model "m" there, "other" now'),
        (task(), {"model": "m", "checkpoint": "c"}, 'checkpoint null there, "c" now'),
    ],
)
def test_samples_of_another_evaluation_are_refused(
    other: Task, policy: dict[str, str], named: str, tmp_path: Path
) -> None:
    opened(tmp_path, task())
    with pytest.raises(ValueError, match="holds samples of another evaluation") as refusal:
        opened(tmp_path, other, **policy)
    assert named in str(refusal.value)
    assert "give another --out, or remove it" in str(refusal.value)


def test_a_damaged_file_is_named_with_what_to_do(tmp_path: Path) -> None:
    bench = task()
    opened(tmp_path, bench).write(EvaluationBatch("bench", (0,), tuple(graded(bench, 0))))
    (file,) = (tmp_path / "bench").glob("*.parquet")
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"cannot be read .*; remove it, and its problems will be answered again"):
        opened(tmp_path, bench)
    file.unlink()
    assert not opened(tmp_path, bench).done(bench)


def test_damaged_settings_are_named_with_what_to_do(tmp_path: Path) -> None:
    opened(tmp_path, task())
    (tmp_path / "bench" / "_settings.json").write_text("{")
    with pytest.raises(StoreError, match=r"_settings.json cannot be read .*; give another --out, or remove .*bench"):
        opened(tmp_path, task())


@pytest.mark.parametrize("text", ["\ud800 alone", "nul \0", "\x1b[2J", "\u202eRTL", ""])
def test_hostile_text_is_kept(text: str, tmp_path: Path) -> None:
    bench = task(samples=1)
    opened(tmp_path, bench).write(EvaluationBatch("bench", (1,), tuple(graded(bench, 1, text=text))))
    (rollout,) = opened(tmp_path, bench).done(bench)[1]
    assert rollout.completion.text == text.encode("utf-8", "backslashreplace").decode()


def test_the_samples_are_a_table_that_others_can_read(tmp_path: Path) -> None:
    bench = task()
    opened(tmp_path, bench).write(EvaluationBatch("bench", (1,), tuple(graded(bench, 1))))
    table = parquet.read_table(tmp_path / "bench").to_pylist()
    assert [(row["id"], row["sample"], row["verdict"], row["completion"]) for row in table] == [
        ("p1", 0, "correct", "said"),
        ("p1", 1, "none", "said"),
    ]
    assert json.loads((tmp_path / "bench" / "_settings.json").read_text())["samples"] == 2


def test_a_folder_that_cannot_be_written_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"could not be written \(Not a directory\).* or give another --out"):
        opened(tmp_path / "file", task())
    store = opened(tmp_path / "folder", task())

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(parquet, "write_table", lambda *_, **__: full())
    with pytest.raises(StoreError, match=r"could not be written \(No space left on device\); .*goes on"):
        store.write(EvaluationBatch("bench", (0,), tuple(graded(task(), 0))))
    assert [path.name for path in (tmp_path / "folder" / "bench").iterdir()] == ["_settings.json"]


def test_new_weights_in_the_same_place_are_other_weights(tmp_path: Path) -> None:
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"one")
    before = weights_on_disk(str(tmp_path), None)
    assert before == weights_on_disk(str(tmp_path), None)
    weights.write_bytes(b"other")
    assert before != weights_on_disk(str(tmp_path), None)
    assert weights_on_disk("a/hub-name", None) == {"model": "a/hub-name", "checkpoint": None}
