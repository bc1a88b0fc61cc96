"""The warm start: the same settings give the same model, once, and never half of it."""

import random
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from gapo_lit.lab import warm_start as module
from gapo_lit.lab.__main__ import main
from gapo_lit.lab.rule import Rule
from gapo_lit.lab.task import ChainTask
from gapo_lit.lab.warm_start import IGNORED, WarmStart, build_tokenizer, made_by, supervised_batch, trained, warm_start
from gapo_lit.rollout.transformers import TransformersEngine
from gapo_lit.types import Sampling

TINY = WarmStart(steps=3, batch=8, layers=1, width=32)
OTHERS = {
    "steps": 4,
    "batch": 9,
    "lr": 1e-4,
    "seed": 1,
    "layers": 2,
    "width": 64,
    "lengths": (2, 3),
    "reliabilities": (0.5,),
    "rule_seed": 1,
}


def test_the_same_settings_give_the_same_weights_whatever_the_random_state() -> None:
    torch.manual_seed(1)
    first = trained(TINY).state_dict()
    torch.manual_seed(2)
    again, other = trained(TINY).state_dict(), trained(replace(TINY, seed=1)).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


@pytest.mark.parametrize("name", [field.name for field in fields(WarmStart)])
def test_the_key_changes_with_every_setting(name: str) -> None:
    assert replace(TINY, **{name: OTHERS[name]}).key != TINY.key
    assert replace(TINY).key == TINY.key


def test_a_folder_is_made_once_and_again_for_other_settings(tmp_path: Path) -> None:
    folder = tmp_path / "models" / "lab"
    assert warm_start(TINY, folder)
    before = (folder / "model.safetensors").stat().st_mtime_ns
    assert not warm_start(TINY, folder)
    assert (folder / "model.safetensors").stat().st_mtime_ns == before
    assert warm_start(replace(TINY, seed=1), folder)
    assert made_by(folder) == replace(TINY, seed=1).key
    assert [path.name for path in folder.parent.iterdir()] == ["lab"]


@pytest.mark.parametrize("stage", ["trained", "build_tokenizer"])
def test_a_warm_start_that_stops_half_way_leaves_what_was_there(
    stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "lab"
    warm_start(TINY, folder)

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, stage, stopped)
        for target in (folder, tmp_path / "new"):
            with pytest.raises(KeyboardInterrupt):
                warm_start(replace(TINY, seed=1), target)
    assert made_by(folder) == TINY.key
    assert [path.name for path in tmp_path.iterdir()] == ["lab"]


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert main(["--to", str(tmp_path), "--steps", "1"]) == 1
    assert "holds no warm start; remove it" in capsys.readouterr().err
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_the_command_says_what_it_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "lab"
    assert main(["--to", str(folder), "--steps", "1"]) == 0
    assert "loss" in capsys.readouterr().out
    assert main(["--to", str(folder), "--steps", "1"]) == 0
    assert "is there already" in capsys.readouterr().out


def test_an_engine_loads_the_folder_and_ends_completions_with_its_end_token(tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    warm_start(TINY, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    question, answer = (lambda e: (e.question, e.answer))(ChainTask(size=8).examples()[0])
    ids = tokenizer.encode(question)
    assert len(ids) == len(question)
    assert tokenizer.decode([*tokenizer.encode(answer), tokenizer.eos_token_id], skip_special_tokens=True) == answer
    engine = TransformersEngine(str(folder))
    engine.start()
    [[completion]] = engine.generate([ids], Sampling(max_tokens=40), 1, [0])
    engine.close()
    assert (completion.token_ids[-1] == tokenizer.eos_token_id) == (completion.finish_reason == "stop")
    assert AutoModelForCausalLM.from_pretrained(folder).config.vocab_size == len(tokenizer)


def test_only_answers_and_their_ends_are_taught() -> None:
    settings, tokenizer = replace(TINY, lengths=(2, 4)), build_tokenizer()
    rule = Rule.drawn(0, (1.0,))
    ids, labels = supervised_batch(settings, rule, random.Random(0), tokenizer)
    assert ids.shape == labels.shape
    for row, taught in zip(ids, labels, strict=True):
        answer = taught[taught != IGNORED]
        question = tokenizer.decode(row[: int((taught != IGNORED).nonzero()[0])])
        assert tokenizer.decode(answer) == rule.answer(question) + "<end>"


def test_settings_that_make_no_model_are_refused() -> None:
    with pytest.raises(ValueError, match="width=40 a multiple of 32"):
        WarmStart(width=40)
    with pytest.raises(ValueError, match="steps=0"):
        WarmStart(steps=0)
