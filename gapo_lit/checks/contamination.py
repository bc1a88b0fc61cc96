"""What is done about training questions that are questions of validation or of a benchmark too, and said about it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from gapo_lit.prompts.contamination import Contamination, Shared

LISTED = 5
REMEDY = "data.contamination: drop leaves them out of training"


def check_contamination(found: Sequence[Shared], setting: Contamination) -> list[str]:
    """Warnings about what was found; with `refuse`, ValueError where a training question is another set's.

    refuse: equal questions stop the run, overlapping ones are warned of. warn: both are warned of, and trained on.
    drop: both are left out of training, and counted.
    """
    equal = [s for s in found if s.kind == "equal"]
    overlapping = [s for s in found if s.kind == "overlap"]
    if equal and setting == "refuse":
        raise ValueError(
            f"data.train: {_rows(equal, 'asks', 'ask')} questions of {_sets(equal)} too: {listing(equal)}; pass@k "
            f"would measure memory. {REMEDY}; two sides of one source are kept apart by holdout: train and "
            "holdout: validation"
        )
    if not found:
        return []
    if setting == "drop":
        return [
            f"data.train: {_rows(found)} left out of training, for questions of {_sets(found)} that they ask or "
            f"overlap: {listing(found)}."
        ]
    warnings = []
    if equal:
        warnings.append(
            f"data.train: {_rows(equal, 'asks', 'ask')} questions of {_sets(equal)} too: {listing(equal)}. {REMEDY}."
        )
    if overlapping:
        warnings.append(
            f"data.train: {_rows(overlapping, 'overlaps', 'overlap')} questions of {_sets(overlapping)} by much of "
            f"their words: {listing(overlapping)}. {REMEDY}."
        )
    return warnings


def listing(found: Sequence[Shared], limit: int | None = LISTED) -> str:
    """Rows found, the first few (None: all) and how many more: `train = aime24:7` or `train ~ aime24:7 (0.61)`."""
    shown = found if limit is None else found[:limit]
    pairs = [
        f"{s.train} = {s.set}:{s.id}" if s.kind == "equal" else f"{s.train} ~ {s.set}:{s.id} ({s.share:.2f})"
        for s in shown
    ]
    more = len(found) - len(shown)
    return ", ".join(pairs) + (f" and {more} more" if more else "")


def write_shared(found: Sequence[Shared], path: Path) -> None:
    """Every row found, as JSON lines with the fields of `Shared`."""
    path.write_text("".join(json.dumps(asdict(s), ensure_ascii=False) + "\n" for s in found), encoding="utf-8")


def _rows(found: Sequence[Shared], one: str = "is", many: str = "are") -> str:
    count = len({s.train for s in found})
    return f"{count} row {one}" if count == 1 else f"{count} rows {many}"


def _sets(found: Sequence[Shared]) -> str:
    """The other sets, with how many of their rows are concerned."""
    counts = Counter(name for name, _ in {(s.set, s.id) for s in found})
    return ", ".join(f"{name} ({count})" for name, count in sorted(counts.items()))
