"""The pieces of the rollout side that need no engine."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import pytest
import torch
from torch import distributed
from transformers import AutoConfig, AutoModelForCausalLM

from gapo_lit.registry import lookup
from gapo_lit.rollout import (
    Engine,
    EngineError,
    SyncMismatch,
    TransformersEngine,
    VLLMEngine,
    request_seed,
    verify_sync,
)
from gapo_lit.rollout.engine import preserved_rng
from gapo_lit.rollout.pretrained import Checkpoint, ParameterTable
from gapo_lit.rollout.sync import full_parameters, plain_name
from gapo_lit.rollout.transformers import _device, choose, processed_logprobs
from gapo_lit.rollout.vllm_process import check_device, launched
from gapo_lit.types import Completion, Sampling
from tests.tiny import tiny_model


def test_request_seeds_differ_by_every_part_and_fit_the_engines() -> None:
    parts = [
        (run, split, batch, place)
        for run in (0, 1)
        for split in ("train", "val")
        for batch in range(20)
        for place in range(64)
    ]
    seeds = [request_seed(*part) for part in parts]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**62 for seed in seeds)
    assert len({seed & 0xFFFFFFFF for seed in seeds}) > len(seeds) - 3, "CPU generators use the low 32 bits"
    assert seeds == [request_seed(*part) for part in parts]
    assert request_seed(1, 23) != request_seed(12, 3) != request_seed(1, 2, 3)
    assert request_seed(0, 1) != request_seed(0, "1")


def test_preserved_rng_also_holds_through_an_error() -> None:
    before = torch.get_rng_state()
    with pytest.raises(ValueError, match="gone"), preserved_rng():
        raise ValueError(f"gone {torch.manual_seed(4)}")
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("model.embed_tokens.weight", "model.embed_tokens.weight"),
        ("module.model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.weight"),
        ("_fsdp_wrapped_module.model._fsdp_wrapped_module.norm.weight", "model.norm.weight"),
        ("_orig_mod.model.layers.1._checkpoint_wrapped_module.norm.weight", "model.layers.1.norm.weight"),
        ("model.module.weight", "model.module.weight"),
    ],
)
def test_wrappers_leave_a_parameters_name(name: str, plain: str) -> None:
    assert plain_name(name) == plain


def test_full_parameters_are_detached_and_lazy() -> None:
    layer = torch.nn.Linear(2, 2)
    asked = []

    def source():
        for item in layer.named_parameters():
            asked.append(item[0])
            yield item

    stream = full_parameters(source())
    name, tensor = next(stream)
    assert (name, asked, tensor.requires_grad) == ("weight", ["weight"], False)
    assert tensor.data_ptr() == layer.weight.data_ptr()


class Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(5, 3)
        self.norm = torch.nn.LayerNorm(3)
        self.head = torch.nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight


def test_a_parameter_table_completes_tied_names_and_refuses_what_is_not_the_model() -> None:
    model = Tied()
    table = ParameterTable.of(model)
    assert table.tied == {"head.weight": "embed.weight"}
    everything = {"embed.weight", "head.weight", "norm.weight", "norm.bias"}
    once = list(model.named_parameters())
    for given in (
        once,
        list(model.named_parameters(remove_duplicate=False)),
        [("head.weight", model.head.weight), *once[1:]],
    ):
        passed = list(table.complete(given))
        assert sorted(name for name, _ in passed) == sorted(everything)
    for given, says in [
        (once[:-1], r"1 of 4 parameters were not given: norm\.bias"),
        ([], r"4 of 4 parameters were not given: embed\.weight"),
        ([("norm.scale", model.norm.weight), *once], r"no parameter 'norm\.scale'"),
        ([*once, once[-1]], r"'norm\.bias' came twice"),
        ([("embed.weight", model.embed.weight[:2]), *once[1:]], r"\(2, 3\) instead of \(5, 3\).*shards"),
    ]:
        with pytest.raises(EngineError, match=says):
            list(table.complete(given))


def test_a_checkpoint_names_all_ends_and_its_own_limit(tmp_path) -> None:
    folder = str(tiny_model(tmp_path))
    checkpoint = Checkpoint.read(folder, None)
    assert checkpoint.end_ids == {2, 4}
    assert (checkpoint.vocab_size, checkpoint.max_model_len) == (261, 512)
    assert checkpoint.parameters.tied == {"lm_head.weight": "model.embed_tokens.weight"}
    assert checkpoint.decode([]) == []
    text = "a  b\n é"
    assert checkpoint.decode([[3, *checkpoint.tokenizer.encode(text), 4], []]) == [text, ""]
    (tmp_path / "generation_config.json").unlink()
    assert Checkpoint.read(folder, 100).end_ids == {4}
    with pytest.raises(ValueError, match="max_model_len=513 is above the 512"):
        Checkpoint.read(folder, 513)
    with pytest.raises(EngineError, match="could not be read"):
        TransformersEngine(str(tmp_path / "nothing")).start()


def test_the_tiny_model_leaves_the_random_state_alone(tmp_path) -> None:
    before = torch.get_rng_state()
    tiny_model(tmp_path / "a", tied=False, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    one, other = (
        AutoConfig.from_pretrained(tiny_model(tmp_path / name, tied=tied)) for name, tied in (("b", True), ("c", False))
    )
    assert (one.tie_word_embeddings, other.tie_word_embeddings) == (True, False)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "a")
    assert model.lm_head.weight is not model.model.embed_tokens.weight


def test_choose_inverts_the_distribution() -> None:
    probabilities = torch.tensor([0.0, 0.2, 0.0, 0.5, 0.3, 0.0])
    uniform = torch.linspace(0, 1, 10_001, dtype=torch.float64)
    drawn = choose(probabilities.log().expand(len(uniform), -1), uniform)
    assert torch.bincount(drawn, minlength=6).div(len(uniform)).allclose(probabilities, atol=2e-4)
    assert choose(probabilities.log()[None], None).tolist() == [3]


def test_processed_logprobs_take_temperature_top_k_and_top_p_in_this_order() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0]])
    assert processed_logprobs(logits, Sampling(0.5)).allclose((logits * 2).log_softmax(-1))
    assert processed_logprobs(logits, Sampling(0.0, top_k=1, top_p=0.1)).allclose(logits.log_softmax(-1))
    two = processed_logprobs(logits, Sampling(1.0, top_k=2))
    assert two[0, :2].allclose(logits[0, :2].log_softmax(-1))
    assert two[0, 2:].tolist() == [-math.inf, -math.inf]
    # Of the two that top-k leaves the first has 0.73: enough for p = 0.7, not for p = 0.8.
    assert processed_logprobs(logits, Sampling(1.0, top_k=2, top_p=0.7)).exp().allclose(torch.tensor([[1.0, 0, 0, 0]]))
    assert processed_logprobs(logits, Sampling(1.0, top_k=2, top_p=0.8)).allclose(two)
    assert processed_logprobs(logits, Sampling(1.0, top_k=9)).allclose(logits.log_softmax(-1))


class Scripted(Engine):
    """Answers every prompt with the same two tokens."""

    def __init__(self, logprobs: tuple[float, float]) -> None:
        self.logprobs = logprobs

    def start(self) -> None: ...
    def close(self) -> None: ...
    def load_weights(self, weights, version) -> None: ...

    def generate(self, prompts, sampling, n, seeds):
        return [[Completion((1, 2), self.logprobs, "", "length")] * n for _ in prompts]


def test_verify_sync_judges_by_precision() -> None:
    engine = Scripted((-1.0, -2.0))
    temperatures = []

    def score(prompts, responses, temperature):
        temperatures.append(temperature)
        return [torch.tensor([-1.0, -2.3]) for _ in prompts]

    with pytest.raises(SyncMismatch, match=r"token 2 at position 1 of probe 0: -2\.00000 in the engine, -2\.30000"):
        verify_sync(engine, score, [(5,)] * 5, temperature=0.6)
    assert temperatures == [0.6]
    engine.precision = "bfloat16"
    assert verify_sync(engine, score, [(5,)]) == pytest.approx(0.15)
    assert verify_sync(engine, score, [(5,)], 0.4, by="worst") == pytest.approx(0.3)
    with pytest.raises(SyncMismatch, match="nan"):
        verify_sync(Scripted((-1.0, math.nan)), score, [(5,)])
    with pytest.raises(ValueError, match="probe"):
        verify_sync(engine, score, [])
    with pytest.raises(ValueError, match="1 log-probs for a response of 2"):
        verify_sync(engine, lambda *_: [torch.zeros(1)], [(5,)])


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: TransformersEngine("m", batch_size=0), "batch_size=0"),
        (lambda: TransformersEngine("m", max_model_len=1), "max_model_len=1"),
        (lambda: VLLMEngine("m", max_model_len=1), "max_model_len=1"),
        (lambda: VLLMEngine("m", max_num_seqs=0), "max_num_seqs=0"),
        (lambda: VLLMEngine("m", gpu_memory_utilization=1.2), r"gpu_memory_utilization=1\.2"),
        (lambda: VLLMEngine("m", kv_cache_gib=0), "kv_cache_gib=0"),
    ],
)
def test_bad_settings_are_refused_at_construction(build, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        build()


def test_engines_are_registered() -> None:
    assert lookup("engine", "VLLMEngine").cls is VLLMEngine
    assert lookup("engine", "TransformersEngine").cls is TransformersEngine


def test_importing_the_engines_loads_no_vllm() -> None:
    check = "import sys, gapo_lit.rollout; sys.exit('vllm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], env=os.environ, timeout=120).returncode == 0


def test_without_vllm_the_error_names_the_remedies(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(ImportError, match=r"gapo-lit\[cpu\].*gapo-lit\[gpu\].*TransformersEngine"):
        VLLMEngine(str(tiny_model(tmp_path))).start()


def test_vllm_refuses_to_start_before_the_trainers_process_group(monkeypatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(EngineError, match="WORLD_SIZE=2 but there is no process group"):
        VLLMEngine("m").start()


@pytest.fixture
def third_gpu(monkeypatch) -> None:
    """The trainer's device list is [2, 3] or so, and this is its first process."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 2)
    monkeypatch.setenv("LOCAL_RANK", "0")


@pytest.mark.usefixtures("third_gpu")
def test_transformers_sample_on_the_trainers_gpu() -> None:
    assert _device() == torch.device("cuda", 2)


@pytest.mark.usefixtures("third_gpu")
def test_vllm_is_told_the_trainers_gpu(monkeypatch) -> None:
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(distributed, "get_rank", lambda: 5)
    check_device()
    with launched(own_cache=False):
        assert (os.environ["RANK"], os.environ["LOCAL_RANK"]) == ("5", "2")
    assert os.environ["LOCAL_RANK"] == "0"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with launched(own_cache=False):
        assert os.environ["LOCAL_RANK"] == "0"


def test_vllm_alone_refuses_another_gpu_than_the_first(third_gpu, monkeypatch) -> None:
    with pytest.raises(EngineError, match=r"trainer is on GPU 2.*CUDA_VISIBLE_DEVICES=2"):
        check_device()
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    check_device()
