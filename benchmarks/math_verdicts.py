"""Verdicts per second of MathVerify: `python benchmarks/math_verdicts.py [workers] [rows.jsonl]`.

Without a file it grades made-up integers, as in GSM8K, and fractions, in a sentence or a box; with one, also the file's
own `answer` column. Every third answer is another row's. Starting the workers is not counted.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path

from gapo_lit.rewards.math import MathVerify
from gapo_lit.types import Completion, Example, Prompt

COUNT = 2000
WORDINGS = ("So 48 + 24 clips.\n#### @", r"Hence the total is $\boxed{@}$.", "The answer is @.", "which leaves $@$.")
STEPS = "First we add the numbers, then we divide by 2 and get a half of it. " * 15


def main() -> None:
    """Print one line a kind of answer."""
    workers = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    rng = random.Random(0)
    sets = {"integers": [str(rng.randrange(10_000)) for _ in range(COUNT)]}
    sets["fractions"] = [rf"\frac{{{rng.randrange(1, 99)}}}{{{rng.randrange(1, 99)}}}" for _ in range(COUNT)]
    if len(sys.argv) > 2:
        lines = Path(sys.argv[2]).read_text(encoding="utf-8").splitlines()
        sets[sys.argv[2]] = [json.loads(line)["answer"] for line in lines if line.strip()]
    reward = MathVerify(workers=workers)
    try:
        for name, golds in sets.items():
            prompts = [Prompt(Example(str(i), "?", gold), (1,), "?") for i, gold in enumerate(golds)]
            said = [golds[(i + 1) % len(golds)] if i % 3 == 0 else gold for i, gold in enumerate(golds)]
            texts = [STEPS + WORDINGS[i % 4].replace("@", answer) for i, answer in enumerate(said)]
            completions = [Completion((1,), (0.0,), text, "stop") for text in texts]
            reward(prompts[:workers], completions[:workers])
            start = time.perf_counter()
            verdicts = reward(prompts, completions)
            seconds = time.perf_counter() - start
            kinds = {kind: sum(v.kind == kind for v in verdicts) for kind in ("correct", "incorrect", "none")}
            print(f"{name}: {len(verdicts) / seconds:.0f} verdicts/s with {workers} workers, {kinds}")
    finally:
        reward.close()


if __name__ == "__main__":
    main()
