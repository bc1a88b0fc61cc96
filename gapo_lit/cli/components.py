"""`gapo-lit components`: every part a recipe may name, with its settings, their defaults, and where it comes from."""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from gapo_lit import registry
from gapo_lit.cli.parts import load_parts
from gapo_lit.cli.recipe import RecipeError
from gapo_lit.cli.summary import refusal
from gapo_lit.registry import Component

REQUIRED = "required"


def show_components(arguments: Sequence[str]) -> int:
    """Print the parts of every kind, or of one; returns the exit status."""
    parser = argparse.ArgumentParser(prog="gapo-lit components", description=__doc__)
    parser.add_argument("--kind", help="one kind alone, such as clip")
    kind = parser.parse_args(arguments).kind
    try:
        load_parts()
        known = registry.kinds()
        if kind is not None and kind not in known:
            raise RecipeError(f"there is no kind of component called {kind!r}{registry.near_misses(kind, known)}")
    except RecipeError as error:
        refusal(str(error))
        return 2
    for name in known if kind is None else [kind]:
        parts = list(registry.components(name))
        if sys.stdout.isatty():
            Console().print(_table(name, parts))
        else:
            print("\n".join(_lines(name, parts)))
    return 0


def settings(cls: type) -> list[tuple[str, str]]:
    """(name, default) of each setting, as a recipe would write it; a setting without a default is required."""
    parameters = inspect.signature(cls).parameters.values()
    variadic = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return [(p.name, _yaml(p.default)) for p in parameters if p.kind not in variadic]


def _yaml(default: Any) -> str:
    if default is inspect.Parameter.empty:
        return REQUIRED
    if default is None:
        return "null"
    return str(default).lower() if isinstance(default, bool) else repr(default)


def _origin(part: Component) -> str:
    return part.source if part.plugin is None else f"{part.source} [plug-in {part.plugin}]"


def _purpose(part: Component) -> str:
    return (inspect.getdoc(part.cls) or "").split("\n")[0]


def _lines(kind: str, parts: Sequence[Component]) -> list[str]:
    lines = [f"{kind} ({registry.kinds()[kind].__name__})"]
    for part in parts:
        lines.append(f"  {part.name} — {_purpose(part)}")
        lines += [f"    {name}: {default}" for name, default in settings(part.cls)]
        lines.append(f"    source: {_origin(part)}")
    return [*lines, ""]


def _table(kind: str, parts: Sequence[Component]) -> Table:
    table = Table(title=kind, title_justify="left", title_style="bold", show_lines=True)
    for heading in ("name", "settings", "what it does", "source"):
        table.add_column(heading, overflow="fold")
    for part in parts:
        given = "\n".join(f"{name}: {default}" for name, default in settings(part.cls)) or "none"
        table.add_row(part.name, given, _purpose(part), _origin(part), style=None if part.plugin is None else "green")
    return table
