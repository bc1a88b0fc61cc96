"""From the rows of a table to examples: which rows, in what order, and what of them is question and answer."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gapo_lit.prompts.base import PromptSource, Split, check_side, normalised, side
from gapo_lit.prompts.columns import check_where, compiled, last_group, matches, text_at
from gapo_lit.types import Example

Row = tuple[str, Mapping[str, Any]]  # where it stands, what it holds


@dataclass(frozen=True)
class Mapped:
    """The settings that every table has; see JsonlPrompts for what they mean and which are refused."""

    question: str
    answer: str | None
    id: str | None
    answer_pattern: str = ""
    where: Mapping[str, Any] = field(default_factory=dict)
    limit: int | None = None
    shuffle_seed: int | None = None
    drop: Sequence[str] = ()
    holdout: Split | None = None
    validation_fraction: float = 0.01

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"limit={self.limit} keeps no row; give at least 1, or null for all")
        if self.answer is None and self.answer_pattern:
            raise ValueError(
                f"answer_pattern={self.answer_pattern!r} has no column to look in; give answer, or drop it"
            )
        check_side("holdout", self.holdout or "train", self.validation_fraction)
        check_where(self.where)
        compiled(self.answer_pattern)

    def example(self, key: str, row: Mapping[str, Any], place: str) -> Example:
        """A row as an example; columns that were not used whole stay with it."""
        words = text_at(row, self.question, place)
        gold = "" if self.answer is None else text_at(row, self.answer, place)
        if self.answer is not None:
            gold = last_group(compiled(self.answer_pattern), gold, place)
        if not words.strip():
            raise ValueError(f"{place} has an empty question in column {self.question!r}; fill it in")
        used = (self.question, self.answer, self.id)
        return Example(key, words, gold, {k: v for k, v in row.items() if k not in used})


class TablePrompts(PromptSource):
    """What the sources that read tables do with their rows. in_order: whether shuffle_seed is for `_read` to follow."""

    in_order = True

    def __init__(self, mapped: Mapped) -> None:
        self.mapped = mapped
        self._examples: list[Example] | None = None
        self._read_rows = 0
        self._left_out: dict[str, int] = {}

    def examples(self) -> Sequence[Example]:
        """See PromptSource; downloaded, or read, at the first call."""
        if self._examples is None:
            self._examples = self._read(*self._rows())
        return self._examples

    @property
    def counts(self) -> str:
        """See PromptSource; known once the rows are read."""
        if not self._left_out:
            return ""
        reasons = ", ".join(f"{count} left out by {reason}" for reason, count in self._left_out.items())
        return f"{self._read_rows} rows read, {reasons}"

    @abstractmethod
    def _rows(self) -> tuple[str, Iterable[Row]]:
        """What the source is called, and its rows."""

    def _read(self, source: str, rows: Iterable[Row]) -> list[Example]:
        mapped, drop = self.mapped, set(self.mapped.drop)
        shuffles = mapped.shuffle_seed is not None and self.in_order
        limit = None if shuffles else mapped.limit
        examples: list[Example] = []
        seen: set[str] = set()
        self._read_rows, self._left_out = 0, {}
        for number, (place, row) in enumerate(rows):
            self._read_rows += 1
            key = f"{source}:{number}" if mapped.id is None else text_at(row, mapped.id, place)
            if key in seen:
                raise ValueError(f"{place} has the id {key!r} of an earlier row; ids must be unique, or give id: null")
            seen.add(key)
            example = None if key in drop else self._wanted(key, row, place)
            if example is not None:
                examples.append(example)
            if len(examples) == limit:
                break
        else:
            if strangers := sorted(drop - seen):
                raise ValueError(f"drop names {', '.join(strangers)}, but {source} has no such id; take them out")
        if not examples:
            left = f" ({self.counts})" if self.counts else ""
            raise ValueError(f"{source} holds no rows to ask{left}; give a data set with at least one, or drop fewer")
        if shuffles:
            random.Random(mapped.shuffle_seed).shuffle(examples)
        return examples[: mapped.limit]

    def _wanted(self, key: str, row: Mapping[str, Any], place: str) -> Example | None:
        """The row as an example; None, and counted, where it is left out."""
        mapped = self.mapped
        if not matches(row, mapped.where, place):
            self._leave_out("where")
            return None
        try:
            example = mapped.example(key, row, place)
        except ValueError as error:
            raise ValueError(f"{error} (or leave the row out with drop: [{key!r}])") from error
        if mapped.holdout not in (None, side(normalised(example.question), mapped.validation_fraction)):
            self._leave_out("holdout")
            return None
        return example

    def _leave_out(self, reason: str) -> None:
        self._left_out[reason] = self._left_out.get(reason, 0) + 1
