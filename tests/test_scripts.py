"""The shell scripts and the model fetcher, without network, SLURM or a second environment."""

import importlib.util
import json
import os
import socket
import subprocess
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import save_file

ROOT = Path(__file__).resolve().parents[1]


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture(scope="module")
def fetch_model() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fetch_model", ROOT / "scripts" / "fetch_model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    folder = tmp_path / "models" / "whole"
    folder.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_text(json.dumps({}), encoding="utf-8")
    save_file({"weight": torch.zeros(64)}, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("script", [".ci/run", "scripts/install.sh", "recipes/cluster/slurm.sh"])
def test_shell_scripts_parse_and_can_be_run(script: str) -> None:
    subprocess.run(["bash", "-n", ROOT / script], check=True, timeout=30)
    assert os.access(ROOT / script, os.X_OK)


def test_slurm_starts_one_torchrun_a_node(tmp_path: Path) -> None:
    executable(tmp_path / "bin" / "scontrol", 'echo "alpha"; echo "beta"')
    executable(tmp_path / "bin" / "srun", 'shift 2; SLURM_NODEID=0 "$@"; SLURM_NODEID=1 "$@"')
    executable(tmp_path / "venv" / "bin" / "python", 'printf "%s\\n" "$*"')
    environment = {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "VENV": str(tmp_path / "venv"),
        "SLURM_SUBMIT_DIR": str(tmp_path),
        "SLURM_JOB_NODELIST": "alpha,beta",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_JOB_ID": "41",
        "SLURM_GPUS_ON_NODE": "4",
    }
    command = ["bash", str(ROOT / "recipes" / "cluster" / "slurm.sh"), "--config", "a file.yaml"]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=30)

    nodes = run.stdout.splitlines()
    assert len(nodes) == 2
    for rank, line in enumerate(nodes):
        assert f"--nnodes=2 --node-rank={rank} --nproc-per-node=4 --master-addr=alpha --master-port=20041" in line
        assert line.endswith("gapo-lit fit --config a file.yaml --trainer.num_nodes=2 --trainer.devices=4")


def test_installer_says_which_python_it_needs(tmp_path: Path) -> None:
    executable(tmp_path / "scripts" / "install.sh", (ROOT / "scripts" / "install.sh").read_text(encoding="utf-8"))
    (tmp_path / "pyproject.toml").touch()
    old = executable(tmp_path / "python3.9", "exit 1")
    run = subprocess.run(
        ["bash", str(tmp_path / "scripts" / "install.sh")],
        env={**os.environ, "PYTHON": str(old), "HARDWARE": "cpu"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 1
    assert "is not a Python 3.11 or 3.12 that runs" in run.stderr
    assert not (tmp_path / ".venv").exists()


def test_a_whole_model_is_left_alone(
    fetch_model: ModuleType, whole: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_model, "get", lambda *_: pytest.fail("it went to fetch a model that is there"))
    assert fetch_model.main(["--to", str(whole)]) == 0
    assert "is there already" in capsys.readouterr().out


@pytest.mark.parametrize("harm", ["cut weights", "no tokenizer", "cut config"])
def test_a_half_written_folder_is_not_a_model(
    fetch_model: ModuleType, whole: Path, harm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = whole / "model.safetensors"
    if harm == "cut weights":
        weights.write_bytes(weights.read_bytes()[:-8])
    elif harm == "no tokenizer":
        (whole / "tokenizer.json").unlink()
    else:
        (whole / "config.json").write_text('{"model_type": "lla', encoding="utf-8")
    assert fetch_model.main(["--to", str(whole)]) == 1
    assert "is not a whole model" in capsys.readouterr().err


def test_a_failed_fetch_leaves_nothing(
    fetch_model: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(fetch_model.subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 1))
    wanted = tmp_path / "models" / "smol"
    assert fetch_model.main(["--to", str(wanted)]) == 1
    assert "the package index did not serve" in capsys.readouterr().err
    assert list(wanted.parent.iterdir()) == []


def test_a_full_disk_is_said_before_anything_is_fetched(
    fetch_model: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_model, "DISK_NEEDED", 1 << 60)
    assert fetch_model.main(["--to", str(tmp_path / "smol")]) == 1
    assert "free some space" in capsys.readouterr().err


def test_a_silent_hub_costs_seconds(fetch_model: ModuleType) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/config.json"
        assert fetch_model.unreachable(address, patience_s=0.2)


def test_makefile_lists_its_targets() -> None:
    run = subprocess.run(["make", "-C", ROOT, "help"], capture_output=True, text=True, check=True, timeout=30)
    assert {"install", "quickstart", "test", "lint"} <= {line.split()[1] for line in run.stdout.splitlines() if line}
