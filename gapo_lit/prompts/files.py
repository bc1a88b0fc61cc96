"""Examples from a local JSON-lines or Parquet file, or from a data set on the hub."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from gapo_lit.prompts.base import PromptSource
from gapo_lit.registry import near_misses, register
from gapo_lit.types import Example

Row = tuple[str, Mapping[str, Any]]  # where it stands, what it holds


@register(source="a local file")
class JsonlPrompts(PromptSource):
    """The rows of a JSON-lines (UTF-8) or, by its suffix, Parquet file.

    question, answer and id name columns; id None numbers the rows instead. The other columns stay with the example.
    Blank lines are skipped. limit: only the first so many rows.
    Raises FileNotFoundError; ValueError, naming file and row, for what is no JSON object, a missing column, a question
    or answer that is no text or number, an empty question, an id used twice, and a file without rows.
    """

    def __init__(
        self,
        path: str,
        question: str = "prompt",
        answer: str = "answer",
        id: str | None = "id",
        limit: int | None = None,
    ) -> None:
        _check_limit(limit)
        self.path, self.limit = path, limit
        self.names = (question, answer, id)
        self._examples: list[Example] | None = None

    def examples(self) -> Sequence[Example]:
        """See PromptSource; read at the first call."""
        if self._examples is None:
            path = Path(self.path).expanduser()
            if not path.is_file():
                there = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
                raise FileNotFoundError(
                    f"there is no file {path.absolute()}{near_misses(path.name, there) if there else ''}"
                )
            rows = _parquet_rows(path) if path.suffix == ".parquet" else _json_rows(path)
            self._examples = _examples(rows, self.names, path.name, self.limit)
        return self._examples


@register(source="a data set on the Hugging Face hub, by the package datasets")
class HubPrompts(PromptSource):
    """The rows of one split of a hub data set, or of a folder that `datasets.load_dataset` can read.

    config, split and revision as there; the other settings and the errors as JsonlPrompts.
    """

    def __init__(
        self,
        name: str,
        config: str | None = None,
        split: str = "train",
        question: str = "question",
        answer: str = "answer",
        id: str | None = None,
        revision: str | None = None,
        limit: int | None = None,
    ) -> None:
        _check_limit(limit)
        self.name, self.config, self.split, self.revision, self.limit = name, config, split, revision, limit
        self.names = (question, answer, id)
        self._examples: list[Example] | None = None

    def examples(self) -> Sequence[Example]:
        """See PromptSource; downloaded, or read from the cache, at the first call."""
        if self._examples is None:
            try:
                from datasets import load_dataset
            except ImportError as error:
                raise ImportError("hub data sets need the package datasets: pip install datasets") from error
            table = load_dataset(self.name, self.config, split=self.split, revision=self.revision)
            rows = ((f"{self.name}[{self.split}], row {i}", row) for i, row in enumerate(table))
            self._examples = _examples(rows, self.names, self.name, self.limit)
        return self._examples


def _examples(rows: Iterable[Row], names: tuple[str, str, str | None], source: str, limit: int | None) -> list[Example]:
    question, answer, id = names
    examples: dict[str, Example] = {}
    for number, (place, row) in enumerate(islice(rows, limit)):
        for name in names:
            if name is not None and name not in row:
                raise ValueError(f"{place} has no column {name!r}{near_misses(name, row)}; columns: {', '.join(row)}")
        key = f"{source}:{number}" if id is None else _text(row[id], id, place)
        if key in examples:
            raise ValueError(f"{place} has the id {key!r} of an earlier row; ids must be unique, or give id: null")
        words = _text(row[question], question, place)
        if not words.strip():
            raise ValueError(f"{place} has an empty question in column {question!r}; drop the row or fill it in")
        rest = {k: v for k, v in row.items() if k not in names}
        examples[key] = Example(key, words, _text(row[answer], answer, place), rest)
    if not examples:
        raise ValueError(f"{source} holds no rows; give a data set with at least one")
    return list(examples.values())


def _text(value: Any, column: str, place: str) -> str:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value)
    raise ValueError(f"{place} holds {type(value).__name__} in column {column!r}; it must be text or a number")


def _json_rows(path: Path) -> Iterator[Row]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            if not text.strip():
                continue
            place = f"{path.name}, line {number}"
            try:
                row = json.loads(text)
            except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError too
                raise ValueError(f"{place} is no JSON: {error}; each line must be one JSON object in UTF-8") from error
            if not isinstance(row, dict):
                raise ValueError(f"{place} is a JSON {type(row).__name__}; each line must be one JSON object")
            yield place, row


def _parquet_rows(path: Path) -> Iterator[Row]:
    try:
        import pyarrow  # type: ignore[import-untyped]
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError("Parquet files need the package pyarrow: pip install pyarrow") from error
    try:
        table = parquet.read_table(path)
    except pyarrow.ArrowInvalid as error:
        raise ValueError(f"{path.name} is no Parquet file: {error}") from error
    for number, row in enumerate(table.to_pylist()):
        yield f"{path.name}, row {number}", row


def _check_limit(limit: int | None) -> None:
    if limit is not None and limit < 1:
        raise ValueError(f"limit={limit} keeps no row; give at least 1, or null for all")
