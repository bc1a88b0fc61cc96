"""Imports point one way, and the mathematics loads without Lightning, transformers or vLLM."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "gapo_lit"

# A module may import from its own row and from those above. A new top-level module or folder gets its place here.
LAYERS = (
    ("types", "registry", "files"),
    ("policies", "clipping", "metrics", "packing", "logprobs", "batching", "analysis"),
    ("rewards", "prompts", "rollout"),
    ("evaluation", "lab", "loaders", "data", "module", "sharding", "language_model"),
    ("callbacks", "checks"),
    ("cli",),
)
LAYER_OF = {part: level for level, row in enumerate(LAYERS) for part in row}
PURE = ("policies", "clipping")
PURE_MAY_IMPORT = {"torch", "gapo_lit.types", "gapo_lit.registry", "gapo_lit.policies", "gapo_lit.clipping"}


def module_name(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(file): file for file in sorted(PACKAGE.rglob("*.py"))}


@cache
def imports(module: str, *, at_load: bool = False) -> tuple[str, ...]:
    """Every module that `module` names in an import, also through importlib; at_load: only what loading it imports."""
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    return tuple(name for node in walk(tree, at_load) for name in imported(node, module))


def walk(node: ast.AST, at_load: bool) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        later = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for_types = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
        if not (at_load and (later or for_types)):
            yield child
            yield from walk(child, at_load)


def imported(node: ast.AST, module: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"{module}, line {node.lineno}: write the import with its full name"
        # `from gapo_lit.policies import kl` may name a module or a class: the module, where there is one.
        for alias in node.names:
            inner = f"{node.module}.{alias.name}"
            yield inner if inner in MODULES else str(node.module)
    elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in {"import_module", "__import__"}:
            yield str(node.args[0].value)


def part_of(module: str) -> str:
    """The layer table's name for a module: `gapo_lit.policies.kl` is in `policies`."""
    return module.split(".")[1]


def ours(module: str, *, at_load: bool = False) -> list[str]:
    return [name for name in imports(module, at_load=at_load) if name.startswith("gapo_lit.")]


def test_every_module_has_a_place() -> None:
    unplaced = {part_of(module) for module in MODULES if module != "gapo_lit"} - LAYER_OF.keys()
    assert not unplaced, f"give {sorted(unplaced)} a row in LAYERS: the lowest one above everything it imports"


def test_imports_point_one_way() -> None:
    upward = [
        f"{module} imports {name}"
        for module in MODULES
        if module != "gapo_lit"
        for name in ours(module)
        if LAYER_OF.get(part_of(name), 0) > LAYER_OF.get(part_of(module), len(LAYERS))
    ]
    assert not upward, "these point against the order of LAYERS:\n" + "\n".join(upward)


def test_no_two_modules_import_each_other() -> None:
    graph = {module: {name for name in ours(module, at_load=True) if name in MODULES} - {module} for module in MODULES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"an import cycle: {' -> '.join(error.args[1])}")


def test_the_package_itself_imports_nothing() -> None:
    assert not [name for name in imports("gapo_lit") if name != "__future__"]


def test_mathematics_imports_torch_alone() -> None:
    def allowed(name: str) -> bool:
        top = name.split(".")[0]
        return top in sys.stdlib_module_names or any(name == m or name.startswith(f"{m}.") for m in PURE_MAY_IMPORT)

    pure = [module for module in MODULES if module != "gapo_lit" and part_of(module) in PURE]
    assert pure
    foreign = [f"{module} imports {name}" for module in pure for name in imports(module) if not allowed(name)]
    assert not foreign, "\n".join(foreign)


def test_only_the_vllm_engine_imports_vllm() -> None:
    importers = {module for module in MODULES for name in imports(module) if name.split(".")[0] == "vllm"}
    assert importers <= {"gapo_lit.rollout.vllm", "gapo_lit.rollout.vllm_process"}


@pytest.mark.parametrize("part", [f"gapo_lit.{part}" for part in PURE])
def test_mathematics_loads_light(part: str, tmp_path: Path) -> None:
    heavy = ("lightning", "pytorch_lightning", "vllm", "transformers", "torchmetrics", "omegaconf", "wandb", "datasets")
    code = f"import sys, {part}; print(*(name for name in {heavy} if name in sys.modules))"
    # From another folder, and by path rather than by installation, so that it is this checkout that answers.
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    assert not run.stdout.split(), f"{part} loads {run.stdout}"
