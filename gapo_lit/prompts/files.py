"""Examples from a local JSON-lines or Parquet file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gapo_lit.prompts.base import Split
from gapo_lit.prompts.table import Mapped, Row, TablePrompts
from gapo_lit.registry import near_misses, register


@register(source="a local file")
class JsonlPrompts(TablePrompts):
    r"""The rows of a JSON-lines (UTF-8) or, by its suffix, Parquet file. Blank lines are skipped.

    question, answer, id: columns, or paths into one: `final_answer[0]`, `reward_model.ground_truth`. answer None: the
    rows have no gold answer, and what grades them lies in other columns. id None numbers the rows. Columns not named
    here stay with the example, whatever they hold. answer_pattern: a regular expression with one group; what the group
    holds where it matches last is the answer (`####\s*(.+)` takes GSM8K's from its worked solution).
    where: rows wanted, by column: a value, a list of values, or a range such as {from: 2024-08-01, before: 2025-02-01}.
    drop: ids of rows to leave out. holdout: only the rows of one of two sides, train or validation, told by a hash of
    the question's words, so that a question stands on one side however often it comes and however it is spaced; about
    validation_fraction of them are validation's. limit: only the first so many rows left, or with shuffle_seed as many
    drawn at random, the same ones for the same seed. `counts` says how many were left out, and why.
    Raises FileNotFoundError; ValueError, naming file and row, for what is no JSON object, a missing column, a question
    or answer that is no text or number, an empty question, an answer without the pattern, an id used twice or dropped
    without being there, and where no row is left.
    """

    def __init__(
        self,
        path: str,
        question: str = "prompt",
        answer: str | None = "answer",
        id: str | None = "id",
        answer_pattern: str = "",
        where: dict[str, Any] | None = None,
        limit: int | None = None,
        shuffle_seed: int | None = None,
        drop: Sequence[str] = (),
        holdout: Split | None = None,
        validation_fraction: float = 0.01,
    ) -> None:
        rows = (limit, shuffle_seed, tuple(drop), holdout, validation_fraction)
        super().__init__(Mapped(question, answer, id, answer_pattern, where or {}, *rows))
        self.path = path

    def _rows(self) -> tuple[str, Iterable[Row]]:
        path = Path(self.path).expanduser()
        if not path.is_file():
            there = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
            raise FileNotFoundError(
                f"there is no file {path.absolute()}{near_misses(path.name, there) if there else ''}"
            )
        return path.name, _parquet_rows(path) if path.suffix == ".parquet" else _json_rows(path)


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
