"""Finding the program in what a policy wrote, in time linear in its length."""

from __future__ import annotations

import re
from typing import Literal

Extract = Literal["auto", "block", "completion"]
_PYTHON = {"python", "python3", "py", "py3"}
_FENCE = re.compile(r"^[ \t]{0,3}(`{3,}|~{3,})[ \t]*([\w+#.-]*)[^`\n]*$")


def last_block(text: str) -> str | None:
    """What the last fenced block holds that is marked as Python, else the last unmarked one; None without either.

    A block that nothing closes reaches to the end of the text. Only what follows the last </think> counts.
    """
    blocks: list[tuple[str, str]] = []
    fence, language, lines = "", "", []
    for line in text.rpartition("</think>")[2].splitlines():
        match = _FENCE.match(line)
        if match is None or (fence and not (match[1].startswith(fence) and not match[2])):
            lines.append(line)
        elif fence:
            blocks.append((language, "\n".join(lines)))
            fence = ""
        else:
            fence, language, lines = match[1], match[2].lower(), []
    if fence:
        blocks.append((language, "\n".join(lines)))
    for wanted in (_PYTHON, {""}):
        found = [body for name, body in blocks if name in wanted]
        if found:
            return found[-1] + "\n"
    return None


def program_of(text: str, extract: Extract, head: str, entry: str) -> tuple[str, int] | None:
    """The program in a completion, and how many of its characters come before the completion's own where the text after
    them may be cut to what is Python; None without a program.

    head: code that the completion was asked to go on with, "" where there is none. "block": the last fenced block,
    after `head` where there is one, so that what it imports and defines is there. "completion": the text goes on with
    `head`. "auto": a block where there is one, else a continuation.
    """
    block = None if extract == "completion" else last_block(text)
    if block is None:
        if extract == "block" or not text.strip():
            return None
        return head + text, len(head) if head else 0
    if not head:
        return block, 0
    if re.search(
        rf"^[ \t]*(?:async[ \t]+)?(?:def|class)[ \t]+{re.escape(entry)}\b|^{re.escape(entry)}\s*=", block, re.M
    ):
        return f"{head}\n    pass\n\n{block}" if _bare(head) else f"{head}\n\n{block}", 0
    return head + block, len(head)


def _bare(head: str) -> bool:
    """Whether a head stops after a function's first line, so that it needs a body to be Python."""
    return head.rstrip().endswith(":")
