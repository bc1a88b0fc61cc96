"""The rollout side as a LightningDataModule: prompts come in, batches of single optimizer steps go out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import lightning as L
import torch
from transformers import AutoTokenizer

from gapo_lit.evaluation.benchmark import VALIDATION, Benchmark, Task, check_names, check_samples, shared
from gapo_lit.evaluation.store import SampleStore
from gapo_lit.loaders import EvaluationLoader, RankShare, RolloutLoader
from gapo_lit.prompts import EncodedPrompts, PromptSource, Template, encode_prompts
from gapo_lit.prompts.contamination import Contamination, Shared, dropped, find_shared
from gapo_lit.rewards.base import Reward
from gapo_lit.rollout.collect import Collector
from gapo_lit.rollout.engine import Engine
from gapo_lit.types import Example, Sampling, UpdateBatch


class RolloutDataModule(L.LightningDataModule):
    """Prompts, an engine that answers them and a reward that grades the answers.

    tokenizer: folder or hub name, the model's own. train, val: prompt sources, held apart; val chooses checkpoints.
    benchmarks: what `test` evaluates, by name, and never chooses by. group_size: k, rollouts a prompt.
    prompts_per_batch: prompts of one rollout batch, over all ranks. prompts_per_update: prompts of one optimizer step;
    prompts_per_batch / prompts_per_update updates are made from a rollout batch, and with one of them no clip ever
    binds. sampling, val_sampling: how training and validation completions are drawn. val_samples: completions a
    validation prompt. max_prompt_tokens: longer prompts are left out, and counted. drop_ungradable: leave out, and
    count, rows whose gold answer the reward cannot grade. contamination: of training questions that validation or a
    benchmark asks too, refuse equal ones and warn of those that overlap, or warn of both, or drop both. verify_sync:
    compare engine and trainer after each weight sync.
    Raises ValueError for sizes that do not divide and for sampling that training or validation cannot use.
    """

    def __init__(
        self,
        tokenizer: str,
        train: PromptSource,
        val: PromptSource,
        reward: Reward,
        engine: Engine,
        group_size: int,
        prompts_per_batch: int,
        prompts_per_update: int,
        sampling: Sampling,
        val_sampling: Sampling | None = None,
        val_samples: int = 8,
        val_prompts_per_batch: int = 64,
        max_prompt_tokens: int = 1024,
        template: Template | None = None,
        benchmarks: dict[str, Benchmark] | None = None,
        drop_ungradable: bool = False,
        contamination: Contamination = "refuse",
        seed: int = 0,
        verify_sync: bool = True,
    ) -> None:
        _check_sizes(group_size, prompts_per_batch, prompts_per_update)
        _check_sampling(sampling)
        check_samples("data.val_samples", val_sampling or sampling, val_samples)
        check_names(benchmarks or ())
        super().__init__()
        self.tokenizer_name = tokenizer
        self.train, self.val, self.template = train, val, template or Template()
        self.group_size = group_size
        self.prompts_per_batch, self.prompts_per_update = prompts_per_batch, prompts_per_update
        self.sampling, self.val_sampling = sampling, val_sampling or sampling
        self.val_samples, self.val_prompts_per_batch = val_samples, val_prompts_per_batch
        self.max_prompt_tokens, self.drop_ungradable = max_prompt_tokens, drop_ungradable
        self.contamination = contamination
        self.seed = seed
        self.collector = Collector(engine, reward, seed, verify_sync)
        self.benchmarks: Mapping[str, Benchmark] = benchmarks or {}
        self.store: SampleStore | None = None
        self._train_loader: RolloutLoader | None = None
        self._state: dict[str, Any] = {}

    @property
    def updates_per_batch(self) -> int:
        """Optimizer steps made from one rollout batch."""
        return self.prompts_per_batch // self.prompts_per_update

    @cached_property
    def tokenizer(self) -> Any:
        """The model's tokenizer."""
        return AutoTokenizer.from_pretrained(self.tokenizer_name)

    @cached_property
    def train_prompts(self) -> EncodedPrompts:
        """Training prompts as token ids, with what was left out."""
        examples, judged = self.train.examples(), frozenset[str]()
        if self.contamination == "drop":
            judged = dropped(self.found)
            examples = [example for example in examples if example.id not in judged]
        encoded = self._encode(examples)
        return replace(encoded, contaminated=tuple(judged))

    @cached_property
    def found(self) -> tuple[Shared, ...]:
        """Training questions that validation or a benchmark asks too, or nearly."""
        judges = {"data.val": self.val, **{name: b.prompts for name, b in self.benchmarks.items()}}
        return find_shared(self.train.examples(), {name: source.examples() for name, source in judges.items()})

    @cached_property
    def val_prompts(self) -> EncodedPrompts:
        """Validation prompts as token ids, with what was left out."""
        return self._encode(self.val.examples())

    @property
    def val_task(self) -> Task:
        """Validation, as what is evaluated."""
        reward, purpose = self.collector.reward, VALIDATION
        return Task(VALIDATION, self.val_prompts, reward, self.val_sampling, self.val_samples, purpose)

    @cached_property
    def test_tasks(self) -> list[Task]:
        """The benchmarks, with what they leave open taken from validation."""
        return [self._task(name, benchmark) for name, benchmark in self.benchmarks.items()]

    def tasks(self, stage: str) -> list[Task]:
        """What a stage of Lightning's, validate or test, evaluates."""
        return self.test_tasks if stage == "test" else [self.val_task]

    def shares(self, task: Task) -> dict[str, int]:
        """Whether a benchmark's problems chose the checkpoint, too: how many of them stand in data.val."""
        if task.name == VALIDATION:
            return {}
        count = shared(task.examples, [prompt.example for prompt in self.val_prompts.prompts])
        return {VALIDATION: count} if count else {}

    def _task(self, name: str, given: Benchmark) -> Task:
        reward, sampling = given.reward or self.collector.reward, given.sampling or self.val_sampling
        prompts = self._encode(given.prompts.examples(), reward, given.template, given.max_prompt_tokens)
        samples = self.val_samples if given.samples is None else given.samples
        return Task(name, prompts, reward, sampling, samples, f"benchmark {name}")

    def _encode(
        self,
        examples: Sequence[Example],
        reward: Reward | None = None,
        template: Template | None = None,
        max_prompt_tokens: int | None = None,
    ) -> EncodedPrompts:
        ungradable = tuple[str, ...]()
        if self.drop_ungradable:
            examples, ungradable = _gradable(examples, reward or self.collector.reward)
        longest = self.max_prompt_tokens if max_prompt_tokens is None else max_prompt_tokens
        encoded = encode_prompts(examples, template or self.template, self.tokenizer, longest)
        return replace(encoded, ungradable=ungradable)

    def check_ranks(self, world_size: int) -> None:
        """ValueError unless each rank has as many prompts of an update as any other."""
        update = self.prompts_per_update
        if update % world_size:
            raise ValueError(
                f"data.prompts_per_update={update} does not divide over {world_size} ranks (a group stays on one); "
                f"give a multiple of {world_size}, such as {-(-update // world_size) * world_size}, or fewer devices"
            )

    def setup(self, stage: str) -> None:
        """Check the number of ranks on all of them: one that fails alone would leave the others waiting."""
        assert self.trainer is not None
        if stage == "fit":
            self.check_ranks(self.trainer.world_size)

    def train_dataloader(self) -> RolloutLoader:
        """One item an optimizer step; generates as it is walked, from the weights of that moment."""
        loader = RolloutLoader(self._policy, self.collector, self._share, self.train_prompts.prompts)
        loader.load_state_dict(self._state)
        self._train_loader = loader
        return loader

    def val_dataloader(self) -> EvaluationLoader:
        """Graded rollouts of this rank's validation prompts, some prompts an item."""
        return self._evaluation_loader([self.val_task])

    def test_dataloader(self) -> EvaluationLoader:
        """Graded rollouts of this rank's share of every benchmark."""
        return self._evaluation_loader(self.test_tasks)

    def _evaluation_loader(self, tasks: Sequence[Task]) -> EvaluationLoader:
        share, size = self._share, self.val_prompts_per_batch
        ranks = (share.rank, share.world_size)
        return EvaluationLoader(self._policy, self.collector, ranks, tasks, size, self.store)

    def state_dict(self) -> dict[str, Any]:
        """The position in the training prompts."""
        return {} if self._train_loader is None else self._train_loader.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Remember the position until the loader is made."""
        self._state = state_dict

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Move what a step computes with; validation batches are words."""
        return batch.to(device) if isinstance(batch, UpdateBatch) else batch

    def teardown(self, stage: str) -> None:
        """Free the engine and the rewards' workers."""
        self.collector.close()
        for benchmark in self.benchmarks.values():
            if benchmark.reward is not None:
                benchmark.reward.close()

    def on_exception(self, exception: BaseException) -> None:
        """Free them after a failure or Ctrl-C too, for which Lightning calls no teardown."""
        self.teardown("exception")

    @property
    def _policy(self) -> Any:
        return self.trainer.lightning_module  # type: ignore[union-attr]

    @property
    def _share(self) -> RankShare:
        trainer = self.trainer
        assert trainer is not None
        return RankShare(
            trainer.global_rank,
            trainer.world_size,
            self.group_size,
            self.prompts_per_batch,
            self.prompts_per_update,
            self.sampling,
            self.seed,
        )


def _gradable(examples: Sequence[Example], reward: Reward) -> tuple[list[Example], tuple[str, ...]]:
    """The examples whose gold answer the reward can grade, and the ids of the others; its ValueError if it can none."""
    kept: list[Example] = []
    refused: list[str] = []
    for example in examples:
        try:
            reward.check([example])
        except ValueError:
            refused.append(example.id)
        else:
            kept.append(example)
    if not kept:
        reward.check(examples)
    return kept, tuple(refused)


def _check_sizes(group_size: int, batch: int, update: int) -> None:
    """A rollout batch is cut into equal updates of whole groups."""
    if min(group_size, batch, update) < 1:
        raise ValueError(
            f"group_size={group_size}, prompts_per_batch={batch}, prompts_per_update={update}: each must be at least 1"
        )
    if batch % update:
        near = [n for n in range(1, min(batch, 4096) + 1) if batch % n == 0]
        raise ValueError(
            f"prompts_per_batch={batch} is not a multiple of prompts_per_update={update}; "
            f"give prompts_per_update one of {', '.join(map(str, near[-8:]))}"
        )


def _check_sampling(train: Sampling) -> None:
    """Training samples from the policy itself."""
    if train.temperature == 0:
        raise ValueError(
            "sampling.temperature=0 draws the same completion k times and has no log-probs to learn from; "
            "give 1.0, and keep 0 to val_sampling"
        )
    if train.truncates:
        raise ValueError(
            f"sampling has top_p={train.top_p}, top_k={train.top_k}: the trainer's log-probs are of the whole "
            "distribution, so every ratio would be wrong; give top_p: 1.0 and top_k: -1, others to val_sampling"
        )
