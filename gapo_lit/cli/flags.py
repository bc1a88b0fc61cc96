"""The command line beside `--config`: settings given as flags, read far enough to check their names."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gapo_lit.cli.recipe import CLASS, SETTINGS, RecipeError, Tree, class_of, same_class

CONFIG = ("--config", "-c")


@dataclass(frozen=True)
class CommandLine:
    """Recipes in order, and every other argument as it was written."""

    recipes: tuple[str, ...]
    flags: tuple[str, ...]

    @classmethod
    def split(cls, arguments: Sequence[str]) -> CommandLine:
        """Take the recipes out. Flags lie over all of them, wherever they stand."""
        recipes, flags = [], []
        rest = iter(arguments)
        for argument in rest:
            name, equals, value = argument.partition("=")
            if name in CONFIG:
                path = value if equals else next(rest, None)
                if path is None:
                    raise RecipeError(f"{name} needs a file, such as {name} recipes/quickstart.yaml")
                recipes.append(path)
            else:
                flags.append(argument)
        return cls(tuple(recipes), tuple(flags))

    @property
    def name(self) -> str:
        """What the run is called: its first recipe."""
        return Path(self.recipes[0]).stem if self.recipes else "run"

    @property
    def asks_for_help(self) -> bool:
        """Whether this is a question about options, and nothing to run."""
        return any(flag == "-h" or flag.partition("=")[0].endswith((".help", "--help")) for flag in self.flags)

    def settings(self) -> list[tuple[list[str], Any]]:
        """(path, value) of each flag of the form `--a.b value` or `--a.b=value`."""
        found = []
        for index, argument in enumerate(self.flags):
            if not argument.startswith("--") or len(argument) == 2:
                continue
            name, equals, value = argument[2:].partition("=")
            if name.rpartition(".")[2] == "help" or name == "print_config":
                continue
            if not equals:
                following = self.flags[index + 1 : index + 2]
                value = following[0] if following and not following[0].startswith("--") else ""
            found.append((name.split("."), _value(value)))
        return found


def with_flags(tree: Tree, line: CommandLine) -> tuple[Tree, Tree]:
    """Two copies of the tree: one without settings of classes that a flag replaces, and one with all flags applied."""
    without, applied = deepcopy(tree), deepcopy(tree)
    for path, value in line.settings():
        node, key = _parent(without, path, create=False)
        if node is not None and isinstance(value, str):
            if class_of(node.get(key)) is not None and not same_class(class_of(node[key]), value):
                node[key] = {CLASS: value}
            elif key == CLASS and CLASS in node and not same_class(node[CLASS], value):
                node.pop(SETTINGS, None)
                node[CLASS] = value
        _assign(applied, path, value)
    return without, applied


def _assign(tree: Tree, path: Sequence[str], value: Any) -> None:
    node, key = _parent(tree, path, create=True)
    if node is None:
        return
    old = class_of(node.get(key))
    if old is not None and isinstance(value, str):
        if not same_class(old, value):
            node[key] = {CLASS: value}
    elif key == CLASS and CLASS in node and not same_class(node[CLASS], value):
        node.pop(SETTINGS, None)
        node[CLASS] = value
    else:
        node[key] = value


def _parent(tree: Tree, path: Sequence[str], create: bool) -> tuple[Tree | None, str]:
    """The mapping that holds the last key of a path; `init_args` may be left out of a path, as jsonargparse allows."""
    node: Any = tree
    for token in path[:-1]:
        node = _settings_of(node, token, create)
        child = node.get(token) if isinstance(node, dict) else None
        if isinstance(child, str) and create:
            child = {CLASS: child}
            node[token] = child
        if not isinstance(child, dict):
            if not create or not isinstance(node, dict):
                return None, path[-1]
            child = {}
            node[token] = child
        node = child
    node = _settings_of(node, path[-1], create)
    return (node if isinstance(node, dict) else None), path[-1]


def _settings_of(node: Any, token: str, create: bool) -> Any:
    if not isinstance(node, dict) or CLASS not in node or token in (CLASS, SETTINGS, "dict_kwargs"):
        return node
    return node.setdefault(SETTINGS, {}) if create else node.get(SETTINGS, {})


def _value(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text
