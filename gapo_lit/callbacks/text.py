"""Text that a model wrote, made safe to show."""

from __future__ import annotations

import json


def printable(text: str, keep: str = "") -> str:
    r"""`text` with everything that does not print escaped as in JSON, except the characters of `keep`.

    ESC and other control characters become `\u001b` and the like, and so do marks that turn the direction of text and
    lone surrogates: a terminal then shows them instead of obeying. Applied to a line of JSON it leaves the same JSON.
    """
    return "".join(c if c.isprintable() or c in keep else json.dumps(c)[1:-1] for c in text)
