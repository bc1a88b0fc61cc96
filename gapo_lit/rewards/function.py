"""A Python function of the user's as a reward: the row's columns are its arguments, and a number comes back."""

from __future__ import annotations

import base64
import json
import math
import pickle
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gapo_lit.registry import near_misses, register
from gapo_lit.rewards.base import LISTED, Reward, paired
from gapo_lit.rewards.pool import Answer, WorkerPool
from gapo_lit.types import Completion, Example, Prompt, Verdict, VerdictKind

Pair = tuple[Prompt, Completion]
NO_LIMIT = 1 << 40  # MB


@register(source="a function of your own")
class FunctionReward(Reward):
    """What `function` returns for a completion.

    function: "package.module:name", "path/to/file.py:name" (from the working directory) or the name of an entry point
    of the group `gapo_lit.rewards`; a function, or a class whose instances are called. Its parameters are filled by
    name: completion (text), prompt (text as asked), question, answer, and the columns of the row; **kwargs takes all
    columns. A function with a parameter `completions` is given lists instead: completions, prompts, questions, answers
    and the columns under their own names (None where a row lacks one), at most batch_size rows a call, so that groups
    whose size divides it stay whole. settings: arguments of the class, or fixed arguments of the function.

    It returns, for a batch in a list, a number (the reward: correct from `correct_at` on), a bool, None (no verdict),
    a Verdict, or a dict of numbers by name, which are logged as components and add up to the reward. Anything else, NaN
    and infinity included, gives that completion no verdict; so do an exception, sys.exit and a call of more than
    time_limit seconds or memory_mb of address space (None: no limit). A batch that fails is asked again row by row.
    Each kind of failure is a RuntimeWarning once, and verdicts/none_fraction counts them. Calls run in `workers`
    processes that stay up, so a class may hold state, but no order of calls is promised.
    Raises ValueError for a function that cannot be found or called so.
    """

    def __init__(
        self,
        function: str,
        settings: dict[str, Any] | None = None,
        correct_at: float = 1.0,
        batch_size: int = 64,
        workers: int = 2,
        time_limit: float = 10.0,
        memory_mb: int | None = 8192,
    ) -> None:
        if math.isnan(correct_at):
            raise ValueError("correct_at=nan makes nothing correct; give the least reward of a correct completion")
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size} asks about nothing; give at least 1")
        self.function, self.correct_at = function, correct_at
        given = {"function": _absolute(function), "settings": settings or {}}
        self.pool = WorkerPool(
            "gapo_lit.rewards.function_worker",
            workers=workers,
            time_limit=time_limit,
            memory_mb=NO_LIMIT if memory_mb is None else memory_mb,
            arguments=[json.dumps(given)],
        )
        task = self._described()
        self.required, self.batch = tuple(task["required"]), bool(task["batch"])
        self.taken = None if task["everything"] else {*self.required, *task["optional"]}
        self.batch_size = batch_size if self.batch else 1
        self._said: set[str] = set()

    def __call__(self, prompts: Sequence[Prompt], completions: Sequence[Completion]) -> list[Verdict]:
        """See Reward. Raises RuntimeError where the workers cannot start."""
        pairs = paired(prompts, completions)
        cut = [pairs[i : i + self.batch_size] for i in range(0, len(pairs), self.batch_size)]
        answers = self.pool.map([self._request(rows) for rows in cut])
        # One row of a batch may have failed it: asked one by one, each row answers for itself.
        failed = [i for i, rows in enumerate(cut) if len(rows) > 1 and "failure" in answers[i]]
        alone = iter(self.pool.map([self._request([pair]) for i in failed for pair in cut[i]]))
        verdicts: list[Verdict] = []
        for i, rows in enumerate(cut):
            single = [next(alone) for _ in rows] if i in failed else []
            if single and not any("failure" in answer for answer in single):
                self._report(answers[i], f"failed for {len(rows)} completions together and for none of them alone")
            for place, (prompt, _) in enumerate(rows):
                answer, at = (single[place], 0) if single else (answers[i], place)
                verdicts.append(self._verdict(prompt, answer, at))
        return verdicts

    def check(self, examples: Sequence[Example]) -> None:
        """ValueError for a parameter that rows have no column for, and for a value that no process can be handed."""
        known = set(self._values(_nobody(), {}))
        for name in (name for name in self.required if name not in known):
            lacking = [e.id for e in examples if name not in e.columns]
            if lacking:
                have = sorted(known.union(*(e.columns for e in examples)))
                some = ", ".join(lacking[:LISTED]) + (" …" if len(lacking) > LISTED else "")
                raise ValueError(
                    f"{self.function} has a parameter {name!r}, which {len(lacking)} of {len(examples)} rows have no "
                    f"column for ({some}){near_misses(name, {*have} - {name})}; a parameter is one of {', '.join(have)}"
                )
        for example in examples:
            for name, value in self._columns(example).items():
                if (problem := _pickling_problem(value)) is not None:
                    raise ValueError(
                        f"{example.id}: column {name!r} ({type(value).__name__}) cannot be handed to {self.function}, "
                        f"which runs in a process of its own: {problem}; take the column out or convert it"
                    )

    def close(self) -> None:
        """End the worker processes; a later call starts new ones."""
        self.pool.close()

    def _described(self) -> Answer:
        """What the function asks for; found out in a worker, as importing it may do anything."""
        try:
            (task,) = self.pool.map([{}])
        except RuntimeError as error:
            raise ValueError(f"{self.function}: {error}") from error
        problem = task.get("problem", task.get("failure"))
        if problem is not None:
            self.pool.close()
            raise ValueError(problem)
        return task

    def _request(self, pairs: Sequence[Pair]) -> Mapping[str, str]:
        columns = [self._columns(prompt.example) for prompt, _ in pairs]
        blank = dict.fromkeys(name for row in columns for name in row)
        rows = [self._values(pair, {**blank, **row}) for pair, row in zip(pairs, columns, strict=True)]
        return {"rows": base64.b64encode(pickle.dumps(rows)).decode()}

    def _columns(self, example: Example) -> Mapping[str, Any]:
        """The columns that the function looks at."""
        return {n: v for n, v in example.columns.items() if self.taken is None or n in self.taken}

    def _values(self, pair: Pair, columns: Mapping[str, Any]) -> dict[str, Any]:
        """What one row has to give, by name."""
        prompt, completion = pair
        own = {
            "completion": completion.text,
            "prompt": prompt.text,
            "question": prompt.example.question,
            "answer": prompt.example.answer,
        }
        return {**columns, **({f"{name}s": text for name, text in own.items()} if self.batch else own)}

    def _verdict(self, prompt: Prompt, answer: Answer, place: int) -> Verdict:
        said = answer if "failure" in answer else answer["outcomes"][place]
        if "failure" in said:
            self._report(said, f"gave no verdict for a completion of {prompt.id}")
            return Verdict.none(said["failure"])
        score = said["score"]
        if score is None:
            return Verdict.none(said["reason"])
        kind: VerdictKind = said["kind"] or ("correct" if score >= self.correct_at else "incorrect")
        return Verdict(kind, score, said["reason"], said["components"], said["answer"])

    def _report(self, failure: Answer, what: str) -> None:
        """Warn of the first failure of its kind."""
        kind = str(failure.get("kind", failure["failure"]))
        if kind in self._said:
            return
        self._said.add(kind)
        tail = "".join(f"\n  {_printable(line)}" for line in failure.get("trace", []))
        text = f"{self.function} {what}: {_printable(failure['failure'])}; said once for failures of this kind{tail}"
        warnings.warn(text, RuntimeWarning, stacklevel=2)


def _absolute(function: str) -> str:
    """A file's path from the root, so that a worker finds it whatever its working directory is."""
    place, _, name = function.rpartition(":")
    return f"{Path(place).expanduser().absolute()}:{name}" if place.endswith(".py") else function


def _nobody() -> Pair:
    return Prompt(Example("", "", ""), (), ""), Completion((), (), "", "stop")


def _pickling_problem(value: Any) -> str | None:
    try:
        pickle.dumps(value)
    except Exception as error:  # what a foreign object raises is up to it
        return f"{type(error).__name__}: {error}"
    return None


def _printable(text: str) -> str:
    """One line without characters that a terminal acts on: exceptions may quote what a policy wrote."""
    return "".join(c if c.isprintable() else " " for c in " ".join(text.split()))
