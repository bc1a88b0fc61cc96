"""`gapo-lit validate` and `gapo-lit test` as a user starts them: results, a kill in the middle, several ranks."""

from __future__ import annotations

import csv
import json
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from gapo_lit.cli import main
from tests.processes import QUICKSTART, Process, launched, small_model

pytestmark = pytest.mark.timeout(600)  # for a machine that has other things to do

RECIPE = """\
extends: [{quickstart}]
model: {{model: {model}}}
data:
  engine: {{class_path: TransformersEngine}}
  val: {{init_args: {{size: 6, levels: [2]}}}}
  val_samples: 4
  val_prompts_per_batch: 2
  val_sampling: {{max_tokens: 24}}
  benchmarks:
    sums:
      prompts: {{class_path: ArithmeticTask, init_args: {{split: validation, size: 12, levels: [2], suffix: ""}}}}
    greedy:
      prompts: {{class_path: ArithmeticTask, init_args: {{split: train, size: 3, levels: [1]}}}}
      reward: {{class_path: ExactMatch}}
      sampling: {{temperature: 0.0, max_tokens: 4}}
      samples: 1
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recipe")
    path = folder / "exam.yaml"
    path.write_text(RECIPE.format(quickstart=QUICKSTART, model=small_model(folder / "model")))
    return path


def evaluate(command: str, folder: Path, recipe: Path, *flags: str | Path) -> Process:
    return Process(folder, ["-m", "gapo_lit.cli", command, "--config", recipe, *flags])


def results(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "results.json").read_text())["benchmarks"]
    return found


def problems(folder: Path) -> list[dict[str, str]]:
    with (folder / "problems.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def samples(folder: Path, name: str) -> list[tuple[int, int, str, str]]:
    rows = parquet.read_table(folder / "samples" / name).to_pylist()
    return sorted((row["position"], row["sample"], row["completion"], row["verdict"]) for row in rows)


@pytest.fixture(scope="module")
def tested(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished test."""
    folder = tmp_path_factory.mktemp("tested")
    assert main(["test", "--config", str(recipe), "--out", str(folder)]) == 0
    return folder


def test_results_follow_from_the_samples_that_were_kept(tested: Path) -> None:
    folder = tested
    found = results(folder)
    assert list(found) == ["sums", "greedy"]
    kept = samples(folder, "sums")
    assert [(position, number) for position, number, *_ in kept] == [(p, s) for p in range(12) for s in range(4)]
    right = sum(verdict == "correct" for *_, verdict in kept)
    assert 0 < right < len(kept)
    assert found["sums"]["pass_at"]["pass@1"]["estimate"] == pytest.approx(right / len(kept))
    assert list(found["sums"]["pass_at"]) == ["pass@1", "pass@2", "pass@3", "pass@4"]
    assert list(found["greedy"]["pass_at"]) == ["pass@1"]
    assert sum(int(row["correct"]) for row in problems(folder) if row["benchmark"] == "sums") == right


def test_a_benchmark_that_chose_the_checkpoint_is_labelled(tested: Path) -> None:
    """Validation asks 6 of the questions that the benchmark draws from the same few."""
    folder = tested
    shared = results(folder)["sums"]["shares"]["validation"]
    assert shared >= 1
    assert results(folder)["sums"]["label"] == "sums (also validation)"
    assert results(folder)["greedy"]["shares"] == {}


def test_an_evaluation_that_was_stopped_goes_on_and_ends_the_same(tested: Path, recipe: Path, tmp_path: Path) -> None:
    """First by kill -9, which may leave half a file, then by Ctrl-C."""
    out = tmp_path / "out"

    def kept() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in out.rglob("[!.]*.parquet")}

    with evaluate("test", tmp_path, recipe, "--out", out) as run:
        run.wait_for(kept, 180)
        run.kill()
    (out / "samples" / "sums" / ".partial-0.parquet").write_bytes(b"")
    first = kept()
    assert not (out / "results.json").exists()
    with evaluate("test", tmp_path, recipe, "--out", out) as run:
        run.wait_for(lambda: len(kept()) > len(first), 180)
        run.signal(signal.SIGINT)
        assert run.finish(60) != 0
    assert f"--out {out} goes on from them" in run.output
    second = kept()
    assert main(["test", "--config", str(recipe), "--out", str(out)]) == 0
    assert kept().items() >= second.items() >= first.items(), "what was kept was asked again"
    assert results(out) == results(tested)
    assert samples(out, "sums") == samples(tested, "sums")


def test_other_settings_in_the_same_folder_are_refused(
    tested: Path, recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["test", "--config", str(recipe), "--out", str(tested), "--data.val_samples", "2"]) == 2
    said = capsys.readouterr()
    assert "holds samples of another evaluation (samples 4 there, 2 now)" in said.err
    assert "goes on from them" not in said.out


@pytest.mark.slow
def test_two_ranks_find_what_one_does(tested: Path, recipe: Path, tmp_path: Path) -> None:
    with ExitStack() as stack:
        ranks = [stack.enter_context(r) for r in launched(tmp_path, ["-m", "gapo_lit.cli", "test", "--config", recipe])]
        for rank in ranks:
            rank.succeed(240)
    out = tmp_path / "runs" / "exam-test" / "version_0"
    assert results(out) == results(tested)
    assert samples(out, "sums") == samples(tested, "sums")


def test_validation_reports_by_the_solve_rates_of_an_earlier_one(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert main(["validate", "--config", str(recipe), "--out", str(first)]) == 0
    assert "initial solve rate" not in capsys.readouterr().out
    assert main(["validate", "--config", str(recipe), "--out", str(second), "--initial", str(first)]) == 0
    assert "pass@1 by initial solve rate" in capsys.readouterr().out
    buckets = results(second)["validation"]["by_difficulty"]
    assert sum(bucket["problems"] for bucket in buckets.values()) == 6
    for name, bucket in buckets.items():
        assert bucket["estimate"] == {"never": 0.0, "always": 1.0}.get(name, bucket["estimate"])
    assert results(first)["validation"]["by_difficulty"] == {}


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--data.benchmarks", "null"], "data.benchmarks is empty"),
        (["--initial", "nowhere"], "--initial: nowhere holds no problems.csv"),
        (["--data.benchmarks.sums.sampels", "3"], "sampels"),
        (["--data.benchmarks.sums.samples", "0"], "data.benchmarks.sums.samples=0 evaluates nothing"),
        (["--data.benchmarks.greedy.samples", "4"], "data.benchmarks.greedy.samples=4 greedy completions"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(
    flags: list[str], said: str, recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["test", "--config", str(recipe), *flags]) == 2
    assert said in capsys.readouterr().err


def test_a_dry_run_says_what_would_be_sampled(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["test", "--config", str(recipe), "--dry-run"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "at most 1,152 sampled tokens" in said
    assert "greedy" in said
