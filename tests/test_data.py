"""Which prompts a rank answers when, and where a loader goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gapo_lit.clipping.schedules import GAPOClip
from gapo_lit.clipping.surrogate import PPOClip
from gapo_lit.data import RolloutDataModule
from gapo_lit.evaluation.benchmark import Task
from gapo_lit.evaluation.store import SampleStore
from gapo_lit.loaders import EvaluationLoader, RankShare, RolloutLoader, prompt_order
from gapo_lit.module import PolicyModule
from gapo_lit.policies.advantages import GroupMean
from gapo_lit.policies.aggregation import SequenceMeanTokenMean
from gapo_lit.policies.ratio import SequenceRatio
from gapo_lit.prompts import EncodedPrompts
from gapo_lit.rollout.collect import Collector
from gapo_lit.types import Example, Prompt, Rollout, Sampling, UpdateBatch
from tests.fakes import ScriptedEngine, ScriptedPrompts, ScriptedReward
from tests.tiny import tiny_model


def share(rank: int = 0, world: int = 1, per_batch: int = 4, per_update: int = 2, seed: int = 0) -> RankShare:
    return RankShare(rank, world, 2, per_batch, per_update, Sampling(max_tokens=4), seed)


def prompts(count: int) -> list[Prompt]:
    return [Prompt(Example(str(i), f"question {i}", "0.5"), (i + 1,), "") for i in range(count)]


@dataclass
class FakePolicy:
    """Takes a step whenever an update batch is asked for; remembers the prompts it was given."""

    version: int = 0
    exact: bool = True
    asked: list[list[str]] = field(default_factory=list)

    def gathered_parameters(self) -> Any:
        return iter([("weight", torch.zeros(1))])

    def score(self, *rest: Any) -> list[torch.Tensor]:
        return []

    def prepare(self, samples: Sequence[Rollout], updates: int, temperature: float) -> list[UpdateBatch]:
        self.asked.append(list(dict.fromkeys(s.prompt.id for s in samples)))
        nothing: Any = None
        return [UpdateBatch(nothing, None, torch.ones(()), (), i, (), {}) for i in range(updates)]


def loader(policy: FakePolicy, count: int = 9, **of_share: int) -> RolloutLoader:
    collector = Collector(ScriptedEngine(), ScriptedReward(), seed=0, verify=False)
    return RolloutLoader(policy, collector, share(**of_share), prompts(count))


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4))
def test_ranks_share_each_update_evenly_and_leave_nothing(world: int, per_rank: int, updates: int) -> None:
    per_update = world * per_rank
    parts = [share(r, world, per_update * updates, per_update).positions for r in range(world)]
    assert sorted(p for part in parts for p in part) == list(range(per_update * updates))
    for part in parts:
        assert [p // per_update for p in part] == [u for u in range(updates) for _ in range(per_rank)]


def test_an_epoch_answers_each_prompt_once_in_an_order_of_its_own() -> None:
    policy = FakePolicy()
    rollouts = loader(policy)
    assert len(rollouts) == 4  # 9 prompts fill two rollout batches of 4, of 2 updates each
    assert [u.index for u in rollouts] == [0, 1, 0, 1]
    first = [p for batch in policy.asked for p in batch]
    assert len(set(first)) == 8
    assert [u.index for u in rollouts] == [0, 1, 0, 1]
    second = [p for batch in policy.asked[2:] for p in batch]
    assert len(set(second)) == 8
    assert first != second


def test_no_seed_has_the_orders_of_another() -> None:
    """Else seed 1 would begin with the second epoch of seed 0, and seeds would not be independent runs."""
    orders = [tuple(prompt_order(50, seed, epoch)) for seed in range(4) for epoch in range(4)]
    assert len(set(orders)) == 16
    assert orders[0] == tuple(prompt_order(50, 0, 0))
    assert sorted(orders[0]) == list(range(50))


def test_ranks_together_answer_what_one_alone_does() -> None:
    alone, left, right = FakePolicy(), FakePolicy(), FakePolicy()
    for policy, rank, world in ((alone, 0, 1), (left, 0, 2), (right, 1, 2)):
        list(loader(policy, rank=rank, world=world))
    for whole, *halves in zip(alone.asked, left.asked, right.asked, strict=True):
        assert sorted(whole) == sorted(p for half in halves for p in half)


@pytest.mark.parametrize("steps", [2, 4, 6])
def test_a_loader_goes_on_where_another_stopped(steps: int) -> None:
    straight, first, second = FakePolicy(), FakePolicy(), FakePolicy()
    walked = loader(straight)
    for _ in range(3):
        list(walked)
    stopped = loader(first)
    taken = 0
    while taken < steps:
        for _ in stopped:
            taken += 1
            if taken == steps:
                break
    resumed = loader(second)
    resumed.load_state_dict(stopped.state_dict())
    for _ in range(2):
        list(resumed)
    together = first.asked + second.asked
    assert together == straight.asked[: len(together)]


def test_an_unfinished_rollout_batch_is_sampled_again() -> None:
    first, second = FakePolicy(), FakePolicy()
    stopped = loader(first)
    next(iter(stopped))
    resumed = loader(second)
    resumed.load_state_dict(stopped.state_dict())
    next(iter(resumed))
    assert first.asked == second.asked


def task(count: int, name: str = "validation", samples: int = 2) -> Task:
    encoded = EncodedPrompts(tuple(prompts(count)), ())
    return Task(name, encoded, ScriptedReward(), Sampling(max_tokens=4), samples, name)


def evaluation(rank: int, world: int, tasks: Sequence[Task], store: SampleStore | None = None, size: int = 2) -> Any:
    collector = Collector(ScriptedEngine(), ScriptedReward(), seed=0, verify=False)
    return EvaluationLoader(FakePolicy(), collector, (rank, world), tasks, size, store)


def asked(loader: EvaluationLoader) -> list[tuple[str, int]]:
    return [(batch.benchmark, position) for batch in loader for position in batch.positions]


@given(st.integers(1, 4), st.integers(0, 9), st.integers(1, 9), st.integers(1, 4))
def test_ranks_together_answer_every_problem_of_every_benchmark_once(
    world: int, first: int, second: int, size: int
) -> None:
    tasks = [task(first + 1, "a"), task(second, "b")]
    loaders = [evaluation(rank, world, tasks, size=size) for rank in range(world)]
    found = [problem for loader in loaders for problem in asked(loader)]
    assert sorted(found) == [("a", i) for i in range(first + 1)] + [("b", i) for i in range(second)]
    assert all(len(list(loader)) == len(loader) > 0 for loader in loaders), "Lightning wants an item of every rank"


def test_samples_do_not_depend_on_ranks_or_on_the_size_of_an_item() -> None:
    def texts(world: int, size: int) -> dict[int, list[str]]:
        return {
            batch.positions[group]: [r.completion.text for r in batch.rollouts if r.group == group]
            for rank in range(world)
            for batch in evaluation(rank, world, [task(5)], size=size)
            for group in range(len(batch.positions))
        }

    assert texts(1, 5) == texts(3, 1)


def test_many_samples_a_problem_make_small_items() -> None:
    assert [len(positions) for _, positions in evaluation(0, 1, [task(5, samples=1024)], size=64).items] == [2, 2, 1]


def test_what_is_stored_is_not_asked_again(tmp_path: Path) -> None:
    """On another number of ranks, too; with nothing left to ask the engine is not even started."""
    bench = task(5)

    def opened() -> SampleStore:
        store = SampleStore(tmp_path, {"model": "m"})
        store.open(bench)
        return store

    stopped = evaluation(0, 2, [bench], opened(), size=1)
    first = next(iter(stopped))
    store = opened()
    resumed = [evaluation(rank, 3, [bench], store) for rank in range(3)]
    batches = [batch for loader in resumed for batch in loader]
    assert sorted(p for batch in batches for p in batch.positions) == list(range(5))
    assert sum(len(engine) for engine in (loader.collector.engine.generated_at for loader in resumed)) == 3
    (again,) = (batch for batch in batches if batch.positions == first.positions)
    assert again.rollouts == first.rollouts

    finished = evaluation(0, 1, [bench], opened())
    assert len(asked(finished)) == 5
    assert finished.collector.engine.synced == []


@pytest.mark.parametrize("error", [RuntimeError("lost"), KeyboardInterrupt()])
def test_a_run_that_ends_early_frees_engine_and_reward(error: BaseException, tmp_path: Path) -> None:
    """Lightning calls no teardown then, and an engine left open keeps its memory and its processes."""

    class Stop(L.Callback):
        def on_train_batch_end(self, *_: Any) -> None:
            assert engine.closed == 0
            raise error

        def on_exception(self, *_: Any) -> None:
            assert engine.closed == 0, "callbacks come first, as they may still want the engine"

    class Closing(ScriptedReward):
        closed = 0

        def close(self) -> None:
            self.closed += 1

    engine, reward = ScriptedEngine(), Closing()
    model = str(tiny_model(tmp_path / "model"))
    module = PolicyModule(
        model, SequenceRatio(), GroupMean(), GAPOClip(3e-3, 5e-3), PPOClip(), SequenceMeanTokenMean(), group_size=2
    )
    data = RolloutDataModule(
        model, ScriptedPrompts(4), ScriptedPrompts(2, "val"), reward, engine, 2, 4, 2, Sampling(max_tokens=4),
        verify_sync=False,
    )  # fmt: skip
    trainer = L.Trainer(
        accelerator="cpu", max_steps=4, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[Stop()], num_sanity_val_steps=0, limit_val_batches=0,
        default_root_dir=tmp_path,
    )  # fmt: skip
    with pytest.raises((RuntimeError, SystemExit)):
        trainer.fit(module, datamodule=data)
    assert engine.closed == 1
    assert reward.closed >= 1
