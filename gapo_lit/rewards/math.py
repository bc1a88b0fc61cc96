"""Mathematics, graded by math-verify in worker processes."""

from __future__ import annotations

from collections.abc import Sequence

from gapo_lit.registry import register
from gapo_lit.rewards.base import Reward, paired, refuse_golds
from gapo_lit.rewards.math_answer import TAIL, gold_problem
from gapo_lit.rewards.pool import WorkerPool
from gapo_lit.rewards.text import tail
from gapo_lit.types import Completion, Example, Prompt, Verdict


@register(source="math-verify 0.9, github.com/huggingface/Math-Verify")
class MathVerify(Reward):
    r"""1 where the last answer of a completion is mathematically equal to the gold answer, else 0.

    The answer is the last \boxed{…} (with the boxes listed beside it), else what follows the last "answer is" or
    "####", else the last formula or number. Verdicts come from `workers` processes with `time_limit` seconds of wall
    clock each and `memory_mb` of address space; one that runs over or crashes is `Verdict.none`. An answer whose value
    would have more than 100,000 digits is incorrect unevaluated. Callable from any thread.
    """

    def __init__(self, workers: int = 2, time_limit: float = 10.0, memory_mb: int = 2048) -> None:
        self.pool = WorkerPool(
            "gapo_lit.rewards.math_worker", workers=workers, time_limit=time_limit, memory_mb=memory_mb
        )

    def __call__(self, prompts: Sequence[Prompt], completions: Sequence[Completion]) -> list[Verdict]:
        """See Reward. Raises RuntimeError where the workers cannot start, for instance without math-verify."""
        requests = [{"gold": p.example.answer, "text": tail(c.text, TAIL)} for p, c in paired(prompts, completions)]
        answers = self.pool.map(requests)
        return [Verdict.none(a["failure"]) if "failure" in a else Verdict.of(a["right"], a["reason"]) for a in answers]

    def check(self, examples: Sequence[Example]) -> None:
        """ValueError naming rows whose gold is empty or cut off; golds that are no formula are compared as text."""
        refuse_golds(examples, gold_problem, "drop these rows or mend their answers")

    def close(self) -> None:
        """End the worker processes; a later call starts new ones."""
        self.pool.close()
