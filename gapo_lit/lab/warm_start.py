"""A Llama of about a million parameters with a tokenizer of its own, taught the laboratory's rule as well as asked.

Its supervised answers are drawn with the rule's slips, so that the policy comes to answer each question right about as
often as the rule's `chance` says: success counts cover 0..k from the first rollout on.
"""

from __future__ import annotations

import hashlib
import json
import random
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gapo_lit.lab.rule import ASK, OPERATIONS, STATES, Rule, draw_question
from gapo_lit.lab.task import LENGTHS, RELIABILITIES, RULE_SEED, check_lengths

PAD, END = "<pad>", "<end>"
RECORD = "warm_start.json"
# Raised whenever the same settings would give another model.
FORMAT = 1
IGNORED = -100  # cross_entropy's own


@dataclass(frozen=True)
class WarmStart:
    """Everything the model depends on.

    steps of `batch` fresh questions; lr falls to 0 along a half cosine after a short rise. layers, width: of the Llama;
    heads have 32 dimensions and the feed-forward part is 3 widths. rule_seed, reliabilities, lengths: as in ChainTask.
    Raises ValueError for sizes that make no model.
    """

    steps: int = 500
    batch: int = 64
    lr: float = 2e-3
    seed: int = 0
    layers: int = 4
    width: int = 128
    lengths: Sequence[int] = LENGTHS
    reliabilities: Sequence[float] = RELIABILITIES
    rule_seed: int = RULE_SEED

    def __post_init__(self) -> None:
        check_lengths(self.lengths)
        if min(self.steps, self.batch, self.layers) < 1 or self.width < 32 or self.width % 32:
            raise ValueError(
                f"steps={self.steps}, batch={self.batch}, layers={self.layers} must be at least 1 and "
                f"width={self.width} a multiple of 32"
            )

    @property
    def key(self) -> str:
        """Sixteen hexadecimal digits that differ where any setting does, or the way from settings to model."""
        text = json.dumps({"format": FORMAT, **asdict(self)}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def warm_start(settings: WarmStart, folder: Path, report: Callable[[int, float], None] | None = None) -> bool:
    """Make `folder` the model of these settings; False where it was that already.

    The folder appears, or is replaced, only when whole. report: called with step and loss now and then.
    Raises ValueError where the folder holds something that this did not write.
    """
    if folder.exists():
        if made_by(folder) is None:
            raise ValueError(f"{folder} holds no warm start; remove it, or give another folder")
        if made_by(folder) == settings.key:
            return False
    model = trained(settings, report)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=folder.parent) as scratch:
        made, old = Path(scratch) / "model", Path(scratch) / "old"
        _save(model, made)
        build_tokenizer().save_pretrained(made)
        record = {"key": settings.key, "settings": asdict(settings)}
        (made / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        if folder.exists():
            folder.rename(old)
        made.rename(folder)
    return True


def _save(model: Any, folder: Path) -> None:
    """Without transformers' progress bar, which lasts no time here."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        model.save_pretrained(folder)
    finally:
        if shown:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def made_by(folder: Path) -> str | None:
    """The key of the settings a folder was made with; None where it is no whole warm start."""
    try:
        return str(json.loads((folder / RECORD).read_text(encoding="utf-8"))["key"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def build_tokenizer() -> Any:
    """One token a character of questions and answers, beside padding and the end of an answer."""
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: index for index, token in enumerate([PAD, END, *STATES, *OPERATIONS, ASK])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, pad_token=PAD, eos_token=END, clean_up_tokenization_spaces=False
    )


def build_model(settings: WarmStart) -> Any:
    """The untrained Llama, float32; the random state is left as it was."""
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

    tokenizer = build_tokenizer()
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=settings.width,
        intermediate_size=3 * settings.width,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.width // 32,
        head_dim=32,
        max_position_embeddings=64,
        tie_word_embeddings=False,
        bos_token_id=None,
        dtype="float32",
        **ends,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        model = LlamaForCausalLM(config)  # type: ignore[no-untyped-call]
    model.generation_config = GenerationConfig(**ends)  # type: ignore[no-untyped-call]
    return model


def trained(settings: WarmStart, report: Callable[[int, float], None] | None = None) -> Any:
    """The model after its supervised steps: cross-entropy of answers and their ends, each with the rule's slips."""
    rule = Rule.drawn(settings.rule_seed, settings.reliabilities)
    rng = random.Random(settings.seed)
    tokenizer, model = build_tokenizer(), build_model(settings).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr, weight_decay=0.0, betas=(0.9, 0.99))
    rise = max(1, settings.steps // 20)
    for step in range(settings.steps):
        progress = step / settings.steps
        rate = min(1.0, (step + 1) / rise) * 0.5 * (1 + torch.cos(torch.tensor(progress * torch.pi)).item())
        for group in optimizer.param_groups:
            group["lr"] = settings.lr * rate
        ids, labels = supervised_batch(settings, rule, rng, tokenizer)
        logits = model(input_ids=ids[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORED)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if report is not None and (step % 50 == 49 or step + 1 == settings.steps):
            report(step + 1, loss.item())
    return model.eval()


def supervised_batch(settings: WarmStart, rule: Rule, rng: random.Random, tokenizer: Any) -> tuple[Tensor, Tensor]:
    """(batch, T) token ids of fresh questions with answers, and labels that are IGNORED but on answers and ends."""
    rows, labels = [], []
    for _ in range(settings.batch):
        question = draw_question(rng, settings.lengths)
        asked = tokenizer.convert_tokens_to_ids(list(question))
        answered = tokenizer.convert_tokens_to_ids([*rule.attempt(question, rng), END])
        rows.append(torch.tensor(asked + answered))
        labels.append(torch.tensor([IGNORED] * len(asked) + answered))
    pad = torch.nn.utils.rnn.pad_sequence
    return pad(rows, True, tokenizer.pad_token_id), pad(labels, True, IGNORED)
