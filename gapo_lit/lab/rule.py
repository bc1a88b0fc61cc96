"""What the laboratory's policy is asked, and how often its warm start gets it right: pure arithmetic on strings."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

STATES = "abcdefghijklmnop"
OPERATIONS = "ABCD"
ASK = "="


@dataclass(frozen=True)
class Rule:
    """Four operations on sixteen states, and how reliably each of the 64 facts is taught.

    An operation maps states to states. A question such as "cBDA=" starts at state c and applies B, D and A in turn; its
    answer holds the state after each of them, so its length is the number of operations. A *fact* is what one operation
    makes of one state. table: fact → the right state. slip: fact → the one wrong state given in its place. reliability:
    fact → chance that a supervised answer has it right.
    So a question's chance is the product of its facts': difficulty comes of composition, and nothing in a prompt shows
    it. Each operation has a habit, a permutation: a fact of a reliability of at least 1/2 follows it and slips out of
    it; the others are exceptions, and slip into it. So what is right for most questions is wrong for some.
    """

    table: dict[str, str]
    slip: dict[str, str]
    reliability: dict[str, float]

    @classmethod
    def drawn(cls, seed: int, reliabilities: Sequence[float]) -> Rule:
        """A rule with random habits; the reliabilities are dealt out to equally many facts each, at random.

        Raises ValueError for a reliability outside (0, 1].
        """
        if not reliabilities or not all(0 < q <= 1 for q in reliabilities):
            raise ValueError(f"reliabilities={list(reliabilities)} must be chances above 0 and at most 1")
        rng = random.Random(seed)
        facts = [operation + state for operation in OPERATIONS for state in STATES]
        habit, other = _images(rng), _images(rng)
        # Where the two agree a slip would be right by accident: the state after it is as wrong as any other.
        other = {fact: _after(state) if state == habit[fact] else state for fact, state in other.items()}
        dealt = {fact: reliabilities[i % len(reliabilities)] for i, fact in enumerate(rng.sample(facts, len(facts)))}
        table = {fact: habit[fact] if dealt[fact] >= 0.5 else other[fact] for fact in facts}
        slip = {fact: other[fact] if dealt[fact] >= 0.5 else habit[fact] for fact in facts}
        return cls(table, slip, {fact: dealt[fact] for fact in facts})

    def answer(self, question: str) -> str:
        """The states that the question passes through, without the first."""
        return "".join(self.table[fact] for fact in self.facts(question))

    def facts(self, question: str) -> Iterator[str]:
        """The facts that a right answer needs, in order."""
        state = question[0]
        for operation in question[1:].removesuffix(ASK):
            yield operation + state
            state = self.table[operation + state]

    def chance(self, question: str) -> float:
        """Probability that `attempt` answers right: the product of the reliabilities of the facts needed."""
        return math.prod(self.reliability[fact] for fact in self.facts(question))

    def attempt(self, question: str, rng: random.Random) -> str:
        """One supervised answer: each step slips with its fact's chance, and the next goes on from what was written."""
        state, written = question[0], []
        for operation in question[1:].removesuffix(ASK):
            fact = operation + state
            state = self.table[fact] if rng.random() < self.reliability[fact] else self.slip[fact]
            written.append(state)
        return "".join(written)


def draw_question(rng: random.Random, lengths: Sequence[int]) -> str:
    """A question of one of these numbers of operations, each as likely."""
    return rng.choice(STATES) + "".join(rng.choices(OPERATIONS, k=rng.choice(lengths))) + ASK


def _images(rng: random.Random) -> dict[str, str]:
    """What a random permutation of the states for each operation makes of each state."""
    images = {operation: rng.sample(STATES, len(STATES)) for operation in OPERATIONS}
    return {operation + state: images[operation][i] for operation in OPERATIONS for i, state in enumerate(STATES)}


def _after(state: str) -> str:
    return STATES[(STATES.index(state) + 1) % len(STATES)]
