"""Questions that training data share with what a policy is judged on: equal ones, and ones that overlap.

Overlap follows the custom of n-gram decontamination (13 words, phrases common to more than 10 texts left aside:
arXiv:2005.14165, appendix C), with phrases found common by their parts, so that two tasks of one template, which differ
in their numbers only, do not count as one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gapo_lit.prompts.words import words
from gapo_lit.types import Example

Kind = Literal["equal", "overlap"]
Contamination = Literal["refuse", "warn", "drop"]
Hashes = NDArray[np.uint64]
Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]

COMMON = 10  # a phrase of more questions than this is nobody's own
SHORTEST = 8  # words from which on a question that stands whole in another overlaps it
_PRIME = np.uint64(0x9E3779B97F4A7C15)  # odd, so that multiplying loses nothing


@dataclass(frozen=True)
class Shared:
    """A training row that is, or overlaps, a row of another set.

    share: the part of the two questions' own n-grams that they share, counted on the one that has fewer; 1 where they
    are equal.
    """

    train: str
    set: str
    id: str
    kind: Kind
    share: float


@dataclass
class _Text:
    """A distinct question and the rows that hold it."""

    words: tuple[str, ...]
    train: list[str] = field(default_factory=list)
    others: list[tuple[str, str]] = field(default_factory=list)


def dropped(found: Iterable[Shared]) -> frozenset[str]:
    """The ids of training rows that are to be left out."""
    return frozenset(row.train for row in found)


def find_shared(
    train: Iterable[Example], others: Mapping[str, Iterable[Example]], n: int = 13, least: float = 0.3
) -> tuple[Shared, ...]:
    """Rows of training that are also, or nearly, rows of the other sets, in training order.

    Questions are compared as `words` has them. Two are equal where all words are; they overlap where they share n words
    in a row, at least half of them outside phrases of n // 2 words that many questions have (more than 10, or a tenth
    of all where that is fewer, and never only 2), and a share of such n-grams of at least `least`. A question shorter
    than n overlaps one in which it stands whole, if it has at least 8 words, 6 of them without digits or signs; still
    shorter ones can only be equal. Raises ValueError for n below 8, or least outside [0, 1].
    """
    if n < SHORTEST:
        raise ValueError(f"n={n} words in a row are shared by questions that have nothing in common; give at least 8")
    if not 0 <= least <= 1:
        raise ValueError(f"least={least} is no share; give a number from 0 to 1")
    order, texts = _distinct(train, others)
    pairs = {(i, i): 1.0 for i, text in enumerate(texts) if text.train and text.others}
    corpus = _Corpus(texts)
    pairs |= {pair: 1.0 for pair in _contained(corpus, n) if pair not in pairs}
    pairs |= {pair: s for pair, s in _overlapping(corpus, n).items() if s >= least and pair not in pairs}
    found = [
        Shared(row, name, id, "equal" if a == b else "overlap", share)
        for (a, b), share in pairs.items()
        for row in texts[a].train
        for name, id in texts[b].others
    ]
    return tuple(sorted(found, key=lambda s: (order[s.train], s.kind, -s.share)))


def _distinct(train: Iterable[Example], others: Mapping[str, Iterable[Example]]) -> tuple[dict[str, int], list[_Text]]:
    order: dict[str, int] = {}
    texts: dict[tuple[str, ...], _Text] = {}
    for example in train:
        order[example.id] = len(order)
        key = words(example.question)
        texts.setdefault(key, _Text(key)).train.append(example.id)
    for name, examples in others.items():
        for example in examples:
            key = words(example.question)
            texts.setdefault(key, _Text(key)).others.append((name, example.id))
    return order, list(texts.values())


class _Corpus:
    """All texts as one row of numbered words, so that n-grams are hashed for all of them at once.

    text (W,): which text a word is of. A window is named by the position of its first word.
    """

    def __init__(self, texts: Sequence[_Text]) -> None:
        self.texts = texts
        self.lengths = np.array([len(t.words) for t in texts], dtype=np.int64)
        self.text: Numbers = np.repeat(np.arange(len(texts)), self.lengths)
        every = list(chain.from_iterable(t.words for t in texts))
        number = {word: i for i, word in enumerate(dict.fromkeys(every))}
        spread = np.fromiter(map(number.__getitem__, every), dtype=np.uint64, count=len(every)) + np.uint64(1)
        spread *= _PRIME
        self.codes: Hashes = spread ^ (spread >> np.uint64(29))
        self.in_train: Flags = np.array([bool(t.train) for t in texts], dtype=bool)
        self.in_others: Flags = np.array([bool(t.others) for t in texts], dtype=bool)

    def windows(self, n: int) -> tuple[Numbers, Hashes]:
        """Positions and hashes of every n words in a row that lie in one text."""
        count = max(0, len(self.codes) - n + 1)
        hashes = np.zeros(count, dtype=np.uint64)
        for i in range(n):
            hashes = hashes * _PRIME + self.codes[i : i + count]
        at = np.flatnonzero(self.text[:count] == self.text[n - 1 : n - 1 + count])
        return at, hashes[at]

    def own(self, phrase: int) -> Flags:
        """(W,): whether a word lies outside every phrase that is common."""
        at, hashes = self.windows(phrase)
        common = at[_in_many(hashes, self.text[at], self._many)]
        edges = np.zeros(len(self.codes) + 1, dtype=np.int64)
        np.add.at(edges, common, 1)
        np.add.at(edges, common + phrase, -1)
        covered: Flags = np.cumsum(edges[:-1]) > 0
        return ~covered

    @property
    def _many(self) -> int:
        return min(COMMON, max(2, len(self.texts) // 10))


def _in_many(hashes: Hashes, text: Numbers, many: int) -> Flags:
    """Whether each hash is found in more than `many` texts."""
    order = np.lexsort((text, hashes))
    h, t = hashes[order], text[order]
    first = np.ones(len(h), dtype=bool)
    first[1:] = h[1:] != h[:-1]
    group = np.cumsum(first) - 1
    distinct = first.copy()
    distinct[1:] |= t[1:] != t[:-1]
    counts = np.bincount(group, weights=distinct)
    flags = np.zeros(len(h), dtype=bool)
    flags[order] = counts[group] > many
    return flags


def _overlapping(corpus: _Corpus, n: int) -> dict[tuple[int, int], float]:
    """(training text, other text) → the share of their own n-grams that they have in common, where it is above 0."""
    at, grams = corpus.windows(n)
    text = corpus.text[at]
    if not _on_both_sides(corpus, grams, text).any():
        return {}
    own = np.concatenate([[0], np.cumsum(corpus.own(n // 2))])
    counted = 2 * (own[at + n] - own[at]) >= n
    grams, text = grams[counted], text[counted]
    sizes = np.bincount(text, minlength=len(corpus.texts))
    both = _on_both_sides(corpus, grams, text)
    holders: dict[int, set[int]] = {}
    for gram, holder in zip(grams[both].tolist(), text[both].tolist(), strict=True):
        holders.setdefault(gram, set()).add(holder)
    shared = Counter(pair for held in holders.values() for pair in _crossed(corpus, held))
    return {(a, b): count / int(min(sizes[a], sizes[b])) for (a, b), count in shared.items()}


def _on_both_sides(corpus: _Corpus, grams: Hashes, text: Numbers) -> Flags:
    """Whether each n-gram is found in training texts and in others."""
    others = _among(grams, np.unique(grams[corpus.in_others[text]]))
    train = np.unique(grams[others & corpus.in_train[text]])
    others[others] = _among(grams[others], train)
    return others


def _among(hashes: Hashes, known: Hashes) -> Flags:
    """Whether each hash is one of `known`, which is sorted and small: `np.isin` would sort them all."""
    if not len(known):
        return np.zeros(len(hashes), dtype=bool)
    flags: Flags = known[np.minimum(np.searchsorted(known, hashes), len(known) - 1)] == hashes
    return flags


def _crossed(corpus: _Corpus, held: Iterable[int]) -> list[tuple[int, int]]:
    """Pairs of a training text and another."""
    return [(a, b) for a in held if corpus.in_train[a] for b in held if corpus.in_others[b] and a != b]


def _contained(corpus: _Corpus, n: int) -> list[tuple[int, int]]:
    """(training text, other text) where one is shorter than n and stands whole in the other."""
    pairs: list[tuple[int, int]] = []
    for length in range(SHORTEST, n):
        short = [int(i) for i in np.flatnonzero(corpus.lengths == length) if _wordy(corpus.texts[i].words)]
        if not short:
            continue
        at, hashes = corpus.windows(length)
        starts = np.concatenate([[0], np.cumsum(corpus.lengths)])[short]
        of = dict(zip(hashes[np.searchsorted(at, starts)].tolist(), short, strict=True))
        hits = _among(hashes, np.sort(np.fromiter(of, dtype=np.uint64)))
        within: dict[int, set[int]] = {}
        for gram, holder in zip(hashes[hits].tolist(), corpus.text[at[hits]].tolist(), strict=True):
            within.setdefault(of[gram], set()).add(holder)
        for i, holders in within.items():
            if len(holders) <= COMMON:
                pairs += [(a, b) for b in holders for a, b in ((i, b), (b, i)) if a != b]
    return [(a, b) for a, b in pairs if corpus.in_train[a] and corpus.in_others[b]]


def _wordy(found: Sequence[str]) -> bool:
    return sum(word.isalpha() for word in found) >= SHORTEST - 2
