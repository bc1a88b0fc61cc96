"""Hub data sets, from folders that the package datasets reads as it reads the hub's."""

import json
from datetime import datetime

import pytest

from gapo_lit.prompts import HubPrompts
from gapo_lit.types import Example

datasets = pytest.importorskip("datasets")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path_factory.mktemp("cache")))
    datasets.disable_progress_bars()


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def folder(tmp_path, **configs):
    """A data set of several configs, each with the rows of one train split."""
    lines = ["---", "configs:"]
    for name, rows in configs.items():
        write(tmp_path / name / "train.jsonl", rows)
        lines += [f"- config_name: {name}", f"  data_files: {name}/train.jsonl"]
    (tmp_path / "README.md").write_text("\n".join([*lines, "---", ""]))
    return str(tmp_path)


def numbered(count, **columns):
    return [{"question": f"q{i}", "answer": str(i), **columns} for i in range(count)]


def test_rows_of_a_config_and_of_several(tmp_path):
    name = folder(tmp_path, easy=numbered(2, n=1), hard=[{"question": "h", "answer": "", "tests": [{"in": "1"}]}])
    assert HubPrompts(name, "easy").examples() == [
        Example(f"{name}:0", "q0", "0", {"n": 1}),
        Example(f"{name}:1", "q1", "1", {"n": 1}),
    ]
    both = HubPrompts(name, ["hard", "easy"]).examples()
    assert [(e.id, e.question) for e in both] == [(f"{name}:0", "h"), (f"{name}:1", "q0"), (f"{name}:2", "q1")]
    assert both[0].columns == {"tests": [{"in": "1"}]}
    with pytest.raises(ValueError, match=r"/hard\[train\], row 0 has no column 'n'; columns|no column 'n'"):
        HubPrompts(name, ["easy", "hard"], where={"n": 1}).examples()
    with pytest.raises(ValueError, match="easy"):
        HubPrompts(name, "esay").examples()
    with pytest.raises(ValueError, match="no column 'answers'; did you mean answer"):
        HubPrompts(name, "easy", answer="answers").examples()


def test_settings_are_what_load_dataset_is_asked_for(monkeypatch):
    asked = {}

    def load_dataset(name, config, **settings):
        asked.update(settings, name=name, config=config)
        return datasets.Dataset.from_list([{"question": "q", "answer": "5", "day": datetime(2024, 8, 1)}])

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    files = ["hf://datasets/org/name/a.jsonl"]
    window = {"day": {"from": "2024-08-01", "before": "2024-08-02"}}
    source = HubPrompts("org/name", "main", split="test", revision="abc", data_files=files, where=window)
    assert [e.id for e in source.examples()] == ["org/name:0"]
    named = {"name": "org/name", "config": "main", "split": "test", "revision": "abc", "data_files": files}
    assert asked == named | {"streaming": False}

    def refuses(*_, **__):
        raise RuntimeError("Dataset scripts are no longer supported")

    monkeypatch.setattr(datasets, "load_dataset", refuses)
    with pytest.raises(ValueError, match=r"org/name could not be loaded: .*give its files: name: json, data_files"):
        source = HubPrompts("org/name").examples()


def test_files_are_read_without_the_data_sets_own_script(tmp_path):
    rows = [{"id": f"p{i}", "question": "q", "contest_date": f"2024-0{i}-15T00:00:00"} for i in range(1, 10)]
    write(tmp_path / "test.jsonl", rows[:5])
    write(tmp_path / "test2.jsonl", rows[5:])
    source = HubPrompts(
        "json",
        data_files=[str(tmp_path / "test.jsonl"), str(tmp_path / "test2.jsonl")],
        answer=None,
        id="id",
        where={"contest_date": {"from": "2024-04-15", "before": "2024-08-01"}},
    )
    assert [e.id for e in source.examples()] == ["p4", "p5", "p6", "p7"]
    assert source.counts == "9 rows read, 5 left out by where"


def test_streaming_takes_the_same_rows_for_the_same_seed_and_no_more_than_it_needs(tmp_path):
    write(tmp_path / "train.jsonl", numbered(200))

    def taken(**settings):
        source = HubPrompts(str(tmp_path), streaming=True, limit=10, **settings)
        return [e.question for e in source.examples()], source

    first, source = taken()
    assert first == [f"q{i}" for i in range(10)]
    assert source._read_rows == 10
    drawn, _ = taken(shuffle_seed=1, shuffle_buffer=100)
    assert drawn == taken(shuffle_seed=1, shuffle_buffer=100)[0]
    assert drawn != taken(shuffle_seed=2, shuffle_buffer=100)[0]
    assert drawn != first
    near, _ = taken(shuffle_seed=1, shuffle_buffer=5)
    assert all(int(q[1:]) < 15 for q in near)  # the buffer moved on by ten
    held, _ = taken(holdout="validation", validation_fraction=0.5)
    assert held != first
    with pytest.raises(ValueError, match=r"streaming: true .*give limit"):
        HubPrompts("org/name", streaming=True)
    with pytest.raises(ValueError, match="shuffle_buffer=0"):
        HubPrompts("org/name", shuffle_buffer=0)
