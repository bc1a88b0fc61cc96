import json
import re

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from gapo_lit.prompts import (
    ArithmeticTask,
    HubPrompts,
    JsonlPrompts,
    ReasoningGymTask,
    Template,
    encode_prompts,
)
from gapo_lit.prompts.arithmetic import KINDS
from gapo_lit.registry import components
from gapo_lit.types import Example

# As SmolLM2's: a system message of the template's own, unless one is given.
CHAT = (
    "{% for m in messages %}{% if loop.first and m['role'] != 'system' %}<s>system\ndefault</s>\n{% endif %}"
    "<s>{{ m['role'] }}\n{{ m['content'] }}</s>\n{% endfor %}{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)


@pytest.fixture
def tokenizer():
    """One token a byte, <s> put in front of raw text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: i for i, token in enumerate(["<s>", "</s>", *alphabet])}
    core = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", eos_token="</s>")
    tokenizer.chat_template = CHAT
    return tokenizer


def example(question: str = "What is 2 + 3?", id: str = "e") -> Example:
    return Example(id, question, "5")


# Templates


def test_chat_prompts_are_the_templates_own_ids(tokenizer):
    prompt = Template(system="Be brief.", prefix="Q: ", suffix=" A number.")(example(), tokenizer)
    assert prompt.text == "<s>system\nBe brief.</s>\n<s>user\nQ: What is 2 + 3? A number.</s>\n<s>assistant\n"
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Q: What is 2 + 3? A number."}]
    expected = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert prompt.token_ids == tuple(expected)
    assert tokenizer.decode(prompt.token_ids) == prompt.text  # no second <s> in front
    assert all(type(i) is int for i in prompt.token_ids)


def test_without_a_system_message_the_template_decides_and_an_empty_one_is_given(tokenizer):
    assert Template()(example(), tokenizer).text.startswith("<s>system\ndefault</s>")
    assert Template(system="")(example(), tokenizer).text.startswith("<s>system\n</s>")


def test_raw_prompts_are_encoded_as_any_text(tokenizer):
    prompt = Template(chat=False, prefix="1 + 1 = 2\n", suffix="\nAnswer:")(example(), tokenizer)
    assert prompt.text == "1 + 1 = 2\nWhat is 2 + 3?\nAnswer:"
    assert prompt.token_ids == tuple(tokenizer.encode(prompt.text))
    assert prompt.token_ids[0] == tokenizer.bos_token_id


def test_a_tokenizer_without_chat_template_is_an_error_with_its_remedy(tokenizer):
    tokenizer.chat_template = None
    with pytest.raises(ValueError, match=r"no chat template.*chat: false"):
        Template()(example(), tokenizer)
    assert Template(chat=False)(example(), tokenizer).token_ids


def test_a_template_that_refuses_a_system_message_is_an_error_with_its_remedy(tokenizer):
    tokenizer.chat_template = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}hi"
    with pytest.raises(ValueError, match=r"no system.*system: null"):
        Template(system="x")(example(), tokenizer)
    with pytest.raises(ValueError, match="chat: true"):
        Template(system="x", chat=False)


def test_long_prompts_are_left_out_and_named(tokenizer):
    rows = [example("abc", "a"), example("a" * 50, "b"), example("abcde", "c"), example("é" * 3, "d")]
    encoded = encode_prompts(rows, Template(chat=False), tokenizer, max_prompt_tokens=6)
    assert [p.id for p in encoded.prompts] == ["a", "c"]
    assert encoded.too_long == ("b", "d")
    assert encoded.counts == "2 prompts, 2 left out as too long"


def test_nothing_left_is_an_error(tokenizer):
    template = Template(chat=False)
    with pytest.raises(ValueError, match=r"max_prompt_tokens=3 .*shortest of 2 has 4 tokens"):
        encode_prompts([example("abc", "a"), example("abcd", "b")], template, tokenizer, 3)
    with pytest.raises(ValueError, match="no examples"):
        encode_prompts([], template, tokenizer, 3)
    with pytest.raises(ValueError, match="max_prompt_tokens=0"):
        encode_prompts([example()], template, tokenizer, 0)
    with pytest.raises(ValueError, match="'e'"):
        encode_prompts([example(), example()], template, tokenizer, 100)
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(single="$A", special_tokens=[])
    with pytest.raises(ValueError, match="no token"):
        encode_prompts([example("")], template, tokenizer, 100)


# Files


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


def test_hub_rows(monkeypatch):
    datasets = pytest.importorskip("datasets")
    asked = {}

    def load_dataset(name, config, **settings):
        asked.update(settings, name=name, config=config)
        return datasets.Dataset.from_list(
            [{"question": "q", "answer": "5", "n": 1}, {"question": "r", "answer": "", "n": 2}]
        )

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    source = HubPrompts("org/name", "main", split="test", revision="abc")
    assert source.examples() == [Example("org/name:0", "q", "5", {"n": 1}), Example("org/name:1", "r", "", {"n": 2})]
    assert asked == {"name": "org/name", "config": "main", "split": "test", "revision": "abc"}
    with pytest.raises(ValueError, match=r"org/name\[train\], row 0 has no column 'answers'; did you mean answer\?"):
        HubPrompts("org/name", answer="answers").examples()


# Generated tasks


def canonical(words: str) -> tuple:
    numbers = sorted(re.findall(r"\d+", words), key=int) if "-" not in words else re.findall(r"\d+", words)
    return (re.sub(r"\d+", "#", words), *numbers)


@pytest.mark.parametrize("level", range(len(KINDS)))
def test_arithmetic_answers_are_right_and_splits_are_apart(level):
    train = ArithmeticTask("train", 30, seed=1, levels=[level]).examples()
    validation = ArithmeticTask("validation", 10, seed=2, levels=[level], suffix="").examples()
    for e in (*train, *validation):
        words = e.question.removesuffix(" Answer with a number.")
        numbers = [int(n) for n in re.findall(r"\d+", words)]
        formula = re.fullmatch(r"What is ([\d +*-]+)\?", words)
        assert int(e.answer) == (max(numbers) if level == 1 else eval(formula[1]))
        assert e.columns == {"level": level, "kind": KINDS[level]}
    questions = {canonical(e.question.removesuffix(" Answer with a number.")) for e in train}
    assert not questions & {canonical(e.question) for e in validation}
    assert len({e.id for e in train}) == 30


def test_all_of_both_splits_are_disjoint_and_complete():
    def whole(split):
        with pytest.raises(ValueError, match="distinct") as refused:
            ArithmeticTask(split, 10**6)
        size = int(re.search(r"have (\d+) distinct", str(refused.value))[1])
        return {canonical(e.question) for e in ArithmeticTask(split, size, suffix="").examples()}, size

    (train, n), (validation, m) = whole("train"), whole("validation")
    assert not train & validation
    # Operands that may change places give one question: a + b or b + a, not both.
    assert (len(train), len(validation)) == (n, m)
    assert n + m == 55 + 90 * 89 // 2 + 55 + 900 + 90 * 91 // 2 + 220 + 55 + 90 * 91 // 2


def test_levels_come_in_turn_and_draws_follow_the_seed():
    first, again, other = (ArithmeticTask("train", 80, seed=s).examples() for s in (3, 3, 4))
    assert first == again
    assert first != other
    assert [e.columns["level"] for e in first] == list(range(8)) * 10
    assert len({e.question for e in first}) == 80


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"split": "test"}, "split='test'"),
        ({"size": 0}, "size=0"),
        ({"levels": [9]}, "levels=\\[9\\]"),
        ({"levels": []}, "levels"),
        ({"levels": [0, 0]}, "levels"),
        ({"size": 101, "levels": [0]}, "size=101.*smaller size or more levels"),
        ({"validation_fraction": 1.0}, "validation_fraction"),
    ],
)
def test_bad_arithmetic_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        ArithmeticTask(**settings)


def test_reasoning_gym_splits_are_apart():
    pytest.importorskip("reasoning_gym")
    config = {"min_digits": 1, "max_digits": 1, "min_terms": 2, "max_terms": 2}
    train = ReasoningGymTask("chain_sum", "train", 40, seed=0, config=config, suffix=" !").examples()
    validation = ReasoningGymTask("chain_sum", "validation", 20, seed=1, config=config).examples()
    assert {e.columns["entry_question"] for e in train}.isdisjoint(e.question for e in validation)
    assert len({e.question for e in train}) == 40
    assert train[0].question.endswith(" !")
    assert train == ReasoningGymTask("chain_sum", "train", 40, seed=0, config=config, suffix=" !").examples()
    json.dumps([dict(e.columns) for e in train])


def test_reasoning_gym_errors():
    pytest.importorskip("reasoning_gym")
    with pytest.raises(ValueError, match=r"did you mean .*chain_sum"):
        ReasoningGymTask("chain_sums", size=1)
    with pytest.raises(ValueError, match="min_trms"):
        ReasoningGymTask("chain_sum", size=1, config={"min_trms": 2})
    with pytest.raises(ValueError, match="fewer than size=500"):
        ReasoningGymTask("chain_sum", size=500, config={"max_digits": 1, "min_terms": 2, "max_terms": 2})


def test_reasoning_gym_is_asked_for_by_name(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "reasoning_gym", None)
    with pytest.raises(ImportError, match="pip install reasoning-gym"):
        ReasoningGymTask("chain_sum", size=1)


def test_sources_are_registered():
    names = {c.name for c in components("prompts")}
    assert {"ArithmeticTask", "HubPrompts", "JsonlPrompts", "ReasoningGymTask"} <= names
