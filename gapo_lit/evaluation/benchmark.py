"""A named set of problems that is asked, graded and reported by itself."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from gapo_lit.prompts import EncodedPrompts, PromptSource, Template
from gapo_lit.prompts.base import normalised
from gapo_lit.rewards.base import Reward
from gapo_lit.types import Example, Sampling

VALIDATION = "validation"  # what `data.val` is called among the benchmarks
_NAME = re.compile(r"[A-Za-z0-9][\w.+-]*", re.ASCII)


@dataclass(frozen=True)
class Benchmark:
    """A benchmark as a recipe gives it, under `data.benchmarks`; what is None is as for validation.

    prompts: the problems. reward, template: how they are graded and put. sampling: how completions are drawn;
    temperature 0 is greedy. samples: completions a problem, n of pass@k. max_prompt_tokens: longer ones are left out.
    """

    prompts: PromptSource
    reward: Reward | None = None
    template: Template | None = None
    sampling: Sampling | None = None
    samples: int | None = None
    max_prompt_tokens: int | None = None


@dataclass(frozen=True)
class Task:
    """A benchmark with everything decided: its prompts as token ids, and how each is sampled and graded.

    purpose tells its request seeds from those of others. Raises ValueError for samples that could not differ.
    """

    name: str
    prompts: EncodedPrompts
    reward: Reward
    sampling: Sampling
    samples: int
    purpose: str

    def __post_init__(self) -> None:
        check_samples(self.place + ("_samples" if self.name == VALIDATION else ".samples"), self.sampling, self.samples)

    @property
    def place(self) -> str:
        """Where a recipe sets it."""
        return "data.val" if self.name == VALIDATION else f"data.benchmarks.{self.name}"

    @property
    def examples(self) -> list[Example]:
        """The rows behind the prompts that are asked."""
        return [prompt.example for prompt in self.prompts.prompts]


def check_samples(name: str, sampling: Sampling, samples: int) -> None:
    """ValueError where a problem gets no completion, or the same greedy one several times."""
    if samples < 1:
        raise ValueError(f"{name}={samples} evaluates nothing; give at least 1")
    if sampling.temperature == 0 and samples > 1:
        raise ValueError(
            f"{name}={samples} greedy completions of a problem are all the same, and pass@{samples} of them would be "
            "pass@1; give 1 sample, or a temperature above 0"
        )


def check_names(benchmarks: Iterable[str]) -> None:
    """ValueError for a name that cannot stand in a metric's name and a file's."""
    for name in benchmarks:
        if not _NAME.fullmatch(name) or name == VALIDATION:
            raise ValueError(
                f"data.benchmarks: {name!r} is no name for a benchmark; give letters, digits and _ . + -, other than "
                f"{VALIDATION!r}, which data.val has"
            )


def shared(examples: Iterable[Example], others: Iterable[Example]) -> int:
    """How many of the questions stand among others too, case and spacing aside."""
    known = {normalised(other.question) for other in others}
    return sum(normalised(example.question) in known for example in examples)
