"""A question as the words and signs that it is made of, however it is spaced, quoted and set in LaTeX."""

from __future__ import annotations

import re
import unicodedata

# Ways to write one thing: (what is found, what it becomes); the latter need no backslash.
_COMMANDS = (
    (re.compile(r"\\[dtc](frac|binom)(?![a-z])"), r"\\\1"),
    (re.compile(r"\\(le|ge|ne)q(?![a-z])"), r"\\\1"),
    (re.compile(r"\\[lc]dots(?![a-z])"), r"\\dots"),
    (re.compile(r"\\!"), ""),
)
_SIGNS = (("{,}", ","), ("...", "\\dots "), ("…", "\\dots "))
_LAYOUT = re.compile(
    r"\\\\|\\[,;:()\[\] ]|[${}~_`\"]"
    r"|\\(?:left|right|displaystyle|text|textbf|textit|mathrm|mathbf|mbox|operatorname|quad|qquad|limits)(?![a-z])"
)
_WORD = re.compile(r"\\[a-z]+|\.?\d+(?:\.\d+)*|[^\W\d_]+|(?<=\d)[,:](?=\d)|[^\w\s.,;:?\\]")
_QUOTES = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "−": "-", "–": "-", "×": "*"})


def words(question: str) -> tuple[str, ...]:
    """The words, numbers, LaTeX commands and operators of a question, in order.

    Case, spacing, dollars, braces, sentence punctuation and LaTeX commands that only set type are gone; what changes
    the meaning stays: operators, parentheses, and a dot, comma or colon between digits. Text of nothing but
    punctuation is its own only word.
    """
    text = unicodedata.normalize("NFC", question).casefold().translate(_QUOTES)
    for sign, becomes in _SIGNS:
        text = text.replace(sign, becomes)
    if "\\" in text:
        for command, becomes in _COMMANDS:
            text = command.sub(becomes, text)
    return tuple(_WORD.findall(_LAYOUT.sub(" ", text))) or tuple(question.split())


def normalised(question: str) -> str:
    """A question's words in one line, by which two rows are told to be one."""
    return " ".join(words(question))
