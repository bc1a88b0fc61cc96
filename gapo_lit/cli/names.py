"""Misspelt settings and components, found in a composed recipe before anything is built, with the nearest names."""

from __future__ import annotations

import importlib
import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Union, get_args, get_origin, get_type_hints

from gapo_lit import registry
from gapo_lit.cli.recipe import CLASS, SETTINGS, RecipeError, Tree

# What a component's mapping may hold beside its class.
_PARTS = {CLASS, SETTINGS, "dict_kwargs"}


def check_names(tree: Tree, roots: dict[str, Any]) -> None:
    """Raise RecipeError for the first key or component that does not exist.

    roots: what each top-level key is: a class whose settings lie below it, or None for a plain value.
    """
    for key, value in tree.items():
        if key not in roots:
            raise RecipeError(f"a recipe has no section {key!r}{registry.near_misses(key, roots)}")
        if isinstance(roots[key], type) and isinstance(value, dict):
            _check_settings(roots[key], value, key)


def _check_settings(owner: Callable[..., Any], settings: Tree, path: str) -> None:
    parameters, open_ended = _parameters(owner)
    for key, value in settings.items():
        if key in parameters:
            _check_value(parameters[key], value, f"{path}.{key}")
        elif not open_ended:
            name = getattr(owner, "__name__", str(owner))
            near = registry.near_misses(key, parameters)
            raise RecipeError(f"{path}.{key}: {name} has no setting called {key!r}{near}")


def _check_value(hint: Any, value: Any, path: str) -> None:
    if isinstance(value, list):
        for index, item in enumerate(value):
            _check_value(hint, item, f"{path}[{index}]")
        return
    by_name = _mapped(hint)
    if by_name is not None and isinstance(value, dict) and CLASS not in value:
        for name, item in value.items():
            _check_value(by_name, item, f"{path}.{name}")
        return
    bases = list(dict.fromkeys(_classes(hint)))
    if isinstance(value, dict) and CLASS in value:
        owner = _resolve(str(value[CLASS]), bases, path)
        stray = sorted(set(value) - _PARTS)
        if stray:
            raise RecipeError(f"{path}.{stray[0]}: settings of {value[CLASS]} belong under {SETTINGS}")
        if owner is not None and isinstance(value.get(SETTINGS), dict):
            _check_settings(owner, value[SETTINGS], path)
    elif isinstance(value, dict):
        for base in bases:
            if not inspect.isabstract(base) and base.__module__.startswith("gapo_lit."):
                _check_settings(base, value, path)
    elif isinstance(value, str) and _kind(bases) and "${" not in value:
        _resolve(value, bases, path)


def _resolve(name: str, bases: list[type], path: str) -> Callable[..., Any] | None:
    """The class that a name means where one of `bases` is wanted; None where that is for the parser to say."""
    if "${" in name:
        return None
    if "." in name:
        return _imported(name, path)
    kind = _kind(bases)
    if kind is not None:
        try:
            return registry.lookup(kind, name).cls
        except ValueError as error:
            raise RecipeError(f"{path}: {error}{_elsewhere(name, kind)}") from error
    known = {cls.__name__: cls for base in bases for cls in _family(base)}
    if bases and name not in known:
        raise RecipeError(f"{path}: there is no {bases[0].__name__} called {name!r}{registry.near_misses(name, known)}")
    return known.get(name)


def _elsewhere(name: str, kind: str) -> str:
    others = [k for k in registry.kinds() if k != kind and name in {c.name for c in registry.components(k)}]
    return f" ({name} is a part of kind {others[0]})" if others else ""


def _imported(name: str, path: str) -> Callable[..., Any]:
    module, _, attribute = name.rpartition(".")
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise RecipeError(
            f"{path}: {name} could not be imported: {error}; give a registered name or a full path"
        ) from error
    return found


def _kind(bases: list[type]) -> str | None:
    return next((name for name, base in registry.kinds().items() if base in bases), None)


def _family(base: type) -> Iterator[type]:
    yield base
    subclasses: list[type] = type.__subclasses__(base)
    for cls in subclasses:
        yield from _family(cls)


def _parameters(owner: Callable[..., Any]) -> tuple[dict[str, Any], bool]:
    """Type hints of the settings a class or function takes, and whether it takes others too."""
    function = owner.__init__ if isinstance(owner, type) else owner  # type: ignore[misc]
    try:
        signature = inspect.signature(owner)
    except (TypeError, ValueError):
        return {}, True
    try:
        hints = get_type_hints(function)
    except Exception:  # annotations of foreign classes may name what is not importable
        hints = {}
    kinds = {p.kind for p in signature.parameters.values()}
    named = {n: hints.get(n, Any) for n, p in signature.parameters.items() if p.kind not in _VARIADIC}
    return named, bool(kinds & _VARIADIC)


_VARIADIC = {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}


def _mapped(hint: Any) -> Any:
    """What a mapping's values are, where a hint accepts a mapping with free names; None where it does not."""
    parts = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return next((get_args(part)[1] for part in parts if get_origin(part) in (dict, Mapping) and get_args(part)), None)


def _classes(hint: Any) -> Iterator[type]:
    """The classes that a hint accepts, through unions, lists and factories."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        for part in get_args(hint):
            yield from _classes(part)
    elif origin is Callable:
        arguments = get_args(hint)
        if arguments:
            yield from _classes(arguments[-1])
    elif origin is not None:
        for part in get_args(hint):
            yield from _classes(part)
    elif isinstance(hint, type) and hint.__module__ != "builtins":
        yield hint
