"""Every sample of an evaluation on disk as it is graded, so that one that stops goes on and nothing is asked twice.

A folder a benchmark: `_settings.json`, what its samples depend on (readers of Parquet folders pass over that name), and
one Parquet file for each batch of problems. Files appear whole and are never changed, so that ranks and a later run can
share the folder.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyarrow import parquet

from gapo_lit.evaluation.benchmark import Task
from gapo_lit.files import replacing
from gapo_lit.types import Completion, EvaluationBatch, Prompt, Rollout, Verdict

SETTINGS = "_settings.json"
SCHEMA = pa.schema(
    [
        ("benchmark", pa.string()),
        ("position", pa.int64()),
        ("id", pa.string()),
        ("sample", pa.int64()),
        ("prompt", pa.string()),
        ("completion", pa.string()),
        ("gold", pa.string()),
        ("verdict", pa.string()),
        ("score", pa.float64()),
        ("reason", pa.string()),
        ("answer", pa.string()),
        ("components", pa.string()),
        ("finish_reason", pa.string()),
        ("token_ids", pa.list_(pa.int64())),
        ("logprobs", pa.list_(pa.float64())),
        ("policy_version", pa.int64()),
    ]
)


class StoreError(ValueError):
    """A folder of samples that this evaluation cannot use."""


class SampleStore:
    """The samples of one evaluation in `folder`, of benchmarks that may be added later.

    policy: what tells the weights from others, in plain JSON values. Raises StoreError where the folder already holds
    samples of another policy, or of other prompts or settings, and where it cannot be written.
    """

    def __init__(self, folder: Path, policy: Mapping[str, Any]) -> None:
        self.folder, self.policy = folder, dict(policy)
        self._done: dict[str, dict[int, list[Rollout]]] = {}

    def open(self, task: Task, write: bool = True) -> None:
        """Read what is there of a benchmark; write: note what its samples depend on, which one rank does for all."""
        folder = self.folder / task.name
        described = {**self.policy, **describe(task)}
        settings = folder / SETTINGS
        if settings.exists():
            _check_same(_read_settings(settings), described, folder)
        elif write:
            with written(settings), replacing(settings) as path:
                path.write_text(json.dumps(described, indent=2, sort_keys=True), encoding="utf-8")
        self._done[task.name] = {}
        for path in sorted(folder.glob("[!.]*.parquet")):  # a run that was killed leaves a hidden part of one
            self._read(task, path)

    def done(self, task: Task) -> Mapping[int, list[Rollout]]:
        """Position → the samples of each problem that has all of them."""
        return self._done.get(task.name, {})

    def write(self, batch: EvaluationBatch) -> None:
        """Keep a batch of graded rollouts."""
        rows = list(_rows(batch))
        if not rows:
            return
        name = f"{min(batch.positions):06d}-{uuid.uuid4().hex[:8]}.parquet"
        place = self.folder / batch.benchmark / name
        with written(place), replacing(place) as path:
            parquet.write_table(pa.Table.from_pylist(rows, SCHEMA), path, compression="zstd")

    def _read(self, task: Task, path: Path) -> None:
        try:
            rows = parquet.read_table(path, schema=SCHEMA).to_pylist()
        except (pa.ArrowInvalid, OSError) as error:
            raise StoreError(
                f"{path} cannot be read ({error}); remove it, and its problems will be answered again"
            ) from error
        problems: dict[int, list[Rollout]] = {}
        for row in rows:
            prompt = task.prompts.prompts[row["position"]]
            problems.setdefault(row["position"], []).append(_rollout(row, prompt))
        self._done[task.name] |= {p: rollouts for p, rollouts in problems.items() if len(rollouts) == task.samples}


@contextmanager
def written(place: Path) -> Iterator[None]:
    """What is to be done where a file cannot be written; what was written before stays."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{place} could not be written ({error.strerror or error}); free or mount what is missing, and the same "
            "command goes on from what is there, or give another --out"
        ) from error


def describe(task: Task) -> dict[str, Any]:
    """What the samples of a benchmark depend on, beside the weights: prompts as token ids, sampling, seeds, grader."""
    digest = hashlib.sha256()
    for prompt in task.prompts.prompts:
        digest.update(json.dumps([prompt.id, prompt.token_ids, prompt.example.answer]).encode())
    return {
        "problems": len(task.prompts.prompts),
        "prompts": digest.hexdigest()[:16],
        "samples": task.samples,
        "sampling": asdict(task.sampling),
        "seeds": task.purpose,
        "reward": type(task.reward).__name__,
    }


def weights_on_disk(model: str, checkpoint: str | None) -> dict[str, Any]:
    """Which weights these are: their place, and of local files size and time, so that new ones in it are others."""
    found: dict[str, Any] = {"model": model, "checkpoint": checkpoint}
    for name, place in (("model_files", model), ("checkpoint_files", checkpoint)):
        path = Path(place).expanduser() if place else None
        if path is None or not path.exists():
            continue
        files = sorted(f for f in path.rglob("*") if f.is_file()) if path.is_dir() else [path]
        weights = [f for f in files if f.suffix in (".safetensors", ".bin", ".pt", ".ckpt", ".distcp")]
        found[name] = [[f.name, f.stat().st_size, f.stat().st_mtime_ns] for f in weights]
    return found


def _read_settings(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise StoreError(f"{path} cannot be read ({error}); give another --out, or remove {path.parent}") from error
    return found if isinstance(found, dict) else {}


def _check_same(there: Mapping[str, Any], wanted: Mapping[str, Any], folder: Path) -> None:
    differing = sorted(key for key in {*there, *wanted} if there.get(key) != wanted.get(key))
    if differing:
        said = "; ".join(f"{key} {_short(there.get(key))} there, {_short(wanted.get(key))} now" for key in differing)
        raise StoreError(f"{folder} holds samples of another evaluation ({said}); give another --out, or remove it")


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


def _rows(batch: EvaluationBatch) -> Iterator[dict[str, Any]]:
    count: dict[int, int] = {}
    for rollout in batch.rollouts:
        sample = count[rollout.group] = count.get(rollout.group, -1) + 1
        completion, verdict, prompt = rollout.completion, rollout.verdict, rollout.prompt
        yield {
            "benchmark": batch.benchmark,
            "position": batch.positions[rollout.group],
            "id": _text(prompt.id),
            "sample": sample,
            "prompt": _text(prompt.text),
            "completion": _text(completion.text),
            "gold": _text(prompt.example.answer),
            "verdict": verdict.kind,
            "score": verdict.score,
            "reason": _text(verdict.reason),
            "answer": None if verdict.answer is None else _text(verdict.answer),
            "components": json.dumps(dict(verdict.components)),
            "finish_reason": completion.finish_reason,
            "token_ids": completion.token_ids,
            "logprobs": completion.logprobs,
            "policy_version": rollout.policy_version,
        }


def _text(value: str) -> str:
    """As UTF-8 can hold it: a lone surrogate, which a decoder may leave in a completion, is written as an escape."""
    return value.encode("utf-8", "backslashreplace").decode("utf-8")


def _rollout(row: Mapping[str, Any], prompt: Prompt) -> Rollout:
    completion = Completion(tuple(row["token_ids"]), tuple(row["logprobs"]), row["completion"], row["finish_reason"])
    verdict = Verdict(row["verdict"], row["score"], row["reason"], json.loads(row["components"]), row["answer"])
    return Rollout(prompt, completion, verdict, 0, row["policy_version"])


def batch_of(task: Task, problems: Mapping[int, Sequence[Rollout]]) -> EvaluationBatch:
    """Problems that were read back, by position, as one batch."""
    rollouts = [
        Rollout(r.prompt, r.completion, r.verdict, group, r.policy_version)
        for group, samples in enumerate(problems.values())
        for r in samples
    ]
    return EvaluationBatch(task.name, tuple(problems), tuple(rollouts))
