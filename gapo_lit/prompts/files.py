"""Examples from a local JSON-lines or Parquet file, or from a data set on the hub."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gapo_lit.prompts.base import PromptSource, Split, check_side, normalised, side
from gapo_lit.registry import near_misses, register
from gapo_lit.types import Example

Row = tuple[str, Mapping[str, Any]]  # where it stands, what it holds


class TablePrompts(PromptSource):
    """What the two sources below do with their rows."""

    def __init__(
        self,
        columns: tuple[str, str, str | None],
        limit: int | None,
        drop: Sequence[str],
        holdout: Split | None,
        validation_fraction: float,
    ) -> None:
        if limit is not None and limit < 1:
            raise ValueError(f"limit={limit} keeps no row; give at least 1, or null for all")
        check_side("holdout", holdout or "train", validation_fraction)
        self.columns, self.limit, self.drop = columns, limit, set(drop)
        self.holdout, self.validation_fraction = holdout, validation_fraction
        self._examples: list[Example] | None = None

    def examples(self) -> Sequence[Example]:
        """See PromptSource; downloaded, or read, at the first call."""
        if self._examples is None:
            self._examples = self._read(*self._rows())
        return self._examples

    @abstractmethod
    def _rows(self) -> tuple[str, Iterable[Row]]:
        """What the source is called, and its rows."""

    def _read(self, source: str, rows: Iterable[Row]) -> list[Example]:
        id = self.columns[2]
        examples: list[Example] = []
        seen: set[str] = set()
        for number, (place, row) in enumerate(rows):
            key = f"{source}:{number}" if id is None else _text(row, id, place)
            if key in seen:
                raise ValueError(f"{place} has the id {key!r} of an earlier row; ids must be unique, or give id: null")
            seen.add(key)
            if key in self.drop:
                continue
            try:
                example = self._example(key, row, place)
            except ValueError as error:
                raise ValueError(f"{error} (or leave the row out with drop: [{key!r}])") from error
            if self.holdout in (None, side(normalised(example.question), self.validation_fraction)):
                examples.append(example)
            if len(examples) == self.limit:
                break
        else:
            if strangers := sorted(self.drop - seen):
                raise ValueError(f"drop names {', '.join(strangers)}, but {source} has no such id; take them out")
        if not examples:
            raise ValueError(f"{source} holds no rows to ask; give a data set with at least one, or drop fewer")
        return examples

    def _example(self, key: str, row: Mapping[str, Any], place: str) -> Example:
        question, answer, _ = self.columns
        words, gold = _text(row, question, place), _text(row, answer, place)
        if not words.strip():
            raise ValueError(f"{place} has an empty question in column {question!r}; fill it in")
        return Example(key, words, gold, {k: v for k, v in row.items() if k not in self.columns})


@register(source="a local file")
class JsonlPrompts(TablePrompts):
    """The rows of a JSON-lines (UTF-8) or, by its suffix, Parquet file.

    question, answer and id name columns; id None numbers the rows instead. The other columns stay with the example.
    Blank lines are skipped. drop: ids of rows to leave out. holdout: only the rows of one of two sides, train or
    validation, told by a hash of the question without case and spacing, so that a question stands on one side however
    often it comes; about validation_fraction of them are validation's. limit: only the first so many rows left.
    Raises FileNotFoundError; ValueError, naming file and row, for what is no JSON object, a missing column, a question
    or answer that is no text or number, an empty question, an id used twice or dropped without being there, and where
    no row is left.
    """

    def __init__(
        self,
        path: str,
        question: str = "prompt",
        answer: str = "answer",
        id: str | None = "id",
        limit: int | None = None,
        drop: Sequence[str] = (),
        holdout: Split | None = None,
        validation_fraction: float = 0.01,
    ) -> None:
        super().__init__((question, answer, id), limit, drop, holdout, validation_fraction)
        self.path = path

    def _rows(self) -> tuple[str, Iterable[Row]]:
        path = Path(self.path).expanduser()
        if not path.is_file():
            there = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
            raise FileNotFoundError(
                f"there is no file {path.absolute()}{near_misses(path.name, there) if there else ''}"
            )
        return path.name, _parquet_rows(path) if path.suffix == ".parquet" else _json_rows(path)


@register(source="a data set on the Hugging Face hub, by the package datasets")
class HubPrompts(TablePrompts):
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
        drop: Sequence[str] = (),
        holdout: Split | None = None,
        validation_fraction: float = 0.01,
    ) -> None:
        super().__init__((question, answer, id), limit, drop, holdout, validation_fraction)
        self.name, self.config, self.split, self.revision = name, config, split, revision

    def _rows(self) -> tuple[str, Iterable[Row]]:
        try:
            from datasets import load_dataset
        except ImportError as error:
            raise ImportError("hub data sets need the package datasets: pip install datasets") from error
        table = load_dataset(self.name, self.config, split=self.split, revision=self.revision)
        return self.name, ((f"{self.name}[{self.split}], row {i}", row) for i, row in enumerate(table))


def _text(row: Mapping[str, Any], column: str, place: str) -> str:
    if column not in row:
        raise ValueError(f"{place} has no column {column!r}{near_misses(column, row)}; columns: {', '.join(row)}")
    value = row[column]
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
