"""A table of completions with what became of them, to read what the numbers mean."""

from __future__ import annotations

import html
import json
import random
from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from lightning import Callback, LightningModule, Trainer
from lightning_utilities.core.rank_zero import rank_zero_warn

from gapo_lit.callbacks.files import run_folder
from gapo_lit.callbacks.text import printable
from gapo_lit.files import replacing
from gapo_lit.types import Rollout, UpdateBatch

COLUMNS = (
    "step",
    "split",
    "id",
    "prompt",
    "completion",
    "gold",
    "verdict",
    "reward",
    "reason",
    "group",
    "tokens",
    "finish",
)
PAGE_ROWS = 200

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Sample completions</title><style>
body {{ font: 14px/1.4 system-ui, sans-serif; margin: 1.5em; color: #222 }}
table {{ border-collapse: collapse; width: 100% }}
th {{ text-align: left; position: sticky; top: 0; background: #fff; border-bottom: 2px solid #888 }}
th, td {{ padding: .4em .6em; vertical-align: top }}
td {{ border-bottom: 1px solid #ddd }}
pre {{ margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; max-height: 18em; overflow-y: auto }}
.correct {{ background: #eaf6ec }} .none {{ background: #fff6df }}
</style></head><body><h1>Sample completions</h1>
<p>The latest {shown}, newest first; all of them are in samples.jsonl. group: correct of all with a verdict.</p>
<table><thead><tr>{head}</tr></thead><tbody>
{body}
</tbody></table></body></html>
"""


class SampleTable(Callback):
    """Keeps sample completions: every row in samples.jsonl, the latest in samples.html, for a browser.

    per_update, per_validation: how many of an update's and of a validation's completions are kept, spread evenly over
    its prompts and always the same of a validation, so that they compare. every_n_updates: which updates.
    max_characters: longer prompts and completions are cut, and say so. Rows come from rank 0's share. Text is kept as
    data: control characters are escaped in the JSON lines and HTML in the page, so neither a terminal nor a browser
    acts on it.
    """

    def __init__(
        self, per_update: int = 4, per_validation: int = 16, every_n_updates: int = 1, max_characters: int = 4000
    ) -> None:
        if min(per_update, per_validation) < 0:
            raise ValueError(f"per_update={per_update}, per_validation={per_validation}: give 0 (none) or more")
        if every_n_updates < 1 or max_characters < 1:
            raise ValueError(f"every_n_updates={every_n_updates}, max_characters={max_characters}: give at least 1")
        self.per_update, self.per_validation = per_update, per_validation
        self.every_n_updates, self.max_characters = every_n_updates, max_characters
        self._folder: Path | None = None
        self._left = 0
        self._latest: list[dict[str, Any]] = []

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Learn the run folder."""
        folder = run_folder(trainer)
        self._folder = folder if trainer.is_global_zero else None

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Keep some of the update's rollouts."""
        if isinstance(batch, UpdateBatch) and trainer.global_step % self.every_n_updates == 0:
            self._keep(batch.samples, self.per_update, trainer.global_step, "train")

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """A new validation may keep its number again."""
        self._left = self.per_validation

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Keep some of the validation's rollouts, as many of each batch."""
        batches = trainer.num_sanity_val_batches if trainer.sanity_checking else trainer.num_val_batches
        share = -(-self.per_validation // max(int(sum(batches)), 1))
        number = min(share, self._left, len(batch.rollouts))
        self._left -= number
        self._keep(batch.rollouts, number, trainer.global_step, "validation")

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Bring the page up to date."""
        self._write_page()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Bring the page up to date."""
        self._write_page()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Bring the page up to date, unless that fails too: the run's own exception is the one to show."""
        try:
            self._write_page()
        except OSError as error:
            rank_zero_warn(f"samples.html is not up to date: {error!r}")

    def _keep(self, rollouts: Sequence[Rollout], number: int, step: int, split: str) -> None:
        if self._folder is None or not rollouts or number < 1:
            return
        rows = sample_rows(rollouts, number, step, split, self.max_characters)
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "samples.jsonl").open("a", encoding="utf-8") as file:
            file.writelines(json_line(row) + "\n" for row in rows)
        self._latest = (self._latest + rows)[-PAGE_ROWS:]

    def _write_page(self) -> None:
        if self._folder is None or not self._latest:
            return
        with replacing(self._folder / "samples.html") as path:
            path.write_text(page(self._latest[::-1]), encoding="utf-8", errors="backslashreplace")


def sample_rows(
    rollouts: Sequence[Rollout], number: int, step: int, split: str, max_characters: int
) -> list[dict[str, Any]]:
    """`number` of the rollouts (fewer if there are fewer) as rows of COLUMNS; see `spread`."""
    correct = Counter(r.group for r in rollouts if r.verdict.kind == "correct")
    graded = Counter(r.group for r in rollouts if r.verdict.kind != "none")
    rows = []
    for r in spread(rollouts, number, f"{split} {step}"):
        example, completion, verdict = r.prompt.example, r.completion, r.verdict
        texts = [cut(text, max_characters) for text in (r.prompt.text, completion.text, example.answer)]
        group = f"{correct[r.group]}/{graded[r.group]}"
        values = (verdict.kind, verdict.score, cut(verdict.reason, max_characters), group)
        ends = (len(completion.token_ids), completion.finish_reason)
        rows.append(dict(zip(COLUMNS, (step, split, r.prompt.id, *texts, *values, *ends), strict=True)))
    return rows


def spread(rollouts: Sequence[Rollout], number: int, seed: str) -> list[Rollout]:
    """`number` rollouts of as many groups as can be, in their order; which groups is drawn anew for each seed.

    Not every so-manieth group: where kinds of questions take turns, that would show the same kinds each time.
    """
    groups: dict[int, list[int]] = {}
    for i, rollout in enumerate(rollouts):
        groups.setdefault(rollout.group, []).append(i)
    drawn = random.Random(seed).sample(list(groups.values()), len(groups))
    turns = [i for turn in zip_longest(*drawn) for i in turn if i is not None]
    return [rollouts[i] for i in sorted(turns[:number])]


def cut(text: str, limit: int) -> str:
    """The first `limit` characters, and how many were left out."""
    return text if len(text) <= limit else f"{text[:limit]}… [{len(text) - limit} characters more]"


def json_line(row: dict[str, Any]) -> str:
    """One line of JSON with everything that does not print (ESC, C1 controls, bidi marks, surrogates) escaped."""
    return printable(json.dumps(row, ensure_ascii=False))


def page(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as one HTML page without scripts or links."""
    head = "".join(f"<th>{name}</th>" for name in COLUMNS)
    body = "\n".join(
        f'<tr class="{row["verdict"]}">'
        + "".join(f"<td><pre>{_cell(row[name])}</pre></td>" for name in COLUMNS)
        + "</tr>"
        for row in rows
    )
    return PAGE.format(shown=len(rows), head=head, body=body)


def _cell(value: Any) -> str:
    return "" if value is None else html.escape(printable(str(value), keep="\n\t"))
