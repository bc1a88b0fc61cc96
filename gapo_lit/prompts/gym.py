"""Tasks of reasoning-gym, generated without end and graded by their own verifiers (see ReasoningGymReward)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gapo_lit.prompts.base import PromptSource, Split, check_split, side
from gapo_lit.registry import near_misses, register
from gapo_lit.types import Example

DRAWS = 50  # tries a question wanted, before a task counts as exhausted


@register(source="reasoning-gym, arXiv:2505.24760")
class ReasoningGymTask(PromptSource):
    """`size` distinct questions of one reasoning-gym task; `config` are that task's own settings.

    Train and validation share no question whatever their seeds: a hash of its text decides the split. suffix ends every
    question. `columns` hold what ReasoningGymReward needs to make the entry again: task, config and index.
    Raises ImportError without reasoning-gym, ValueError for an unknown task, bad settings or too few questions.
    """

    def __init__(
        self,
        name: str,
        split: Split = "train",
        size: int = 1024,
        seed: int = 0,
        config: dict[str, Any] | None = None,
        suffix: str = "",
        validation_fraction: float = 0.25,
    ) -> None:
        check_split(split, size, validation_fraction)
        self.name, self.split, self.size, self.suffix = name, split, size, suffix
        self.validation_fraction = validation_fraction
        self.config = {**(config or {}), "seed": seed, "size": size * DRAWS}
        self._examples = self._draw()

    def examples(self) -> Sequence[Example]:
        """See PromptSource."""
        return self._examples

    def _draw(self) -> list[Example]:
        dataset = create_dataset(self.name, self.config)
        drawn: dict[str, Example] = {}
        for index in range(len(dataset)):
            entry = dataset[index]
            question = entry["question"]
            if question in drawn or side(question, self.validation_fraction) != self.split:
                continue
            columns = {"task": self.name, "config": self.config, "index": index, "entry_question": question}
            drawn[question] = Example(
                f"{self.name}-{self.config['seed']}-{index}", question + self.suffix, str(entry["answer"]), columns
            )
            if len(drawn) == self.size:
                return list(drawn.values())
        raise ValueError(
            f"reasoning-gym task {self.name!r} gave {len(drawn)} distinct {self.split} questions in "
            f"{len(dataset)} draws, fewer than size={self.size}; give a smaller size or a config with more questions"
        )


def create_dataset(name: str, config: Mapping[str, Any]) -> Any:
    """A reasoning-gym dataset; errors as ReasoningGymTask."""
    try:
        import reasoning_gym
        from reasoning_gym.factory import DATASETS
    except ImportError as error:
        raise ImportError("reasoning-gym tasks need the package reasoning-gym: pip install reasoning-gym") from error
    if name not in DATASETS:
        raise ValueError(f"reasoning-gym has no task {name!r}{near_misses(name, DATASETS)}")
    try:
        return reasoning_gym.create_dataset(name, **config)
    except (TypeError, AssertionError) as error:
        raise ValueError(f"reasoning-gym task {name!r} does not take config={dict(config)}: {error}") from error
