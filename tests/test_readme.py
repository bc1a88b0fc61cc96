"""What the README says can be done, can be: commands resolve, the example runs, the table of parts is complete."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from gapo_lit import registry
from gapo_lit.cli import main
from gapo_lit.cli.parts import load_parts
from tests.test_recipes import SMALL
from tests.tiny import tiny_model

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)
COMMANDS = [line.partition("#")[0].strip() for kind, block in BLOCKS if kind == "bash" for line in block.splitlines()]
FITS = [line for line in COMMANDS if line.startswith("gapo-lit fit")]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_model(tmp_path_factory.mktemp("model")))


def test_every_command_is_of_a_kind_that_is_tested() -> None:
    ours = tuple(f"gapo-lit {command}" for command in ("fit", "validate", "test", "branch", "components"))
    kinds = (*ours, "make ", "torchrun ", "sbatch ", ".venv/bin/pip install")
    assert COMMANDS
    assert [line for line in COMMANDS if not line.startswith(kinds)] == []


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"`make ([a-z-]+)`", README)) | {c.split()[1] for c in COMMANDS if c.startswith("make ")}
    assert named
    assert named <= targets


@pytest.mark.parametrize("command", [c for c in FITS if "CosineClip" not in c])  # test_plugin.py runs that one
def test_fit_commands_resolve(
    command: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a tiny model, and where a hub or a file of one's own is named on generated data."""
    monkeypatch.chdir(ROOT)
    words = [w for w in shlex.split(command)[1:] if not w.endswith(".jsonl") and not w.endswith(".path")]
    assert main([*words, "--model.model", model, *SMALL, "--dry-run"]) == 0, capsys.readouterr().err


def test_evaluation_commands_resolve(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Up to the problems, which are on the hub and left out (test_evaluation.py runs others)."""
    monkeypatch.chdir(ROOT)
    (validate,) = (c for c in COMMANDS if c.startswith("gapo-lit validate"))
    assert main([*shlex.split(validate)[1:], "--model.model", model, *SMALL, "--dry-run"]) == 0
    (test,) = (c for c in COMMANDS if c.startswith("gapo-lit test"))
    named = re.findall(r"benchmark/(\w+)\.yaml", test)
    assert len(named) >= 2
    words = [*shlex.split(test)[1:], "--model.model", model, *SMALL, "--dry-run"]
    assert main([*words, "--data.benchmarks", "null"]) == 2
    assert "data.benchmarks is empty" in capsys.readouterr().err


def test_the_branch_line_is_understood(capsys: pytest.CaptureFixture[str]) -> None:
    """As far as its checkpoint, which is nowhere; test_branch.py runs one."""
    (line,) = (c for c in COMMANDS if c.startswith("gapo-lit branch"))
    assert main(shlex.split(line)[1:]) == 2
    assert "there is no checkpoint" in capsys.readouterr().err


def test_the_torchrun_line_resolves(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With two processes in place of sixteen, as this machine has no GPUs; test_cluster.py runs it."""
    monkeypatch.chdir(ROOT)
    (line,) = (c for c in COMMANDS if c.startswith("torchrun"))
    words = shlex.split(line.partition("-m gapo_lit.cli")[2].replace("devices 8", "devices 1"))
    assert main([*words, "--model.model", model, *SMALL, "--trainer.accelerator", "cpu", "--dry-run"]) == 0
    assert "ranks" in capsys.readouterr().out


def test_components_command(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = (c for c in COMMANDS if c.startswith("gapo-lit components"))
    assert main(shlex.split(line)[1:]) == 0
    assert "GAPOClip" in capsys.readouterr().out


def test_the_table_of_parts_is_complete() -> None:
    load_parts()
    rows = re.findall(r"^\| (\w+) \| ([A-Z][\w, ]+) \|$", README, re.MULTILINE)
    listed = {kind: set(names.split(", ")) for kind, names in rows if kind in registry.kinds()}
    ours = {kind: {c.name for c in registry.components(kind) if _part(c.cls)} for kind in registry.kinds()}
    assert listed == ours


def _part(cls: type) -> bool:
    """Ours, and no part of the laboratory, whose recipes name theirs in full."""
    return cls.__module__.startswith("gapo_lit.") and not cls.__module__.startswith("gapo_lit.lab.")


def test_the_python_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = (block for kind, block in BLOCKS if kind == "python" and "import" in block)
    assert len(example.strip().splitlines()) <= 16
    exec(example, {})
    assert capsys.readouterr().out.startswith("tensor([0.0050, 0.0030, 0.0030, 0.0030]) tensor(0.2500)")


def test_the_reward_of_ones_own_is_the_examples() -> None:
    (function,) = (block for kind, block in BLOCKS if kind == "python" and "import" not in block)
    recipe = yaml.safe_load(next(block for kind, block in BLOCKS if kind == "yaml"))
    assert function.strip() in (ROOT / "examples/own_task/rewards.py").read_text()
    assert recipe["data"]["reward"]["init_args"]["function"] == "rewards.py:title_rules"


def test_local_links_lead_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if "://" not in link]
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
