import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer

from gapo_lit.callbacks import ExportModel
from gapo_lit.callbacks import export as module
from gapo_lit.callbacks.export import persistent_buffers, write_model
from tests.callbacks.fake_run import FakeData, FakePolicy, run
from tests.tiny import tiny_model


@pytest.fixture(params=[True, False], ids=["tied", "untied"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tiny_model(tmp_path / "source", tied=request.param)


def policy_on(source: Path, **settings: Any) -> FakePolicy:
    policy = FakePolicy(**settings)
    policy.model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32).train()
    return policy


def fit(tmp_path: Path, source: Path, callback: ExportModel, **settings: Any) -> tuple[FakePolicy, Path]:
    policy = policy_on(source, **settings)
    data = FakeData(tokenizer=AutoTokenizer.from_pretrained(source))
    trainer = run(tmp_path / "runs", callback, policy=policy, data=data, limit_val_batches=0)
    return policy, Path(trainer.log_dir) / "model"


def test_a_trained_model_loads_as_it_was(tmp_path: Path, source: Path) -> None:
    policy, folder = fit(tmp_path, source, ExportModel())
    model, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    trained, loaded = policy.model.state_dict(), model.state_dict()
    assert trained.keys() == loaded.keys()
    assert all(torch.equal(trained[name], loaded[name]) for name in trained)
    start = AutoModelForCausalLM.from_pretrained(source).state_dict()
    assert not all(torch.equal(start[name], loaded[name]) for name in start)
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["LlamaForCausalLM"]
    assert AutoTokenizer.from_pretrained(folder).chat_template
    assert [p.name for p in folder.parent.iterdir() if p.name.startswith(".")] == []


def test_the_stored_precision_is_the_one_the_configuration_names(tmp_path: Path) -> None:
    source = tiny_model(tmp_path / "source")
    _, folder = fit(tmp_path, source, ExportModel(dtype="bfloat16"))
    assert AutoModelForCausalLM.from_pretrained(folder, dtype="auto").dtype == torch.bfloat16


def test_gathered_copies_of_a_tied_weight_are_stored_once(tmp_path: Path) -> None:
    source = tiny_model(tmp_path / "source")
    model = AutoModelForCausalLM.from_pretrained(source)
    copies = {name: p.detach().clone() for name, p in model.named_parameters(remove_duplicate=False)}
    assert "lm_head.weight" in copies
    write_model(model, copies, AutoTokenizer.from_pretrained(source), tmp_path / "out")
    assert (tmp_path / "out" / "model.safetensors").stat().st_size < 1.1 * (source / "model.safetensors").stat().st_size


def test_a_failed_write_leaves_the_old_model(tmp_path: Path) -> None:
    source = tiny_model(tmp_path / "source")
    model, tokenizer = AutoModelForCausalLM.from_pretrained(source), AutoTokenizer.from_pretrained(source)
    weights = dict(model.named_parameters(remove_duplicate=False))
    write_model(model, dict(weights), tokenizer, tmp_path / "out")
    before = (tmp_path / "out" / "model.safetensors").read_bytes()

    class Broken:
        def save_pretrained(self, folder: Path) -> None:
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_model(model, dict(weights), Broken(), tmp_path / "out")
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "source"]
    write_model(model, dict(weights), tokenizer, tmp_path / "out")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "source"]


def test_after_an_error_what_was_learned_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tiny_model(tmp_path / "source")
    with pytest.raises(RuntimeError, match="the engine died"):
        fit(tmp_path, source, ExportModel(), fail_at=2)
    assert next((tmp_path / "runs").rglob("model.safetensors"))

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(module, "write_model", fail)
    with (
        pytest.warns(UserWarning, match="not written after RuntimeError"),
        pytest.raises(RuntimeError, match="engine died"),
    ):
        fit(tmp_path, source, ExportModel(), fail_at=2)


def test_nothing_is_written_where_nothing_was_learned(tmp_path: Path) -> None:
    source = tiny_model(tmp_path / "source")
    with pytest.raises(RuntimeError, match="the engine died"):
        fit(tmp_path, source, ExportModel(), fail_at=0)
    assert list((tmp_path / "runs").rglob("model")) == []


def test_buffers_that_belong_to_a_checkpoint() -> None:
    net = nn.Sequential(nn.BatchNorm1d(2))
    net.register_buffer("scale", torch.ones(1))
    net.register_buffer("scratch", torch.ones(1), persistent=False)
    buffers = {"scale", "0.running_mean", "0.running_var", "0.num_batches_tracked"}
    assert persistent_buffers(net).keys() == buffers


@pytest.mark.parametrize("setting", [{"dtype": "int8"}, {"folder": "../model"}, {"folder": ""}])
def test_bad_settings_are_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(setting))):
        ExportModel(**setting)
