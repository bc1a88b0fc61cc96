import json
from pathlib import Path
from typing import Any

import pytest

from gapo_lit.callbacks import SampleTable
from gapo_lit.callbacks.samples import COLUMNS, json_line, page, sample_rows
from tests.callbacks.fake_run import group_of, rollout, run

HOSTILE = (
    '\x1b]0;owned\x07\x9b31m<script>alert(1)</script> \u202etxt.exe \ud800 {body} "quoted"\nsecond line, naïve 数学'
)


def test_a_run_keeps_a_bounded_number_of_samples(tmp_path: Path) -> None:
    trainer = run(tmp_path, SampleTable(per_update=3, per_validation=2))
    folder = Path(trainer.log_dir)
    rows = [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]
    found = [(row["split"], row["step"]) for row in rows]
    assert found == [
        *[("validation", 0)] * 2,
        *[("train", 1)] * 3,
        *[("train", 2)] * 3,
        *[("validation", 2)] * 2,
        *[("train", 3)] * 3,
        *[("train", 4)] * 3,
        *[("validation", 4)] * 2,
    ]
    first = rows[0]
    assert tuple(first) == COLUMNS
    assert first["gold"] == "5"
    assert first["completion"] == "it is 5"
    assert (first["verdict"], first["reward"], first["group"], first["tokens"]) == ("correct", 1.0, "2/4", 3)
    assert {row["id"] for row in rows if row["split"] == "validation"} == {"q0", "q1"}
    assert "<td><pre>it is 5</pre></td>" in (folder / "samples.html").read_text()


def test_rows_are_spread_over_prompts_and_a_missing_verdict_leaves_its_group() -> None:
    rollouts = [
        *group_of(0, 1),
        *group_of(1, 2),
        rollout(2, None),
        rollout(2, True),
        rollout(2, False),
        rollout(2, False),
    ]
    rows = sample_rows(rollouts, 3, 1, "train", 100)
    assert [row["id"] for row in rows] == ["q0", "q1", "q2"]
    assert [row["group"] for row in rows] == ["1/4", "2/4", "1/3"]
    assert (rows[2]["verdict"], rows[2]["reward"], rows[2]["reason"]) == ("none", None, "timed out")
    assert len(sample_rows(rollouts, 99, 1, "train", 100)) == len(rollouts)


def test_hostile_text_survives_as_data() -> None:
    row = sample_rows([rollout(0, False, text=HOSTILE)], 1, 1, "train", 1000)[0]
    line = json_line(row)
    assert line.isprintable()
    assert json.loads(line)["completion"] == HOSTILE
    assert "naïve 数学" in line
    text = page([row])
    assert "<script>" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    text.encode()


def test_long_text_is_cut_and_says_so() -> None:
    row = sample_rows([rollout(0, True, text="x" * 500_000, prompt="y" * 11)], 1, 1, "train", 10)[0]
    assert row["completion"] == "xxxxxxxxxx… [499990 characters more]"
    assert row["prompt"] == "yyyyyyyyyy… [1 characters more]"


@pytest.mark.parametrize("setting", [{"per_update": -1}, {"every_n_updates": 0}, {"max_characters": 0}])
def test_bad_settings_are_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(setting))):
        SampleTable(**setting)
