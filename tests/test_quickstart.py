"""What the quickstart's recipe promises of its data."""

from __future__ import annotations

from pathlib import Path

import yaml

from gapo_lit.prompts import ArithmeticTask

RECIPE = yaml.safe_load((Path(__file__).resolve().parents[1] / "recipes" / "quickstart.yaml").read_text())["data"]


def questions(split: str) -> set[str]:
    return {e.question for e in ArithmeticTask(**RECIPE[split]["init_args"]).examples()}


def test_worked_examples_and_both_splits_share_no_question() -> None:
    worked = set(RECIPE["template"]["prefix"].splitlines()[::3])
    assert len(worked) == 4
    levels = RECIPE["val"]["init_args"]["levels"]
    both = [ArithmeticTask(split, 300, levels=levels, suffix="") for split in ("train", "validation")]
    every = {e.question for task in both for e in task.examples()}
    assert questions("train") & questions("val") == set()
    assert worked & (questions("train") | questions("val") | every) == set()


def test_difficulty_is_mixed() -> None:
    kinds = {e.columns["kind"] for e in ArithmeticTask(**RECIPE["val"]["init_args"]).examples()}
    assert len(kinds) == 5
