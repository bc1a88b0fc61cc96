"""Rewards of reasoning-gym's own verifiers, run in worker processes: several of them evaluate what the policy wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from gapo_lit.registry import register
from gapo_lit.rewards.base import Reward, paired
from gapo_lit.rewards.math_answer import TAIL, last_answer, tidy
from gapo_lit.rewards.pool import Answer, WorkerPool
from gapo_lit.rewards.text import tail
from gapo_lit.types import Completion, Example, Prompt, Verdict

Extract = Literal["answer", "tag", "text"]


@register(source="reasoning-gym score_answer, arXiv:2505.24760")
class ReasoningGymReward(Reward):
    """The score in [0, 1] that a task's own verifier gives to the extracted answer; correct where it is 1.

    extract: "tag" takes the last <answer>…</answer>; "answer" takes that, else the last answer given as MathVerify
    does; "text" takes the whole completion. Nothing extracted scores 0. workers, time_limit and memory_mb as in
    MathVerify. Examples must come from ReasoningGymTask.
    """

    def __init__(
        self, extract: Extract = "answer", workers: int = 2, time_limit: float = 10.0, memory_mb: int = 2048
    ) -> None:
        if extract not in get_args(Extract):
            raise ValueError(f"extract={extract!r} is unknown; give one of {', '.join(get_args(Extract))}")
        self.extract = extract
        self.pool = WorkerPool(
            "gapo_lit.rewards.reasoning_gym_worker", workers=workers, time_limit=time_limit, memory_mb=memory_mb
        )

    def __call__(self, prompts: Sequence[Prompt], completions: Sequence[Completion]) -> list[Verdict]:
        """See Reward."""
        extracted = [(p.example, self._extracted(c.text)) for p, c in paired(prompts, completions)]
        graded = iter(self.pool.map([{**e.columns, "answer": a} for e, a in extracted if a is not None]))
        return [Verdict.of(False, "no answer") if a is None else _verdict(next(graded)) for _, a in extracted]

    def check(self, examples: Sequence[Example]) -> None:
        """ValueError for rows that are no reasoning-gym entries."""
        strangers = [e.id for e in examples if not {"task", "config", "index"} <= e.columns.keys()]
        if strangers:
            raise ValueError(
                f"rows {', '.join(strangers[:10])} are no reasoning-gym entries; "
                "take another reward, or prompts from ReasoningGymTask"
            )

    def close(self) -> None:
        """End the worker processes; a later call starts new ones."""
        self.pool.close()

    def _extracted(self, text: str) -> str | None:
        text = tail(text, TAIL)
        if self.extract == "text":
            return text.strip() or None
        before, closing, _ = text.rpartition("</answer>")
        if closing and "<answer>" in before:
            return before.rpartition("<answer>")[2].strip() or None
        answer = last_answer(text) if self.extract == "answer" else None
        return None if answer is None else tidy(answer)


def _verdict(answer: Answer) -> Verdict:
    if "failure" in answer:
        return Verdict.none(answer["failure"])
    score = answer["score"]
    return Verdict("correct" if score == 1 else "incorrect", score)
