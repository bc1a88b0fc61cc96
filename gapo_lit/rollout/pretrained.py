"""What every engine needs to know of a Hugging Face model besides its weights: tokenizer, ends, limits, parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gapo_lit.rollout.engine import EngineError


@dataclass(frozen=True)
class ParameterTable:
    """The parameters of a model: the shape under each name, and for a tied name the name whose tensor it shares."""

    shapes: dict[str, torch.Size]
    tied: dict[str, str]

    @classmethod
    def of(cls, model: torch.nn.Module) -> ParameterTable:
        """Read from a model, which may be on the meta device."""
        shapes: dict[str, torch.Size] = {}
        tied: dict[str, str] = {}
        first: dict[int, str] = {}
        for name, parameter in model.named_parameters(remove_duplicate=False):
            shapes[name] = parameter.shape
            owner = first.setdefault(id(parameter), name)
            if owner != name:
                tied[name] = owner
        return cls(shapes, tied)

    def complete(self, weights: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        """Pass `weights` on one by one, tied names added where they were left out, and refuse anything but all of them.

        A backend may accept a part of the weights silently, or keep an old head beside new embeddings: hence the count.
        Raises EngineError naming an unknown, repeated, misshapen or (at the end) missing parameter.
        """
        seen: set[str] = set()
        for name, tensor in weights:
            shape = self.shapes.get(name)
            if shape is None:
                raise EngineError(f"the engine's model has no parameter {name!r}; {_wrong_model}")
            if tensor.shape != shape:
                raise EngineError(
                    f"parameter {name!r} came with shape {tuple(tensor.shape)} instead of {tuple(shape)}; "
                    f"{_wrong_model} and give full tensors, not shards"
                )
            # A tied weight given under both names, or added below before its own name came, is the same tensor again.
            if name in seen and name not in self.tied and name not in self.tied.values():
                raise EngineError(f"parameter {name!r} came twice; give each parameter once")
            for shared in self._names_sharing(name):
                if shared not in seen:
                    seen.add(shared)
                    yield shared, tensor
        missing = sorted(self.shapes.keys() - seen)
        if missing:
            raise EngineError(
                f"{len(missing)} of {len(self.shapes)} parameters were not given: {_some(missing)}; "
                "a policy's parameters all go to the engine, frozen ones too"
            )

    def _names_sharing(self, name: str) -> list[str]:
        owner = self.tied.get(name, name)
        return [name, *(n for n in (owner, *self.tied) if n != name and self.tied.get(n, n) == owner)]


_wrong_model = "load the same model in the engine and in the trainer"


@dataclass(frozen=True)
class Checkpoint:
    """A model as an engine meets it.

    end_ids: every token that ends a completion, from all three places that name one.
    """

    tokenizer: Any
    end_ids: frozenset[int]
    vocab_size: int
    max_model_len: int
    parameters: ParameterTable

    @classmethod
    def read(cls, model: str, max_model_len: int | None) -> Checkpoint:
        """Read tokenizer and configuration of a local folder or a hub name; no weights are loaded.

        Raises EngineError where the model is not there and ValueError where max_model_len exceeds the model's own.
        """
        # Imported here: a recipe is checked in seconds without loading transformers' model code.
        from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

        build: Any = AutoModelForCausalLM
        try:
            config = AutoConfig.from_pretrained(model)
            tokenizer = AutoTokenizer.from_pretrained(model)
            with torch.device("meta"):
                parameters = ParameterTable.of(build.from_config(config))
        except (OSError, ValueError) as error:
            raise EngineError(f"model {model!r} could not be read: {error}") from error
        text = config.get_text_config()
        return cls(
            tokenizer=tokenizer,
            end_ids=_end_ids(model, text, tokenizer),
            vocab_size=int(text.vocab_size),
            max_model_len=_length(model, max_model_len, getattr(text, "max_position_embeddings", None)),
            parameters=parameters,
        )

    def decode(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        """Each sequence as text without special tokens, spaces as they were sampled."""
        if not sequences:  # batch_decode takes an empty list for one empty sequence
            return []
        texts = self.tokenizer.batch_decode(
            [list(ids) for ids in sequences], skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return list(texts)


def _end_ids(model: str, config: Any, tokenizer: Any) -> frozenset[int]:
    from transformers import GenerationConfig

    try:
        generation = GenerationConfig.from_pretrained(model).eos_token_id
    except OSError:  # not every model has a generation_config.json
        generation = None
    ends: set[int] = set()
    for ids in (generation, getattr(config, "eos_token_id", None), tokenizer.eos_token_id):
        if ids is not None:
            ends.update([ids] if isinstance(ids, int) else ids)
    if not ends:
        raise EngineError(f"model {model!r} names no end-of-sequence token, so no completion could ever stop by itself")
    return frozenset(ends)


def _length(model: str, wanted: int | None, own: int | None) -> int:
    if wanted is None:
        if own is None:
            raise ValueError(f"model {model!r} states no maximum length; give max_model_len")
        return int(own)
    if own is not None and wanted > own:
        raise ValueError(f"max_model_len={wanted} is above the {own} positions of model {model!r}; give at most that")
    return wanted


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
