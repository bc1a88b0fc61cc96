"""What a recipe leaves open: values that must be given, and values that follow from others whatever the classes are."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from gapo_lit import registry
from gapo_lit.cli.recipe import CLASS, SETTINGS, RecipeError, Tree, class_of

MISSING = "???"


def check_given(tree: Tree) -> None:
    """Raise RecipeError where a recipe leaves a value to the user (`???`) and the user has not given it."""
    missing = [path for path, value in _leaves(tree, "") if value == MISSING]
    if missing:
        flags = " ".join(f"--{path} VALUE" for path in missing)
        raise RecipeError(f"{', '.join(missing)}: this has no default and must be given, in a recipe or with {flags}")


def complete(tree: Tree, applied: Tree, name: str) -> None:
    """Fill in, in place, what the recipes did not say: the engine's model and the logger that makes the run folder.

    What they leave to the user, and the user gave in a flag, goes.

    tree: the recipes alone; applied: with flags, which decide the engine's class. name: what the run is called.
    """
    _drop_missing(tree)
    engine = applied.get("data", {}).get("engine")
    given = engine.get(SETTINGS) or {} if isinstance(engine, dict) else {}
    if engine is not None and "model" not in given and _takes_model(class_of(engine) or engine):
        below = tree.setdefault("data", {}).get("engine")
        part: Tree = below if isinstance(below, dict) else {CLASS: class_of(engine) or engine}
        tree["data"]["engine"] = part | {SETTINGS: {**(part.get(SETTINGS) or {}), "model": "${model.model}"}}
    trainer = tree.setdefault("trainer", {})
    given = trainer.get("logger")
    others = given if isinstance(given, list) else [] if given in (None, True, False) else [given]
    if not any(str(class_of(logger)).rpartition(".")[2] == "RunLogger" for logger in others):
        trainer["logger"] = [{CLASS: "gapo_lit.callbacks.RunLogger", SETTINGS: {"name": name}}, *others]


def _takes_model(engine: Any) -> bool:
    """Whether an engine has a required setting `model`; unknown classes are for the parser to refuse."""
    known = {part.name: part.cls for part in registry.components("engine")}
    cls = known.get(str(engine).rpartition(".")[2])
    return cls is not None and "model" in inspect.signature(cls).parameters


def _leaves(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    """(path as a flag would write it, value) of everything that is no mapping."""
    if not isinstance(node, dict):
        yield path, node
        return
    for key, value in node.items():
        inner = path if key == SETTINGS else f"{path}.{key}" if path else str(key)
        yield from _leaves(value, inner)


def _drop_missing(node: Any) -> None:
    if isinstance(node, dict):
        for key in [key for key, value in node.items() if value == MISSING]:
            del node[key]
        for value in node.values():
            _drop_missing(value)
