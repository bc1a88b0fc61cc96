"""One registry a component kind: what a recipe may name, where each part comes from, and what to say when it is not
there.

A kind is an abstract base class. A part joins with `@register` and is then known by its class name::

    @register(source="arXiv:2609.00444, Eq. 11")
    class GAPOClip(ClipSchedule): ...

A package outside this one names its module under the entry-point group `gapo_lit.components`; `load_plugins` imports
it.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TypeVar

ENTRY_POINT_GROUP = "gapo_lit.components"

T = TypeVar("T", bound=type)


@dataclass(frozen=True)
class Component:
    """A registered part: its class, the paper or program it follows, and the distribution that brought it (None:
    ours).
    """

    cls: type
    source: str
    plugin: str | None

    @property
    def name(self) -> str:
        """What a recipe calls it."""
        return self.cls.__name__


_kinds: dict[str, type] = {}
_components: dict[str, dict[str, Component]] = {}
_loading: str | None = None


def kind(name: str) -> Callable[[T], T]:
    """Declare an abstract base class as the component kind `name`."""

    def declare(base: T) -> T:
        if name in _kinds:
            raise ValueError(f"component kind {name!r} was already declared by {_where(_kinds[name])}")
        _kinds[name] = base
        _components[name] = {}
        return base

    return declare


def register(*, source: str) -> Callable[[T], T]:
    """Register a class under its own name with the kind it derives from.

    source: the paper, equation or program that the part follows, shown by `gapo-lit components`.
    Raises TypeError for a class of no kind and ValueError for a name that is taken.
    """

    def add(cls: T) -> T:
        owner = _kind_of(cls)
        taken = _components[owner].get(cls.__name__)
        if taken is not None:
            raise ValueError(
                f"{owner} {cls.__name__!r} of {_where(cls)} was already registered by {_where(taken.cls)}; "
                "rename one of the two"
            )
        _components[owner][cls.__name__] = Component(cls, source, _loading)
        return cls

    return add


def lookup(kind_name: str, name: str) -> Component:
    """The part called `name`; an unknown one raises ValueError with the nearest names."""
    known = _components[kind_name]
    if name not in known:
        raise ValueError(f"there is no {kind_name} called {name!r}{near_misses(name, known)}")
    return known[name]


def near_misses(name: str, known: Iterable[str]) -> str:
    """A clause naming what `name` may have meant, to end an error message with."""
    names = sorted(known)
    by_lower = {n.lower(): n for n in names}
    near = [by_lower[n] for n in difflib.get_close_matches(name.lower(), list(by_lower), n=3, cutoff=0.5)]
    if near:
        return f"; did you mean {' or '.join(near)}?"
    return f"; known: {', '.join(names) or 'none'}"


def kinds() -> dict[str, type]:
    """Every component kind and its base class, in order of declaration."""
    return dict(_kinds)


def components(kind_name: str) -> Iterator[Component]:
    """The parts of one kind, in order of registration."""
    yield from _components[kind_name].values()


def load_plugins() -> list[str]:
    """Import every installed plug-in; returns their distributions' names.

    A plug-in that fails to import raises RuntimeError naming the distribution: a recipe must not silently lose a part.
    """
    global _loading
    loaded = []
    for point in entry_points(group=ENTRY_POINT_GROUP):
        name = point.dist.name if point.dist is not None else point.name
        _loading = name
        try:
            importlib.import_module(point.module)
        except Exception as error:
            raise RuntimeError(
                f"plug-in {name!r} ({point.value}) could not be loaded: {error}; mend or uninstall it"
            ) from error
        finally:
            _loading = None
        loaded.append(name)
    return loaded


def _kind_of(cls: type) -> str:
    for name, base in _kinds.items():
        if issubclass(cls, base):
            return name
    raise TypeError(f"{_where(cls)} derives from no component kind; derive it from one of {', '.join(_kinds)}")


def _where(cls: type) -> str:
    try:
        line = inspect.getsourcelines(cls)[1]
    except (OSError, TypeError):
        return f"{cls.__module__}.{cls.__qualname__}"
    return f"{cls.__module__}.{cls.__qualname__} (line {line})"
