"""The protocol of every prompt source, and how generated tasks keep training and validation apart."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal

from gapo_lit.prompts.words import normalised
from gapo_lit.registry import kind
from gapo_lit.types import Example

__all__ = ["PromptSource", "Split", "check_side", "check_split", "normalised", "side"]

Split = Literal["train", "validation"]


@kind("prompts")
class PromptSource(ABC):
    """A set of questions with gold answers."""

    @abstractmethod
    def examples(self) -> Sequence[Example]:
        """All of them, the same ones in the same order at every call, with unique ids."""

    @property
    def counts(self) -> str:
        """What the source read and left out, as words for a log line; empty where it left out nothing."""
        return ""


def side(question: str, validation_fraction: float) -> Split:
    """The split a question belongs to, decided by a hash of its canonical text alone.

    So the two splits share no question whatever their seeds and sizes are; about validation_fraction of all questions
    are validation's.
    """
    digest = hashlib.sha256(question.encode("utf-8", "surrogatepass")).digest()
    return "validation" if int.from_bytes(digest[:8], "big") < validation_fraction * 2**64 else "train"


def check_split(split: str, size: int, validation_fraction: float) -> None:
    """ValueError for a split, size or fraction that no generated task can have."""
    if size < 1:
        raise ValueError(f"size={size} asks for no question; give at least 1")
    check_side("split", split, validation_fraction)


def check_side(setting: str, split: str, validation_fraction: float) -> None:
    """ValueError for what is no split, or a fraction that leaves one empty."""
    if split not in ("train", "validation"):
        raise ValueError(f"{setting}={split!r} is neither 'train' nor 'validation'; give one of the two")
    if not 0 < validation_fraction < 1:
        raise ValueError(
            f"validation_fraction={validation_fraction} leaves one split empty; "
            "give a number between 0 and 1, the same for both splits"
        )
