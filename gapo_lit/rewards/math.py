"""Mathematics, graded by math-verify in worker processes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from gapo_lit.registry import register
from gapo_lit.rewards.base import Reward, paired, refuse_golds
from gapo_lit.rewards.math_answer import TAIL, gold_problem
from gapo_lit.rewards.pool import Answer, WorkerPool
from gapo_lit.rewards.text import tail
from gapo_lit.types import Completion, Example, Prompt, Verdict


@register(source="math-verify 0.9, github.com/huggingface/Math-Verify")
class MathVerify(Reward):
    r"""1 where the last answer of a completion is mathematically equal to the gold answer, else 0.

    The answer is the last \boxed{…} that holds something (with the boxes listed beside it), else what follows the last
    "answer is" or "####", else the last formula or number; a completion that ends inside its only box gives none. What
    counts as equal is said in gapo_lit.rewards.math_same.

    Verdicts come from `workers` processes with `memory_mb` of address space. A verdict may take `time_limit` seconds of
    processor time, and as many of wall clock; one that runs over or crashes is `Verdict.none`. After each that runs
    over, the others that a worker grades in the same call have half the time, down to a hundredth, so that a batch of
    4,096 such completions costs minutes; once overruns of the wall clock have cost 30 times time_limit, the rest of the
    call is `Verdict.none`.

    What would be costly is incorrect unevaluated, unless it is the gold's own text: a value of more than 100,000
    digits, a sum or product of more than 1,000 terms, and whatever is left as an integral, limit or derivative.
    Callable from any thread.
    """

    def __init__(self, workers: int = 2, time_limit: float = 10.0, memory_mb: int = 2048) -> None:
        self.time_limit = time_limit
        self.pool = WorkerPool(
            "gapo_lit.rewards.math_worker",
            workers=workers,
            time_limit=time_limit,
            memory_mb=memory_mb,
            budget=30 * time_limit,
        )
        self._batches = count()

    def __call__(self, prompts: Sequence[Prompt], completions: Sequence[Completion]) -> list[Verdict]:
        """See Reward. Raises RuntimeError where the workers cannot start, for instance without math-verify."""
        common = {"limit": self.time_limit, "batch": next(self._batches)}
        requests = [
            {"gold": p.example.answer, "text": tail(c.text, TAIL), **common} for p, c in paired(prompts, completions)
        ]
        return [_verdict(answer) for answer in self.pool.map(requests)]

    def check(self, examples: Sequence[Example]) -> None:
        """ValueError naming rows whose gold is empty or cut off; golds that are no formula are compared as text."""
        refuse_golds(examples, gold_problem, "drop these rows or mend their answers")

    def close(self) -> None:
        """End the worker processes; a later call starts new ones."""
        self.pool.close()


def _verdict(answer: Answer) -> Verdict:
    if "failure" in answer:
        return Verdict.none(answer["failure"])
    return Verdict.of(answer["right"], answer["reason"], answer["answer"])
