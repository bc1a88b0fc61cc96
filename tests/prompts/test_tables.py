import json

import pytest

from gapo_lit.prompts import JsonlPrompts
from gapo_lit.types import Example


def write(tmp_path, text, name="rows.jsonl"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


ROW = '{"id": "%s", "prompt": "q", "answer": "5", "level": 2}'


def test_jsonl_rows(tmp_path):
    text = (
        b"\xef\xbb\xbf" + (ROW % "a").encode() + b"\r\n\r\n  \n" + '{"id": 7, "prompt": "é\\n", "answer": 5.5}'.encode()
    )
    source = JsonlPrompts(write(tmp_path, text))
    assert source.examples() == [Example("a", "q", "5", {"level": 2}), Example("7", "é\n", "5.5")]
    assert source.examples() is source.examples()


def test_jsonl_columns_by_other_names_and_a_limit(tmp_path):
    path = write(tmp_path, "\n".join(json.dumps({"q": f"q{i}", "gold": i}) for i in range(3)) + "\nnot json")
    rows = JsonlPrompts(path, question="q", answer="gold", id=None, limit=2).examples()
    assert [(e.id, e.question, e.answer) for e in rows] == [("rows.jsonl:0", "q0", "0"), ("rows.jsonl:1", "q1", "1")]
    with pytest.raises(ValueError, match="limit=0"):
        JsonlPrompts(path, limit=0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ROW % "a" + "\n{oops", r"rows\.jsonl, line 2 is no JSON"),
        (ROW % "a" + "\n\n[1]", r"rows\.jsonl, line 3 is a JSON list"),
        (b'{"id": "\xff"}', r"rows\.jsonl, line 1 is no JSON.*UTF-8"),
        ("[" * 100_000, r"line 1 is no JSON"),
        (ROW % "a" + "\n" + ROW % "a", r"line 2 has the id 'a'"),
        (
            '{"id": "a", "promt": "q", "answer": "5"}',
            r"line 1 has no column 'prompt'; did you mean promt\?; columns: id, promt",
        ),
        ('{"id": "a", "prompt": "q", "answer": null}', r"line 1 holds NoneType in column 'answer'"),
        ('{"id": "a", "prompt": "q", "answer": ["5"]}', r"line 1 holds list in column 'answer'"),
        ('{"id": "a", "prompt": "q", "answer": true}', r"line 1 holds bool in column 'answer'"),
        ('{"id": "a", "prompt": " ", "answer": "5"}', r"line 1 has an empty question"),
        ('{"id": "a", "prompt": "q", "answer": null}', r"leave the row out with drop: \['a'\]"),
        ("\n\n", r"rows\.jsonl holds no rows"),
    ],
)
def test_faulty_files_are_refused_with_file_and_row(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        JsonlPrompts(write(tmp_path, text)).examples()


def test_rows_are_left_out_by_id(tmp_path):
    faulty = '{"id": "b", "prompt": "q", "answer": null}\n{"id": "c", "prompt": " ", "answer": "1"}'
    path = write(tmp_path, ROW % "a" + "\n" + faulty)
    assert [e.id for e in JsonlPrompts(path, drop=["b", "c"]).examples()] == ["a"]
    with pytest.raises(ValueError, match=r"drop names d, but rows\.jsonl has no such id"):
        JsonlPrompts(path, drop=["b", "c", "d"]).examples()
    with pytest.raises(ValueError, match="holds no rows to ask"):
        JsonlPrompts(path, drop=["a", "b", "c"]).examples()


def test_two_sides_of_one_file_share_no_question_however_often_it_comes(tmp_path):
    questions = [f"Question {i}?" for i in range(60)] + [f" question  {i}?" for i in range(60)]
    path = write(tmp_path, "\n".join(json.dumps({"prompt": q, "answer": "1"}) for q in questions))
    kept = {
        part: JsonlPrompts(path, id=None, holdout=part, validation_fraction=0.25).examples()
        for part in ("train", "validation")
    }
    train, validation = ({" ".join(e.question.casefold().split()) for e in kept[part]} for part in kept)
    assert not train & validation
    assert len(train | validation) == 60
    assert len(kept["train"]) == 2 * len(train)
    assert 5 < len(validation) < 30
    first = JsonlPrompts(path, id=None, holdout="validation", validation_fraction=0.25, limit=3).examples()
    assert first == kept["validation"][:3]
    with pytest.raises(ValueError, match="holdout='test' is neither"):
        JsonlPrompts(path, holdout="test")
    with pytest.raises(ValueError, match="validation_fraction=0"):
        JsonlPrompts(path, holdout="train", validation_fraction=0)


def test_a_missing_file_names_what_is_there(tmp_path):
    write(tmp_path, "", "train.jsonl")
    with pytest.raises(FileNotFoundError, match=r"trian\.jsonl; did you mean train\.jsonl"):
        JsonlPrompts(str(tmp_path / "trian.jsonl")).examples()
    with pytest.raises(FileNotFoundError):
        JsonlPrompts(str(tmp_path / "no" / "folder.jsonl")).examples()


def test_parquet_rows(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.table({"id": ["a", "b"], "prompt": ["q", "r"], "answer": [1, None]})
    path = str(tmp_path / "rows.parquet")
    parquet.write_table(table, path)
    assert JsonlPrompts(path, limit=1).examples() == [Example("a", "q", "1")]
    with pytest.raises(ValueError, match=r"rows\.parquet, row 1 holds NoneType"):
        JsonlPrompts(path).examples()
    with pytest.raises(ValueError, match="no Parquet file"):
        JsonlPrompts(write(tmp_path, "x" * 100, "bad.parquet")).examples()


def table(tmp_path, *rows):
    return write(tmp_path, "\n".join(json.dumps(row) for row in rows))


def test_a_path_leads_into_a_column(tmp_path):
    row = {
        "id": 1,
        "chat": [{"role": "system", "content": "s"}, {"role": "user", "content": "What?"}],
        "reward_model": {"ground_truth": "7", "style": "rule"},
        "final.answer": "8",
    }
    path = table(tmp_path, row)
    (example,) = JsonlPrompts(path, "chat[-1].content", "reward_model.ground_truth").examples()
    assert (example.question, example.answer) == ("What?", "7")
    # A path takes nothing away: the rest of such a column may be wanted.
    assert example.columns == {k: v for k, v in row.items() if k != "id"}
    assert JsonlPrompts(path, "chat[1].content", "final.answer").examples()[0].answer == "8"
    for question, message in (
        ("chat[2].content", r"line 1: 'chat\[2\].content' takes item 2 of a list of 2"),
        ("chat.content", "looks for 'content' in list, which has no names"),
        (
            "reward_model.ground_truht",
            "no column 'ground_truht' in 'reward_model.ground_truht'; did you mean ground_tr",
        ),
        ("reward_model[0]", "takes item 0 of dict"),
        ("chat[", r"'chat\[' is no path to a value"),
        ("chat[1]", r"holds dict in column 'chat\[1\]'"),
        ("chat", r"holds list in column 'chat'; .*for its first item give chat\[0\]"),
    ):
        with pytest.raises(ValueError, match=message):
            JsonlPrompts(path, question, "id").examples()


def test_rows_without_a_gold_answer_keep_what_grades_them(tmp_path):
    row = {"id": "a", "prompt": "q", "tests": [{"input": "1", "output": "2"}], "kwargs": [{}, {"n": 3}]}
    assert JsonlPrompts(table(tmp_path, row), answer=None).examples() == [
        Example("a", "q", "", {"tests": row["tests"], "kwargs": row["kwargs"]})
    ]


def test_a_number_is_written_without_needless_digits(tmp_path):
    rows = [{"id": i, "prompt": "q", "answer": a} for i, a in enumerate([142.0, 0.5, -3, 1e300])]
    assert [e.answer for e in JsonlPrompts(table(tmp_path, *rows)).examples()] == ["142", "0.5", "-3", "1e+300"]


def test_the_answer_is_what_the_pattern_holds_where_it_matches_last(tmp_path):
    worked = "She has 3 #### boxes.\n#### 4\nso #### 1,072 "
    path = table(tmp_path, {"id": "a", "prompt": "q", "answer": worked}, {"id": "b", "prompt": "q", "answer": "none"})
    assert JsonlPrompts(path, answer_pattern=r"####\s*(\S+)", limit=1).examples()[0].answer == "1,072"
    with pytest.raises(ValueError, match=r"line 2: answer_pattern '#### \(.\)' is nowhere .*drop: \['b'\]"):
        JsonlPrompts(path, answer_pattern="#### (.)").examples()
    for pattern, message in (("####", "has 0 groups"), ("(a)(b)", "has 2 groups"), ("(", "no regular expression")):
        with pytest.raises(ValueError, match=message):
            JsonlPrompts(path, answer_pattern=pattern)
    with pytest.raises(ValueError, match="no column to look in"):
        JsonlPrompts(path, answer=None, answer_pattern="(a)")


ROWS = [
    {
        "id": "a",
        "prompt": "q",
        "answer": 1,
        "level": 1,
        "year": "2023",
        "subject": "algebra",
        "day": "2024-07-31T23:59:59",
        "ok": True,
    },
    {
        "id": "b",
        "prompt": "q",
        "answer": 1,
        "level": 3,
        "year": "2024",
        "subject": "geometry",
        "day": "2024-08-01T00:00:00",
        "ok": True,
    },
    {
        "id": "c",
        "prompt": "q",
        "answer": 1,
        "level": 5,
        "year": "2025",
        "subject": "algebra",
        "day": "2025-02-01T00:00:00",
        "ok": False,
    },
    {
        "id": "d",
        "prompt": "q",
        "answer": 1,
        "level": None,
        "year": "2024",
        "subject": None,
        "day": "2025-01-31",
        "ok": None,
    },
]


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        ({"subject": "algebra"}, "ac"),
        ({"level": [1, 3.0]}, "ab"),
        ({"level": {"from": 3}}, "bc"),
        ({"level": {"from": 1, "before": 5}, "subject": ["geometry", "number theory"]}, "b"),
        ({"day": {"from": "2024-08-01", "before": "2025-02-01"}}, "bd"),
        ({"ok": True}, "ab"),
        ({"year": 2024}, "bd"),
    ],
)
def test_rows_are_chosen_by_column(tmp_path, where, kept):
    source = JsonlPrompts(table(tmp_path, *ROWS), where=where)
    assert [e.id for e in source.examples()] == list(kept)
    assert source.counts == f"4 rows read, {4 - len(kept)} left out by where"


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"subjct": "algebra"}, r"no column 'subjct'; did you mean subject"),
        ({"level": "3"}, r"line 1 holds int in column 'level', but where.level has '3', str"),
        ({"level": {"least": 3}}, r"where.level={'least': 3} is no range; give from"),
        ({"level": {}}, "is no range"),
        ({"level": []}, "keeps no row"),
        ({"level": None}, "keeps no row"),
        ({"subject": "none"}, r"no rows to ask \(4 rows read, 4 left out by where\)"),
    ],
)
def test_conditions_that_cannot_be_meant_are_refused(tmp_path, where, message):
    with pytest.raises(ValueError, match=message):
        JsonlPrompts(table(tmp_path, *ROWS), where=where).examples()


def test_a_seed_draws_the_same_rows_at_random(tmp_path):
    path = table(tmp_path, *({"id": i, "prompt": f"q{i}", "answer": 1} for i in range(50)))
    drawn = {seed: [e.id for e in JsonlPrompts(path, limit=9, shuffle_seed=seed).examples()] for seed in (0, 1)}
    assert drawn[0] == [e.id for e in JsonlPrompts(path, limit=9, shuffle_seed=0).examples()]
    assert len(set(drawn[0])) == 9
    assert drawn[0] != drawn[1] != [str(i) for i in range(9)]
    unnumbered = JsonlPrompts(path, id=None, limit=9, shuffle_seed=0).examples()
    assert [e.id for e in unnumbered] == [f"rows.jsonl:{i}" for i in drawn[0]]  # by its place, however it is drawn


def test_spacing_and_latex_do_not_move_a_question_to_the_other_side(tmp_path):
    pairs = [(f"Find ${i}+x$ if $x={i}$.", f"find \\({i} + x\\) if $x = {i}$") for i in range(40)]
    path = table(tmp_path, *({"id": q, "prompt": q, "answer": 1} for pair in pairs for q in pair))
    train = {e.question for e in JsonlPrompts(path, holdout="train", validation_fraction=0.5).examples()}
    assert 10 < len(train) < 70
    assert all((a in train) == (b in train) for a, b in pairs)
