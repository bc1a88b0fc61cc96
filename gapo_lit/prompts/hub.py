"""Examples from a data set on the hub, whole or streamed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gapo_lit.prompts.base import Split
from gapo_lit.prompts.table import Mapped, Row, TablePrompts
from gapo_lit.registry import register


@register(source="a data set on the Hugging Face hub, by the package datasets")
class HubPrompts(TablePrompts):
    """The rows of one split of a hub data set, or of a folder that `datasets.load_dataset` can read.

    name, config, split, revision, data_files: as there; several configs follow one another. Data sets that come as a
    Python script are not loaded any more: give their files, `name: json` and `data_files: [hf://datasets/…]`.
    streaming: rows are read as they are wanted, without downloading the data set; limit then says how many are. With
    shuffle_seed they are drawn from a buffer of shuffle_buffer rows that moves on (and from shards in another order),
    the same ones for the same seed, and id None numbers them as they come; a limit takes them from near the beginning.
    The rows taken are kept: training walks them in an order that its own seed gives and its checkpoints go on in.
    The other settings and the errors are as JsonlPrompts.
    """

    def __init__(
        self,
        name: str,
        config: str | list[str] | None = None,
        split: str = "train",
        question: str = "question",
        answer: str | None = "answer",
        id: str | None = None,
        answer_pattern: str = "",
        where: dict[str, Any] | None = None,
        limit: int | None = None,
        shuffle_seed: int | None = None,
        drop: Sequence[str] = (),
        holdout: Split | None = None,
        validation_fraction: float = 0.01,
        revision: str | None = None,
        data_files: str | list[str] | None = None,
        streaming: bool = False,
        shuffle_buffer: int = 10_000,
    ) -> None:
        rows = (limit, shuffle_seed, tuple(drop), holdout, validation_fraction)
        super().__init__(Mapped(question, answer, id, answer_pattern, where or {}, *rows))
        if streaming and limit is None:
            raise ValueError("streaming: true has no end to wait for; give limit, the number of rows to take")
        if shuffle_buffer < 1:
            raise ValueError(f"shuffle_buffer={shuffle_buffer} holds no row; give at least 1")
        self.name, self.split, self.revision, self.data_files = name, split, revision, data_files
        self.configs: list[str | None] = list(config) if isinstance(config, list) else [config]
        self.streaming, self.shuffle_buffer = streaming, shuffle_buffer
        self.in_order = not streaming

    def _rows(self) -> tuple[str, Iterable[Row]]:
        tables = {config: self._table(config) for config in self.configs}
        return self.name, self._walk(tables)

    def _walk(self, tables: dict[str | None, Iterable[Any]]) -> Iterator[Row]:
        for config, table in tables.items():
            name = self.name if config is None else f"{self.name}/{config}"
            for number, row in enumerate(table):
                yield f"{name}[{self.split}], row {number}", row

    def _table(self, config: str | None) -> Iterable[Any]:
        try:
            from datasets import load_dataset
            from datasets.exceptions import DatasetsError
        except ImportError as error:
            raise ImportError("hub data sets need the package datasets: pip install datasets") from error
        where = {"split": self.split, "revision": self.revision, "data_files": self.data_files}
        try:
            table = load_dataset(self.name, config, **where, streaming=self.streaming)
        except (DatasetsError, RuntimeError) as error:
            if isinstance(error, OSError):  # not there, or not to be reached: it says so itself
                raise
            raise ValueError(
                f"{self.name} could not be loaded: {error}; where the data set has a loading script, give its files: "
                f"name: json, data_files: [hf://datasets/{self.name}/…]"
            ) from error
        if self.streaming and self.mapped.shuffle_seed is not None:
            return table.shuffle(seed=self.mapped.shuffle_seed, buffer_size=self.shuffle_buffer)  # type: ignore[no-any-return]
        return table  # type: ignore[no-any-return]
