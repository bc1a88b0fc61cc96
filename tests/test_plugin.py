"""A package outside this one brings a clip schedule: installed, it is listed, marked and usable by name from YAML."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiny import tiny_model

ROOT = Path(__file__).resolve().parents[1]
PLUGIN = ROOT / "examples" / "plugin_clip"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plug-in, pip-installed into a folder of its own."""
    source = tmp_path_factory.mktemp("source") / "plugin_clip"  # the build leaves files beside the sources
    shutil.copytree(PLUGIN, source, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    target = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--target", target, source], check=True, timeout=120)
    return target


def run(installed: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(installed), str(ROOT)]), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *command], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )


def test_listed_and_marked(installed: Path) -> None:
    result = run(installed, "-m", "gapo_lit.cli", "components", "--kind", "clip")
    assert result.returncode == 0, result.stderr
    part = result.stdout.split("  CosineClip — ")[1]
    assert "eps_max: required" in part
    assert "[plug-in gapo-lit-cosine-clip]" in part
    assert "plug-in" not in result.stdout.split("  CosineClip — ")[0]


def test_used_by_name_from_yaml(installed: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "cosine.yaml"
    recipe.write_text("model: {clip: {class_path: CosineClip, init_args: {eps_lo: 3.0e-3, eps_max: 5.0e-3}}}\n")
    model = str(tiny_model(tmp_path / "model"))
    configs = ["--config", "recipes/quickstart.yaml", "--config", str(recipe)]
    result = run(installed, "-m", "gapo_lit.cli", "fit", *configs, "--model.model", model, "--dry-run")
    assert result.returncode == 0, result.stderr
    assert "CosineClip(eps_lo=0.003, eps_max=0.005" in result.stdout


def test_its_own_test_passes(installed: Path) -> None:
    result = run(installed, "-m", "pytest", "-q", "-c", os.devnull, str(PLUGIN / "tests"), "-p", "no:cacheprovider")
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_broken_plugin_is_named(tmp_path: Path) -> None:
    """A recipe must not silently lose a part."""
    (tmp_path / "broken_part.py").write_text("raise RuntimeError('no such device')\n")
    info = tmp_path / "broken_part-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-part\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[gapo_lit.components]\nbroken = broken_part\n")
    result = run(tmp_path, "-m", "gapo_lit.cli", "components")
    assert result.returncode == 2
    assert "broken-part" in result.stderr
    assert "no such device" in result.stderr
    assert "Traceback" not in result.stderr
