import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from gapo_lit.prompts import Template, encode_prompts
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


COLUMNS = {"n": 3, "hint": "use {question} and \\frac{n}{2}", "empty": None, "tests": [1], "easy": True}


def asked(pattern: str, **settings) -> str:
    row = Example("e", r"Solve \frac{a}{n} = {n} {0} %s {{n}}.", "5", COLUMNS)
    return Template(pattern=pattern, **settings).asked(row)


def test_columns_go_into_the_pattern_as_they_are():
    question = r"Solve \frac{a}{n} = {n} {0} %s {{n}}."
    assert asked("{question}") == question
    assert asked("Level {n}{n}: {question} {hint}|{empty}|") == f"Level 33: {question} {COLUMNS['hint']}||"
    kept = r" \boxed{n} x^{n} x_{n} \frac{n}{n} {\rm n} d[{0}]{n} { n } {} }{"
    assert asked("{question}" + kept) == question + kept
    assert asked("{question}", prefix="{n} ", suffix=" {n}") == "{n} " + question + " {n}"


def test_a_column_that_is_not_there_is_named_with_the_near_ones():
    with pytest.raises(
        ValueError, match=r"names {hnt}, but e has no such column; did you mean hint or n\?; .*space inside"
    ):
        asked("{question} {hnt}")
    for column, kind in (("tests", "list"), ("easy", "bool")):
        with pytest.raises(ValueError, match=f"it holds {kind} in e"):
            asked(f"{{question}} {{{column}}}")
    for pattern in ("Answer this.", "{quesiton}", r"\boxed{question}"):
        with pytest.raises(ValueError, match="asks no question"):
            Template(pattern=pattern)
    with pytest.raises(ValueError, match=r"hint='hm' asks no question"):
        Template(pattern_with={"hint": "hm"})


def test_rows_that_have_something_in_a_column_are_put_another_way(tokenizer):
    template = Template(chat=False, pattern_with={"code": "{question} Complete {code}"})
    rows = [Example(str(i), "Add.", "", {"code": code}) for i, code in enumerate(["def f():", "", None])]
    rows.append(Example("3", "Add.", ""))
    texts = [p.text for p in encode_prompts(rows, template, tokenizer, 100).prompts]
    assert texts == ["Add. Complete def f():", "Add.", "Add.", "Add."]
    slip = Template(chat=False, pattern_with={"codes": "{question} {codes}"})
    with pytest.raises(ValueError, match="no row has a column 'codes'; did you mean code"):
        encode_prompts(rows, slip, tokenizer, 100)


def test_a_chat_template_of_ones_own(tokenizer, tmp_path):
    own = "{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}\n{% endfor %}{{ '>' if add_generation_prompt }}"
    path = tmp_path / "own.jinja"
    path.write_text(own)
    tokenizer.chat_template = None
    for given in (own, str(path)):
        prompt = Template(system="s", chat_template=given)(example(), tokenizer)
        assert prompt.text == "[system] s\n[user] What is 2 + 3?\n>"
        assert tokenizer.decode(prompt.token_ids) == prompt.text
    with pytest.raises(ValueError, match=r"there is no file .*other\.jinja; give a path or a Jinja template"):
        Template(chat_template=str(tmp_path / "other.jinja"))
    with pytest.raises(ValueError, match="chat_template with chat: false"):
        Template(chat=False, chat_template=own)


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
