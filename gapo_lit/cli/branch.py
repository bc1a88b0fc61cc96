"""`gapo-lit branch`: go on from a checkpoint of a run with a part changed and, if asked, beside it unchanged.

A branch is a `fit` whose recipe is its parent's with others laid over it, resumed from the parent's checkpoint: data
order, random state, optimizer and schedule go on exactly. `lineage` in its recipe says where it comes from.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml

from gapo_lit.cli import summary
from gapo_lit.cli.flags import CommandLine, with_flags
from gapo_lit.cli.recipe import CLASS, SETTINGS, RecipeError, Tree, overlay, own_settings
from gapo_lit.cli.run import run_command
from gapo_lit.files import replacing

UNCHANGED = "unchanged"
_NOT_PARTS = ("lineage", "ckpt_path", "trainer.logger")  # differ between any two runs


def run_branch(arguments: Sequence[str]) -> int:
    """Start the branch, and its twin after it; returns the exit status."""
    parser = argparse.ArgumentParser(prog="gapo-lit branch", description=__doc__, allow_abbrev=False)
    parser.add_argument("--from", dest="checkpoint", required=True, help="a checkpoint in a run folder")
    parser.add_argument("--config", "-c", action="append", default=[], help="what to change; bases are left out")
    parser.add_argument("--out", help="folder of the new runs (the parent's own neighbours by default)")
    parser.add_argument("--twin", action="store_true", help="then go on unchanged, too, to compare with")
    given, flags = parser.parse_known_args(arguments)
    try:
        runs = [_planned(given, flags)]
        if given.twin and runs[0][0] != UNCHANGED:
            unchanged = argparse.Namespace(checkpoint=given.checkpoint, config=[], out=given.out)
            runs.append(_planned(unchanged, []))
    except RecipeError as error:
        summary.refusal(str(error))
        return 2
    if len(runs) == 1:
        return run_command("fit", runs[0][1])
    for name, command in runs:  # each in a process of its own: an engine may leave things behind in one
        print(f"{name}:", flush=True)
        status = subprocess.run([sys.executable, "-m", "gapo_lit.cli", "fit", *command], check=False).returncode
        if status:
            return status
    return 0


def _planned(given: argparse.Namespace, flags: Sequence[str]) -> tuple[str, list[str]]:
    """What a run is called, and the arguments of `fit` for it; its recipe is written where the run will be."""
    checkpoint = Path(given.checkpoint).expanduser().resolve()
    folder = parent_folder(checkpoint)
    parent = own_settings(folder / "config.yaml")
    tree = parent
    for path in given.config:
        tree = overlay(tree, own_settings(Path(path)))
    changes = changed(parent, with_flags(tree, CommandLine((), tuple(flags)))[1])
    name = "+".join(Path(path).stem for path in given.config) or ("flags" if changes else UNCHANGED)
    out = folder.parents[1] if given.out is None else Path(given.out).expanduser()
    tree = tree | {"lineage": lineage(folder, checkpoint, changes), "ckpt_path": None}
    tree["trainer"] = tree.get("trainer", {}) | {"logger": _loggers(tree, out, name)}
    recipe = out / f"{name}.yaml"
    with replacing(recipe) as file:
        file.write_text(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return name, ["--config", str(recipe), *flags, "--ckpt_path", str(checkpoint)]


def parent_folder(checkpoint: Path) -> Path:
    """The run folder that a checkpoint lies in, told by its recipe. Raises RecipeError where there is none."""
    if not checkpoint.exists():
        raise RecipeError(
            f"there is no checkpoint {checkpoint}; give one of a run folder, such as checkpoints/last.ckpt"
        )
    for folder in list(checkpoint.parents)[:3]:
        if (folder / "config.yaml").is_file():
            return folder
    raise RecipeError(f"{checkpoint} lies in no run folder (none above it holds config.yaml); give one that does")


def lineage(folder: Path, checkpoint: Path, changes: dict[str, list[Any]]) -> dict[str, Any]:
    """Where a branch comes from: the parent's run folder, the checkpoint, its step and what was changed."""
    return {"parent": str(folder), "checkpoint": str(checkpoint), "step": step_of(checkpoint), "changed": changes}


def step_of(checkpoint: Path) -> int:
    """Optimizer steps that a checkpoint has seen; a sharded one is a folder with its counts in meta.pt."""
    file = checkpoint / "meta.pt" if checkpoint.is_dir() else checkpoint
    try:
        return int(torch.load(file, map_location="cpu", mmap=True, weights_only=False)["global_step"])
    except (OSError, RuntimeError, KeyError, EOFError, ValueError) as error:
        raise RecipeError(f"{file} is no checkpoint of a run: {error}") from error


def changed(parent: Tree, branch: Tree) -> dict[str, list[Any]]:
    """Setting → [the parent's value, the branch's], of those that differ; null where one has none."""
    before, after = dict(_leaves(parent, "")), dict(_leaves(branch, ""))
    return {
        key: [before.get(key), after.get(key)]
        for key in sorted({*before, *after})
        if before.get(key) != after.get(key) and not key.startswith(_NOT_PARTS)
    }


def _leaves(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(node, dict):
        yield path, node.rpartition(".")[2] if path.endswith(CLASS) and isinstance(node, str) else node
        return
    for key, value in node.items():
        yield from _leaves(value, path if key == SETTINGS else f"{path}.{key}" if path else str(key))


def _loggers(tree: Tree, out: Path, name: str) -> list[Any]:
    """The recipe's loggers, with a run folder under `out`."""
    given = tree.get("trainer", {}).get("logger")
    others = given if isinstance(given, list) else [] if given in (None, True, False) else [given]
    own = {CLASS: "gapo_lit.callbacks.RunLogger", SETTINGS: {"save_dir": str(out), "name": name}}
    return [own, *(logger for logger in others if not str(logger.get(CLASS)).endswith("RunLogger"))]
