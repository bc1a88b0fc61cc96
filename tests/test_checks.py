"""What is refused or warned of before a run, each with the value, the rule and the remedy."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gapo_lit import checks
from gapo_lit.checks import RunSettings
from gapo_lit.checks.prompts import some
from gapo_lit.checks.settings import standardises
from gapo_lit.clipping.schedules import ConstantClip, GAPOClip, TwoSidedClip
from gapo_lit.clipping.surrogate import PPOClip
from gapo_lit.data import RolloutDataModule
from gapo_lit.evaluation.benchmark import Benchmark
from gapo_lit.module import PolicyModule
from gapo_lit.policies.advantages import Focal, GroupMean, GroupStd
from gapo_lit.policies.aggregation import SequenceMeanTokenMean
from gapo_lit.policies.kl import K1, K3
from gapo_lit.policies.ratio import SequenceRatio
from gapo_lit.prompts import PromptSource
from gapo_lit.rewards.number import LastNumber
from gapo_lit.types import Example, Sampling
from tests.fakes import ScriptedEngine, ScriptedPrompts, ScriptedReward
from tests.tiny import tiny_model

FIXED = ConstantClip(0.1, 0.2)
ADAPTIVE = GAPOClip(0.1, 0.2)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_model(tmp_path_factory.mktemp("model")))


class Rows(PromptSource):
    """Questions and answers as given."""

    def __init__(self, *rows: tuple[str, str]) -> None:
        self.rows = rows

    def examples(self) -> list[Example]:
        return [Example(f"row {i}", question, answer) for i, (question, answer) in enumerate(self.rows)]


def policy(model: str, **changed: Any) -> PolicyModule:
    parts: dict[str, Any] = {"advantage": GroupMean(), "clip": ADAPTIVE, "group_size": 4}
    return PolicyModule(
        model, SequenceRatio(), surrogate=PPOClip(), aggregation=SequenceMeanTokenMean(), **(parts | changed)
    )


def prompts(model: str, **changed: Any) -> RolloutDataModule:
    parts: dict[str, Any] = {
        "train": ScriptedPrompts(10),
        "val": ScriptedPrompts(4, "val"),
        "reward": ScriptedReward(),
        "engine": ScriptedEngine(),
        "group_size": 4,
        "prompts_per_batch": 8,
        "prompts_per_update": 4,
        "sampling": Sampling(max_tokens=16),
    }
    return RolloutDataModule(model, **(parts | changed))


def refused(match: str) -> Any:
    return pytest.raises(ValueError, match=match)


def test_a_sound_run_has_no_warnings(model: str) -> None:
    assert checks.check_fit(policy(model), prompts(model), RunSettings(world_size=2, max_steps=8)) == []
    assert checks.check_evaluation(policy(model), prompts(model), "validate") == []


@pytest.mark.parametrize(
    ("setting", "remedy"),
    [
        ({"gradient_clip_val": 0.5}, "set model.max_grad_norm: 0.5"),
        ({"accumulate_grad_batches": 4}, r"accumulate_grad_batches=4, but .*micro_batch_tokens"),
        ({"precision": "16-mixed"}, "precision=16-mixed: .*before they are unscaled.*give 32-true or bf16-mixed"),
        ({"precision": "bf16-true"}, "precision=bf16-true: steps of 1e-6 vanish"),
        ({"precision": 16}, "precision=16: "),
        ({"precision": 64}, "precision=64: "),
    ],
)
def test_trainer_settings_that_would_not_learn_are_refused(setting: dict[str, Any], remedy: str) -> None:
    for precision in ("32-true", 32, "bf16-mixed"):
        checks.check_trainer(checks.settings_of({"precision": precision}, 1, False))
    checks.check_trainer(checks.settings_of({"precision": None}, 1, False))
    with refused(remedy):
        checks.check_trainer(RunSettings(**setting))


def test_one_group_size(model: str) -> None:
    with refused(r"model.group_size=4 but data.group_size=8; .* \$\{data.group_size\}"):
        checks.check_groups(policy(model), prompts(model, group_size=8))
    single = policy(model, clip=FIXED, group_size=1)
    with refused("group_size=1 gives every rollout an advantage of 0"):
        checks.check_groups(single, prompts(model, group_size=1))
    with refused("group_size=0, .*each must be at least 1"):
        prompts(model, group_size=0)
    with refused("group_size=1"):  # the schedule's own check, at construction
        policy(model, group_size=1)


def test_training_samples_from_the_policy_itself(model: str) -> None:
    """Refused at construction, so that a run without the command line is as safe."""
    ours = Sampling()
    for sampling, why in (
        (Sampling(temperature=0), "temperature=0 draws the same completion"),
        (Sampling(top_p=0.9), "top_p=0.9, top_k=-1"),
        (Sampling(top_k=20), "top_p=1.0, top_k=20"),
    ):
        with refused(why):
            prompts(model, sampling=sampling)
        prompts(model, sampling=ours, val_sampling=sampling, val_samples=1)
    with refused("data.val_samples=2 greedy completions"):
        prompts(model, val_sampling=Sampling(temperature=0), val_samples=2)
    with refused("val_samples=0"):
        prompts(model, val_samples=0)


def test_sizes_divide(model: str) -> None:
    with refused("prompts_per_batch=12 is not a multiple of prompts_per_update=5; .*1, 2, 3, 4, 6, 12"):
        prompts(model, prompts_per_batch=12, prompts_per_update=5)
    with refused("must be at least 1"):
        prompts(model, prompts_per_update=0)


def test_ranks_share_updates(model: str) -> None:
    """Before a run, and on every rank where one is set up: a rank that fails alone leaves the others waiting."""
    says = "prompts_per_update=4 does not divide over 3 ranks .* such as 6"
    data = prompts(model)
    data.trainer = SimpleNamespace(world_size=3)  # type: ignore[assignment]
    with refused(says):
        data.setup("fit")
    with refused(says):
        checks.check_fit(policy(model), data, RunSettings(world_size=3))
    data.setup("validate")


def exam(*rows: tuple[str, str], **settings: Any) -> dict[str, Benchmark]:
    return {"exam": Benchmark(Rows(*rows), **settings)}


def test_nothing_to_test_is_refused(model: str) -> None:
    with refused(r"data.benchmarks is empty, .* --config recipes/benchmark/math500.yaml"):
        checks.check_evaluation(policy(model), prompts(model), "test")


def test_a_benchmark_is_checked_with_its_own_settings(model: str) -> None:
    data = prompts(model, benchmarks=exam(("what", ""), reward=LastNumber()))
    with refused("data.benchmarks.exam: 1 of 1 gold answers cannot be graded: row 0: empty"):
        checks.check_evaluation(policy(model), data, "test")
    data = prompts(model, benchmarks=exam(("what", "1"), sampling=Sampling(max_tokens=510)))
    with refused(r"1 of 1 prompts of data.benchmarks.exam .* with data.benchmarks.exam.sampling.max_tokens=510"):
        checks.check_evaluation(policy(model), data, "test")
    with refused("data.benchmarks.exam.samples=0 evaluates nothing"):
        checks.check_evaluation(policy(model), prompts(model, benchmarks=exam(("what", "1"), samples=0)), "test")
    for name in ("../up", "", "a/b", "validation"):
        with refused("is no name for a benchmark"):
            prompts(model, benchmarks={name: Benchmark(Rows(("what", "1")))})


def test_training_questions_of_a_benchmark_are_refused_warned_of_or_dropped(model: str) -> None:
    """Equal but for case and spacing; as many as asked leave training."""
    rows = Rows(*[(f"question {i}", "1") for i in range(10)])
    judges = exam(("Question  3", "1"), ("another", "1"))
    with refused(r"data.train: 1 row asks questions of exam \(1\) too: row 3 = exam:row 0"):
        checks.check_prompts(prompts(model, train=rows, benchmarks=judges))
    (warning,) = checks.check_prompts(prompts(model, train=rows, benchmarks=judges, contamination="warn"))
    assert "row 3 = exam:row 0" in warning
    data = prompts(model, train=rows, benchmarks=judges, contamination="drop")
    assert any("1 row is left out of training" in text for text in checks.check_prompts(data))
    assert [p.id for p in data.train_prompts.prompts] == [f"row {i}" for i in range(10) if i != 3]
    assert data.train_prompts.contaminated == ("row 3",)


def test_a_benchmark_that_validation_asks_too_is_said_to_be_no_test(model: str) -> None:
    data = prompts(model, val=Rows(("what", "1"), ("more", "2")), benchmarks=exam(("What", "1"), ("less", "1")))
    (warning,) = checks.check_evaluation(policy(model), data, "test")
    assert "data.benchmarks.exam shares 1 problems with validation, which chooses the checkpoint" in warning


def test_a_clip_that_can_never_bind(model: str) -> None:
    one = prompts(model, prompts_per_batch=8, prompts_per_update=8)
    says = "the ratio is exactly 1 and no clip can ever bind; GAPO equals GSPO"
    (warning,) = checks.unbound_clip(policy(model, clip=FIXED), one, RunSettings())
    assert says in warning
    assert "prompts_per_update: 2" in warning
    for clip in (ADAPTIVE, TwoSidedClip(ADAPTIVE)):
        with refused(f"{says}, and {type(clip).__name__} does nothing; .*allow_unbound_clip: true"):
            checks.unbound_clip(policy(model, clip=clip), one, RunSettings())
        assert len(checks.unbound_clip(policy(model, clip=clip), one, RunSettings(allow_unbound_clip=True))) == 1
    assert checks.unbound_clip(policy(model), prompts(model), RunSettings()) == []


def test_std_works_against_an_adaptive_clip(model: str) -> None:
    (warning,) = checks.questionable_parts(policy(model, advantage=GroupStd()))
    assert warning.startswith("GroupStd divides by the group's std")
    assert checks.questionable_parts(policy(model, advantage=GroupStd(), clip=FIXED)) == []
    assert standardises(Focal(GroupStd(), 1.0))
    assert not standardises(Focal(GroupMean(), 1.0))


def test_a_kl_without_weight_costs_a_model(model: str) -> None:
    (warning,) = checks.questionable_parts(policy(model, kl=K3()))
    assert "kl_coef=0 holds a reference model" in warning
    with refused("kl_coef=0.1 without a KL estimator"):
        policy(model, kl_coef=0.1)


def test_k1_is_no_penalty(model: str) -> None:
    (warning,) = checks.questionable_parts(policy(model, kl=K1(), kl_coef=0.1))
    assert "kl_coef=0.1 weights K1, whose gradient is 0 in expectation" in warning
    assert checks.questionable_parts(policy(model, kl=K3(), kl_coef=0.1)) == []


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    with refused(r"no model folder models/SmolLM2-x; run `make model`.*hub name such as"):
        checks.model_config("models/SmolLM2-x")
    with refused("there is no model folder .*nowhere"):
        checks.model_config(str(tmp_path / "nowhere"))
    with refused("could not be read"):
        checks.model_config(str(tmp_path))


def test_fewer_prompts_than_a_rollout_batch(model: str) -> None:
    with refused("data.train holds 6 usable prompts, fewer than one rollout batch of data.prompts_per_batch=8"):
        checks.check_prompts(prompts(model, train=ScriptedPrompts(6)))


def test_too_long_prompts_are_counted(model: str) -> None:
    long = [("a much longer question " * 10, "1"), *((f"question {i}", "1") for i in range(9))]
    data = prompts(model, train=Rows(*long), max_prompt_tokens=150)
    (warning,) = checks.check_prompts(data)
    assert "9 prompts, 1 left out as too long" in warning
    assert "row 0" in warning
    with refused("no prompt of at most max_prompt_tokens=20"):
        checks.check_prompts(prompts(model, max_prompt_tokens=20))


def test_a_gold_that_cannot_be_graded_is_named(model: str) -> None:
    rows = [(f"question {i}", "" if i == 3 else "7") for i in range(9)]
    with refused("data.train: 1 of 9 gold answers cannot be graded: row 3: empty"):
        checks.check_prompts(prompts(model, train=Rows(*rows), reward=LastNumber()))
    validation = prompts(model, train=Rows(*[(q, "7") for q, _ in rows]), val=Rows(("other", " ")), reward=LastNumber())
    says = "data.val: 1 of 1 gold answers cannot be graded: row 0: .*drop_ungradable: true"
    with refused(says):
        checks.check_prompts(validation)
    with refused(says):
        checks.check_evaluation(policy(model), validation, "validate")


def test_rows_that_cannot_be_graded_are_left_out_and_counted_when_asked(model: str) -> None:
    rows = Rows(*[(f"question {i}", "" if i == 3 else "7") for i in range(9)])
    data = prompts(model, train=rows, val=Rows(("other", "7")), reward=LastNumber(), drop_ungradable=True)
    (warning,) = checks.check_prompts(data)
    assert "data.train: 8 prompts, 0 left out as too long, 1 as ungradable" in warning
    assert warning.endswith("row 3.")
    assert "row 3" not in [prompt.id for prompt in data.train_prompts.prompts]
    nothing = prompts(model, val=Rows(("other", " ")), reward=LastNumber(), drop_ungradable=True)
    with refused("1 of 1 gold answers cannot be graded"):
        _ = nothing.val_prompts


def test_training_and_validation_are_apart(model: str) -> None:
    train = Rows(*[(f"What is {i} + 1?", "1") for i in range(9)])
    with refused(
        r"data.train: 1 row asks questions of data.val \(1\) too: row 2 = data.val:row 1; .*contamination: drop"
    ):
        checks.check_prompts(prompts(model, train=train, val=Rows(("Other?", "1"), ("what is  2\n+ 1? ", "1"))))
    assert some([str(i) for i in range(7)]) == "0, 1, 2, 3, 4 and 2 more"


def test_prompts_and_completions_fit_the_model(model: str) -> None:
    config = checks.model_config(model)
    assert config.max_position_embeddings == 512
    data = prompts(model, sampling=Sampling(max_tokens=500))
    with refused(
        r"10 of 10 prompts of data.train \(longest \d+ tokens\) with data.sampling.max_tokens=500 are longer than 512, "
        r"the model's max_position_embeddings: train-0, .* and 5 more; give data.max_prompt_tokens: 12 to leave"
    ):
        checks.check_lengths(data, config)
    with refused("4 of 4 prompts of data.val .*val_sampling.max_tokens=512"):
        checks.check_lengths(prompts(model, val_sampling=Sampling(max_tokens=512)), config)
    narrow = ScriptedEngine()
    narrow.max_model_len = 40  # type: ignore[attr-defined]
    with refused("longer than 40, data.engine.max_model_len"):
        checks.check_lengths(prompts(model, engine=narrow), config)
    narrow.max_model_len = 4096  # type: ignore[attr-defined]
    with refused("max_model_len=4096 is above the model's 512"):
        checks.check_lengths(prompts(model, engine=narrow), config)
    checks.check_lengths(data, SimpleNamespace())  # a model without positions has no limit


def test_steps_and_validations_against_rollout_batches(model: str) -> None:
    data = prompts(model, train=ScriptedPrompts(16))  # 2 rollout batches of 2 updates an epoch
    run = RunSettings(max_steps=8, val_check_interval=2, check_val_every_n_epoch=None)
    assert checks.check_schedule(data, run) == []
    warning, last = checks.check_schedule(data, replace(run, max_steps=7))
    assert "max_steps=7 is no multiple of the 2 updates" in warning
    assert "Give 8." in warning
    assert "max_steps=7 is no multiple of trainer.val_check_interval=2: the policy exported" in last
    assert "Give max_steps 8," in last
    (warning,) = checks.check_schedule(data, replace(run, max_steps=12, val_check_interval=3))
    assert "in the middle of one" in warning
    with refused("val_check_interval=6 is above the 4 steps of an epoch, .*check_val_every_n_epoch: null"):
        checks.check_schedule(data, replace(run, val_check_interval=6, check_val_every_n_epoch=1))
    assert checks.check_schedule(data, replace(run, max_steps=12, val_check_interval=6)) == []
    (warning,) = checks.check_schedule(data, replace(run, max_steps=8, val_check_interval=6))
    assert "Give max_steps 6," in warning


def test_another_model_in_engine_or_tokenizer(model: str) -> None:
    engine = ScriptedEngine()
    engine.model = "other"  # type: ignore[attr-defined]
    (warning,) = checks.different_models(policy(model), prompts(model, engine=engine))
    assert "data.engine.model=other is not model.model=" in warning


def test_settings_come_from_a_recipe() -> None:
    run = checks.settings_of({"max_steps": 4, "check_val_every_n_epoch": None, "val_check_interval": None}, 2, True)
    assert run == RunSettings(2, 4, check_val_every_n_epoch=None, allow_unbound_clip=True)


def test_an_engine_whose_package_is_missing(model: str) -> None:
    engine = ScriptedEngine()
    checks.check_installed(prompts(model, engine=engine))
    engine.requires = ("torch", "no_such_package")  # type: ignore[attr-defined]
    with refused("ScriptedEngine needs no_such_package, which is not installed here; .*TransformersEngine"):
        checks.check_installed(prompts(model, engine=engine))
