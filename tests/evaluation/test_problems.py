"""An evaluation counts problems, not batches, and a missing verdict is no wrong answer."""

from __future__ import annotations

from functools import partial

import pytest

from gapo_lit.evaluation import results
from gapo_lit.evaluation.problems import Evaluation, Problem, majority, problems_of
from gapo_lit.types import Completion, EvaluationBatch, Example, Prompt, Rollout, Verdict
from tests.fakes import ScriptedReward
from tests.test_batching import Alone

scalars = partial(results.scalars, figures=ScriptedReward().figures)


def answered(group: int, verdicts: str, answers: str = "", name: str | None = None) -> list[Rollout]:
    """One letter a sample: r(ight), w(rong), n(one); a letter of `answers` is what it answered, - nothing."""
    prompt = Prompt(Example(name or str(group), "?", "1"), (1,), "?")
    said = [None if a == "-" else a for a in answers or "-" * len(verdicts)]
    kinds = [
        Verdict.none("lost") if v == "n" else Verdict.of(v == "r", answer=a)
        for v, a in zip(verdicts, said, strict=True)
    ]
    completion = Completion((1, 2), (-1.0, -1.0), "", "stop")
    return [Rollout(prompt, completion, verdict, group, 0) for verdict in kinds]


def evaluated(*batches: EvaluationBatch) -> list[Problem]:
    evaluation = Evaluation()
    for batch in batches:
        evaluation.update(batch)
    return evaluation.compute(Alone())


def test_pass_at_k_is_a_mean_over_problems() -> None:
    first = EvaluationBatch("b", (0, 1), (*answered(0, "rwww"), *answered(1, "rrrr")))
    values = scalars(evaluated(first, EvaluationBatch("b", (2,), tuple(answered(0, "wwww")))))
    assert values["pass@1"] == pytest.approx((0.25 + 1 + 0) / 3)
    assert values["pass@2"] == pytest.approx((0.5 + 1 + 0) / 3)
    assert values["pass@4"] == pytest.approx(2 / 3)
    assert values["completions/mean_length"] == 2
    assert "majority@4" not in values


def test_a_problem_that_lacks_a_verdict_is_left_out_and_counted() -> None:
    values = scalars(evaluated(EvaluationBatch("b", (0, 1), (*answered(0, "rn"), *answered(1, "rw")))))
    assert values["pass@1"] == 0.5
    assert values["verdicts/none_fraction"] == 0.25
    assert values["reward"] == pytest.approx(2 / 3)


def test_powers_of_two_and_the_number_of_samples() -> None:
    values = scalars(evaluated(EvaluationBatch("b", (0,), tuple(answered(0, "rrrrrr")))))
    assert [k for k in values if k.startswith("pass@")] == ["pass@1", "pass@2", "pass@4", "pass@6"]


def test_an_evaluation_of_nothing_has_no_figures() -> None:
    assert scalars(evaluated(EvaluationBatch("b"))) == {}


def test_problems_are_in_order_whatever_ranks_answered_them() -> None:
    class Two(Alone):
        def gather(self, mine: list[Problem]) -> list[list[Problem]]:
            return [mine, problems_of(EvaluationBatch("b", (1,), tuple(answered(0, "r", name="other"))))]

    evaluation = Evaluation()
    evaluation.update(EvaluationBatch("b", (2, 0), (*answered(0, "w"), *answered(1, "r"))))
    assert [(p.position, p.id) for p in evaluation.compute(Two())] == [(0, "1"), (1, "other"), (2, "0")]


def test_a_problem_that_came_in_twice_is_an_error() -> None:
    batch = EvaluationBatch("b", (4,), tuple(answered(0, "r")))
    with pytest.raises(RuntimeError, match="1 problems were evaluated twice, the first of them b 4"):
        evaluated(batch, batch)


@pytest.mark.parametrize(
    ("verdicts", "answers", "right"),
    [
        ("rrw", "aab", 1.0),
        ("rww", "abb", 0.0),
        ("rw", "ab", 0.5),  # a tie is drawn by lot
        ("rwww", "abcd", 0.25),
        ("rrwww", "aa---", 1.0),  # samples without an answer do not vote
        ("ww", "--", None),
        ("rnn", "a--", 1.0),
    ],
)
def test_the_majority_is_the_answer_given_most_often(verdicts: str, answers: str, right: float | None) -> None:
    assert majority(answered(0, verdicts, answers)) == right


def test_a_problem_without_answers_counts_against_the_majority_where_others_have_some() -> None:
    values = scalars(evaluated(EvaluationBatch("b", (0, 1), (*answered(0, "rr", "aa"), *answered(1, "ww")))))
    assert values["majority@2"] == 0.5
