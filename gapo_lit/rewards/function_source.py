"""Finding a function of the user's and filling its parameters by name, inside a grading process."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from gapo_lit.registry import near_misses

ENTRY_POINT_GROUP = "gapo_lit.rewards"
ONE, BATCH = "completion", "completions"
LONGEST = 300  # characters of a message that came with an exception
FRAMES = 3
_Kind = inspect.Parameter
_OURS = tuple(os.path.join(os.path.dirname(__file__), f"function_{part}.py") for part in ("source", "worker"))


@dataclass(frozen=True)
class Task:
    """A function to call, and the parameters that are filled by name.

    required, optional: those without and with a default. everything: it has **kwargs, and is given every column.
    batch: its parameters are lists, one element a completion.
    """

    function: Callable[..., Any]
    required: tuple[str, ...]
    optional: tuple[str, ...]
    everything: bool
    batch: bool

    def __call__(self, values: Mapping[str, Any]) -> Any:
        """Call the function with those of the values that it takes."""
        taken = {*self.required, *self.optional}
        return self.function(**{name: v for name, v in values.items() if self.everything or name in taken})

    def described(self) -> dict[str, Any]:
        """All but the function itself, for the trainer."""
        return {
            "required": self.required,
            "optional": self.optional,
            "everything": self.everything,
            "batch": self.batch,
        }


def find_task(where: str, settings: Mapping[str, Any]) -> Task:
    """The function at `where`, or an instance of the class there, with `settings` as keyword arguments.

    where: "package.module:name", "path/to/file.py:name" or the name of an entry point of the group `gapo_lit.rewards`.
    settings make the instance of a class, and fix parameters of a function. A function with a parameter `completions`
    is given a batch, another one needs a parameter `completion`.
    Raises ValueError for whatever cannot be found or called so.
    """
    found = _find(where)
    if not callable(found):
        raise ValueError(f"{where} is {type(found).__name__} and no function or class; name one")
    reward = getattr(sys.modules.get("gapo_lit.rewards.base"), "Reward", None)
    if reward is not None and isinstance(found, type) and issubclass(found, reward):
        raise ValueError(f"{where} is a Reward already; give it as class_path of the reward itself")
    strangers = [name for name in settings if not _takes(found, name, where)]
    if strangers:
        raise ValueError(
            f"{where} has no setting {strangers[0]!r}{near_misses(strangers[0], _parameters(found, where))}"
        )
    if not isinstance(found, type):
        return _task(functools.partial(found, **settings), where, settings)
    try:
        made = found(**settings)
    except BaseException as error:
        raise ValueError(f"{where} could not be made: {message(error)}") from error
    if not callable(made):
        raise ValueError(f"{where} makes objects that cannot be called; give the class a method __call__")
    return _task(made, where, {})


def frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The last few places of the user's code that an exception came through."""
    found = traceback.extract_tb(error.__traceback__, limit=-FRAMES - 2)
    return [f for f in found if f.filename not in _OURS and not f.filename.startswith("<frozen")][-FRAMES:]


def message(error: BaseException) -> str:
    """An exception on one line, with the place that raised it."""
    try:
        text = " ".join(str(error).split())[:LONGEST]
    except Exception:  # a class of the user's may fail at that, too
        text = "(its message cannot be shown)"
    where = [f" ({os.path.basename(f.filename)}:{f.lineno})" for f in frames(error)[-1:]]
    return f"{type(error).__name__}: {text}{''.join(where)}"


def _find(where: str) -> Any:
    place, colon, name = where.rpartition(":")
    if not colon:
        return _entry_point(where)
    found: Any = _file(place) if place.endswith(".py") else _module(place)
    for attribute in name.split("."):
        if not hasattr(found, attribute):
            names = [n for n, value in vars(found).items() if callable(value) and not n.startswith("_")]
            raise ValueError(f"{place} has no {attribute!r}{near_misses(attribute, names)}")
        found = getattr(found, attribute)
    return found


def _entry_point(name: str) -> Any:
    points = entry_points(group=ENTRY_POINT_GROUP)
    named = points.select(name=name)
    if not named:
        raise ValueError(
            f"there is no entry point {name!r} in the group {ENTRY_POINT_GROUP}{near_misses(name, points.names)}; "
            "a function is named package.module:name or path/to/file.py:name"
        )
    if len({point.value for point in named}) > 1:
        theirs = " and ".join(sorted(point.value for point in named))
        raise ValueError(f"the entry point {name!r} means {theirs}; name one of them instead")
    return _running(next(iter(named)).load, f"entry point {name!r}")


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise ValueError(f"{name} could not be imported: {message(error)}") from error
        file = Path(*name.split(".")).with_suffix(".py")
        hint = f"; there is a file {file}: give {file}:NAME" if file.is_file() else ""
        raise ValueError(f"there is no module {error.name!r} on Python's path{hint}") from error
    except BaseException as error:
        raise ValueError(f"{name} could not be imported: {message(error)}") from error


def _file(name: str) -> ModuleType:
    path = Path(name).expanduser().absolute()
    if not path.is_file():
        there = [p.name for p in path.parent.glob("*.py")] if path.parent.is_dir() else []
        raise ValueError(f"there is no file {path}{near_misses(path.name, there) if there else ''}")
    sys.path.insert(0, str(path.parent))  # as for a script, so that it can import the files beside it
    spec = importlib.util.spec_from_file_location(path.stem if path.stem not in sys.modules else f"_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    _running(functools.partial(spec.loader.exec_module, module), name)
    return module


def _running(load: Callable[[], Any], name: str) -> Any:
    """Run the user's import; ValueError for whatever comes out of it, SystemExit too."""
    try:
        return load()
    except BaseException as error:
        raise ValueError(f"{name} could not be imported: {message(error)}") from error


def _parameters(function: Callable[..., Any], where: str) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where} does not say what parameters it has; wrap it in a function of your own") from error


def _takes(function: Callable[..., Any], name: str, where: str) -> bool:
    parameters = _parameters(function, where)
    named = name in parameters and parameters[name].kind in (_Kind.POSITIONAL_OR_KEYWORD, _Kind.KEYWORD_ONLY)
    return named or any(p.kind is _Kind.VAR_KEYWORD for p in parameters.values())


def _task(function: Callable[..., Any], where: str, settings: Mapping[str, Any]) -> Task:
    parameters = {n: p for n, p in _parameters(function, where).items() if n not in settings}
    call = getattr(function, "func", function)
    if inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(type(call).__dict__.get("__call__")):
        raise ValueError(f"{where} is async; give a function that returns its value, by asyncio.run for instance")
    nameless = [name for name, p in parameters.items() if p.kind is _Kind.POSITIONAL_ONLY]
    if nameless:
        raise ValueError(f"{where} takes {nameless[0]!r} by position alone; parameters are filled by name")
    everything = any(p.kind is _Kind.VAR_KEYWORD for p in parameters.values())
    named = {n: p for n, p in parameters.items() if p.kind not in (_Kind.VAR_KEYWORD, _Kind.VAR_POSITIONAL)}
    if (ONE in named) == (BATCH in named) and not (everything and BATCH not in named):
        raise ValueError(
            f"{where} has the parameters {', '.join(named) or 'none'}; give it one called {ONE}, for one completion "
            f"a call, or {BATCH}, for a list of them"
        )
    return Task(
        function,
        required=tuple(n for n, p in named.items() if p.default is _Kind.empty),
        optional=tuple(n for n, p in named.items() if p.default is not _Kind.empty),
        everything=everything,
        batch=BATCH in named,
    )
