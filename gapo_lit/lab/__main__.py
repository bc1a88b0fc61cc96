"""`python -m gapo_lit.lab`: the laboratory's model folder, made in about a minute, or found as it was made before."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from gapo_lit.lab.warm_start import WarmStart, warm_start


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m gapo_lit.lab", description=__doc__)
    parser.add_argument("--to", type=Path, default=Path("models/lab"), help="the folder to make (default: %(default)s)")
    for name in ("steps", "seed"):
        default = getattr(WarmStart(), name)
        parser.add_argument(
            f"--{name}", type=int, default=default, help="of the supervised part (default: %(default)s)"
        )
    given = parser.parse_args(arguments)
    begun = time.monotonic()
    try:
        made = warm_start(WarmStart(steps=given.steps, seed=given.seed), given.to, _progress)
    except (OSError, ValueError) as error:
        print(f"gapo_lit.lab: {error}", file=sys.stderr)
        return 1
    print(f"{given.to} made in {time.monotonic() - begun:.0f} s" if made else f"{given.to} is there already")
    return 0


def _progress(step: int, loss: float) -> None:
    print(f"supervised step {step} · loss {loss:.3f} nats a token", flush=True)


if __name__ == "__main__":
    sys.exit(main())
