"""The command `gapo-lit`: train and evaluate from recipes, check a recipe, list the parts it may name."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from gapo_lit import __version__
from gapo_lit.registry import near_misses

COMMANDS = ("fit", "validate", "test", "branch", "components")

HELP = """\
usage: gapo-lit COMMAND [options]

  fit         train; --dry-run checks the whole recipe in seconds without loading a model
  validate    pass@k of a model or, with --ckpt_path, of a checkpoint, on the validation data
  test        the same on every benchmark of the recipe, which never choose a checkpoint
  branch      go on from a checkpoint with a part changed, and with --twin also unchanged
  components  the parts a recipe may name, with settings, defaults and sources (--kind clip for one kind)

  gapo-lit fit --config recipes/quickstart.yaml
  gapo-lit test --config recipes/quickstart.yaml --config recipes/benchmark/math500.yaml --out results/
  gapo-lit branch --from runs/quickstart/version_0/checkpoints/last.ckpt --config recipes/clip/gapo.yaml --twin
  gapo-lit fit --config recipes/base.yaml --config recipes/clip/gapo.yaml --model.clip.eps_max 5.25e-3 --dry-run

Later recipes lie over earlier ones, and flags over all of them. `gapo-lit COMMAND --help` lists a command's options.
"""


def main(args: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit status: 0, or 2 for a recipe or argument that cannot be used."""
    arguments = list(sys.argv[1:] if args is None else args)
    command = arguments[0] if arguments else "--help"
    if command in ("-h", "--help"):
        print(HELP, end="")
        return 0
    if command == "--version":
        print(f"gapo-lit {__version__}")
        return 0
    if command not in COMMANDS:
        return _refuse(f"there is no command {command!r}{near_misses(command, COMMANDS)}")
    # Imported here: help must not wait for torch.
    if command == "components":
        from gapo_lit.cli.components import show_components

        return show_components(arguments[1:])
    if command == "branch":
        from gapo_lit.cli.branch import run_branch

        return run_branch(arguments[1:])
    from gapo_lit.cli.run import run_command

    return run_command(command, arguments[1:])


def _refuse(message: str) -> int:
    print(f"gapo-lit: error: {message}", file=sys.stderr)
    return 2
