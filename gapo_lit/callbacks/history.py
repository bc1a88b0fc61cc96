"""What a run logged, read back from its metrics.csv."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

STEP = "step"


@dataclass(frozen=True)
class History:
    """The rows of a metrics.csv in the order they were logged, each with the values it has.

    A row belongs to an optimizer step or to a validation; both have `step`, the updates done so far.
    """

    rows: Sequence[Mapping[str, float]]

    def series(self, name: str) -> tuple[list[float], list[float]]:
        """(steps, values) of one metric, without rows that lack it; both empty where it was never logged."""
        points = [(row[STEP], row[name]) for row in self.rows if name in row and STEP in row]
        return [step for step, _ in points], [value for _, value in points]

    def names(self, prefix: str) -> list[str]:
        """Metrics that begin with `prefix`, pass@16 after pass@2 and c=10 after c=9."""
        found = {name for row in self.rows for name in row if name.startswith(prefix)}
        return sorted(found, key=_natural)

    @property
    def updates(self) -> list[Mapping[str, float]]:
        """The rows of optimizer steps."""
        return [row for row in self.rows if any(name.startswith("train/") for name in row)]

    @property
    def validations(self) -> list[dict[str, float]]:
        """The validation metrics of each validation, without their prefix, with its step."""
        rows = [
            {name.removeprefix("val/"): value for name, value in row.items() if name == STEP or name.startswith("val/")}
            for row in self.rows
        ]
        return [row for row in rows if len(row) > (STEP in row)]

    def later_updates(self) -> list[Mapping[str, float]]:
        """Updates after the first of their rollout batch: those at which the policy has moved, so that a clip can bind.

        A rollout batch begins where train/policy_version, the version that sampled it, changes.
        """
        later, sampled_at = [], None
        for row in self.updates:
            version = row.get("train/policy_version")
            if version == sampled_at:
                later.append(row)
            sampled_at = version
        return later


def read_history(path: Path) -> History:
    """Read a metrics.csv; a last line without an end, as a killed run leaves one, is left out.

    A file that does not exist gives an empty history. Cells that are no numbers are left out.
    """
    if not path.is_file():
        return History([])
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    return History([_numbers(row) for row in csv.DictReader(io.StringIO(whole, newline=""))])


def _numbers(row: Mapping[str, str | None]) -> dict[str, float]:
    numbers = {}
    for name, cell in row.items():
        try:
            numbers[name] = float(cell or "")
        except ValueError:
            continue
    return numbers


def _natural(name: str) -> tuple[str, int]:
    head = name.rstrip("0123456789")
    return head, int(name[len(head) :] or 0)
