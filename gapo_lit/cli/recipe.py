"""Recipes: YAML files that build on one another, composed into one tree before anything is parsed.

A recipe states what differs from its bases, named by a top-level `extends: [base.yaml]` relative to itself. A later
file lies over an earlier one: mappings merge key by key, everything else is replaced; a key that ends in `+` adds its
list to the one below. A component (a mapping with `class_path`) of another class replaces the old one whole, settings
included, since a bound meant for one clip schedule means something else in the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from gapo_lit.registry import near_misses

Tree = dict[str, Any]
CLASS, SETTINGS = "class_path", "init_args"


class RecipeError(ValueError):
    """A recipe that cannot be used; the message names the value, the rule and the remedy."""


def compose(paths: Sequence[str | Path]) -> Tree:
    """The files, each after its bases, laid over one another in order; interpolations are left as they are.

    A base is used once: files that share one overlay what came between. Raises RecipeError for a file that is missing,
    no YAML mapping, or its own base.
    """
    used: list[Path] = []
    tree: Tree = {}
    for path in paths:
        for file in _with_bases(Path(path), used, ()):
            used.append(file)
            tree = overlay(tree, own_settings(file))
    return tree


def overlay(below: Tree, above: Tree) -> Tree:
    """`above` laid over `below`; neither is changed."""
    merged = dict(below)
    for key, value in above.items():
        name = key.removesuffix("+")
        if name != key:
            merged[name] = [*_as_list(merged.get(name)), *_as_list(value)]
        else:
            merged[name] = _merged(merged.get(name), value)
    return merged


def _merged(old: Any, new: Any) -> Any:
    if class_of(old) is not None and class_of(new) is not None:
        if not same_class(class_of(old), class_of(new)):
            return _component(new)
        return overlay(_component(old), _component(new))
    if isinstance(new, dict):
        if isinstance(old, str) and SETTINGS in new:  # a class given by name alone
            return overlay(_component(old), new)
        return overlay(old if isinstance(old, dict) else {}, new)
    # A string over a component is a class name; nothing else replaces one but null.
    if isinstance(old, dict) and CLASS in old and isinstance(new, str) and "${" not in new:
        return old if same_class(old[CLASS], new) else _component(new)
    return new


def class_of(value: Any) -> str | None:
    """The class that a value names with `class_path`, if it does."""
    return value.get(CLASS) if isinstance(value, dict) else None


def same_class(a: Any, b: Any) -> bool:
    """Whether two class paths mean one class, where either may be short."""
    short = str(a).rpartition(".")[2] == str(b).rpartition(".")[2]
    return short and (a == b or "." not in str(a) or "." not in str(b))


def _component(value: Any) -> Tree:
    return {CLASS: value} if isinstance(value, str) else value


def _as_list(value: Any) -> list[Any]:
    if value is None or isinstance(value, bool):  # logger: false
        return []
    return list(value) if isinstance(value, list) else [value]


def _with_bases(path: Path, used: Sequence[Path], chain: tuple[Path, ...]) -> list[Path]:
    """The file after those of its bases that are not in use yet."""
    file = path.expanduser().resolve()
    if file in chain:
        names = " → ".join(p.name for p in (*chain, file))
        raise RecipeError(f"{file} extends itself: {names}; take one of these out of `extends`")
    files: list[Path] = []
    bases = _load(file).get("extends") or []
    for base in [bases] if isinstance(bases, str) else bases:
        for found in _with_bases(file.parent / base, used, (*chain, file)):
            if found not in used and found not in files:
                files.append(found)
    return [*files, file]


def own_settings(file: Path) -> Tree:
    """What a recipe says itself, without its bases."""
    return {key: value for key, value in _load(file).items() if key != "extends"}


def _load(file: Path) -> Tree:
    if not file.is_file():
        there = [p.name for p in file.parent.glob("*.yaml")]
        hint = near_misses(file.name, there) if there else f"; there are no recipes in {file.parent}"
        raise RecipeError(f"there is no recipe {file}{hint}")
    try:
        tree = OmegaConf.to_container(OmegaConf.load(file), resolve=False)
    except (YAMLError, OmegaConfBaseException, UnicodeDecodeError, OSError) as error:
        raise RecipeError(f"{file} could not be read as YAML: {error}") from error
    if not isinstance(tree, dict):
        raise RecipeError(f"{file} holds a {type(tree).__name__}; a recipe is a mapping such as `model: {{...}}`")
    return {str(key): value for key, value in tree.items()}
