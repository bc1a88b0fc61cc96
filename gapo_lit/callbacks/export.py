"""The trained model as a folder that other programs load."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from lightning import Callback, LightningModule, Trainer
from lightning_utilities.core.rank_zero import rank_zero_warn
from torch import Tensor, nn

from gapo_lit.callbacks.files import run_folder
from gapo_lit.rollout.sync import full_parameters

Dtype = Literal["float32", "bfloat16", "float16"]


class ExportModel(Callback):
    """Writes <run folder>/model when a fit ends: weights as safetensors, configuration and tokenizer.

    `AutoModelForCausalLM.from_pretrained` and vLLM load it. dtype: what the weights are stored in. float32 keeps them
    exactly; at the learning rates of RL much of what was learned is below bfloat16's precision. folder: its name.

    Sharded parameters are gathered one at a time, by all ranks; rank 0 keeps the whole on its CPU and writes it. The
    folder appears, or is replaced, only when it is complete. After an error the model is written too, unless there are
    several ranks, which may not all have met it: the last checkpoint has the weights then.
    """

    def __init__(self, dtype: Dtype = "float32", folder: str = "model") -> None:
        if dtype not in ("float32", "bfloat16", "float16"):
            raise ValueError(f"dtype={dtype!r} is not known; give 'float32', 'bfloat16' or 'float16'")
        if not folder or Path(folder).name != folder:
            raise ValueError(f"folder={folder!r} must be a plain name; it is made inside the run folder")
        self.dtype, self.folder = dtype, folder
        self._run_folder: Path | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Learn the run folder."""
        self._run_folder = run_folder(trainer)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the model."""
        if self._run_folder is not None and not getattr(trainer, "fast_dev_run", False):
            self._export(trainer, pl_module)
            trainer.strategy.barrier("model exported")

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Write the model if it has learned anything and no other rank is needed."""
        if self._run_folder is None or trainer.world_size > 1 or trainer.global_step == 0:
            return
        try:
            self._export(trainer, pl_module)
        except Exception as error:  # the run's own exception is the one to show
            rank_zero_warn(f"the model was not written after {type(exception).__name__}: {error!r}")

    def _export(self, trainer: Trainer, module: Any) -> None:
        assert self._run_folder is not None
        weights: dict[str, Tensor] = {}
        for name, tensor in full_parameters(module.gathered_parameters()):
            if trainer.is_global_zero:
                weights[name] = tensor.to("cpu", getattr(torch, self.dtype))
        if trainer.is_global_zero:
            weights |= persistent_buffers(module.model)
            write_model(module.model, weights, _tokenizer(trainer, module), self._run_folder / self.folder, self.dtype)


def write_model(model: Any, weights: dict[str, Tensor], tokenizer: Any, folder: Path, dtype: Dtype = "float32") -> None:
    """Write a Hugging Face model folder with these weights, complete or not at all.

    model: the transformers model that they belong to, for its configuration; its own, perhaps sharded, weights are not
    read. weights: name to whole tensor, tied ones under each name or under one.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f".partial-{folder.name}-{os.getpid()}")
    old = folder.with_name(f".old-{folder.name}-{os.getpid()}")
    try:
        with _no_bars():
            model.save_pretrained(partial, state_dict=_without_tied(model, weights), max_shard_size="5GB")
        _set_dtype(partial / "config.json", dtype)
        tokenizer.save_pretrained(partial)
        if folder.exists():
            folder.rename(old)
        partial.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def persistent_buffers(model: nn.Module) -> dict[str, Tensor]:
    """Buffers that belong to a checkpoint; sharding leaves them whole on every rank."""
    found = {}
    for path, part in model.named_modules():
        for name, buffer in part.named_buffers(recurse=False):
            if name not in part._non_persistent_buffers_set:
                found[f"{path}.{name}".lstrip(".")] = buffer.detach().cpu()
    return found


def _without_tied(model: Any, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """One name for each tied weight: gathered from shards they are copies, which would be stored twice."""
    tied = getattr(model, "all_tied_weights_keys", None) or {}
    return {name: tensor for name, tensor in weights.items() if tied.get(name) not in weights}


@contextmanager
def _no_bars() -> Iterator[None]:
    """Without transformers' own progress bars, which would be drawn over the run's."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _set_dtype(path: Path, dtype: Dtype) -> None:
    """What is stored, not what was trained in, so that a loader that follows the configuration loses nothing."""
    config = json.loads(path.read_text(encoding="utf-8"))
    config["dtype"] = dtype
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _tokenizer(trainer: Trainer, module: Any) -> Any:
    tokenizer = getattr(getattr(trainer, "datamodule", None), "tokenizer", None)
    if tokenizer is not None:
        return tokenizer
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(module.model_name)
