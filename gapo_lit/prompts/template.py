"""From an example's words to the token ids the policy is asked. Nothing downstream encodes text again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapo_lit.types import Example, Prompt

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Template:
    """How a question is put.

    chat: prefix + question + suffix is one user turn of the tokenizer's chat template, after the system message; else
    that text is encoded as it stands, with the special tokens the tokenizer adds to any text. prefix holds worked
    examples in few-shot form. system None gives no system message, for which some templates (SmolLM2's) insert one of
    their own; "" gives an empty one. Raises ValueError for a system message without chat.
    """

    system: str | None = None
    chat: bool = True
    prefix: str = ""
    suffix: str = ""

    def __post_init__(self) -> None:
        if self.system is not None and not self.chat:
            raise ValueError(
                f"system={self.system[:40]!r} with chat: false goes nowhere; put it into prefix, or give chat: true"
            )

    def text(self, example: Example, tokenizer: PreTrainedTokenizerBase) -> str:
        """The whole prompt as text, up to where the answer begins.

        Raises ValueError where the tokenizer has no chat template or refuses these messages.
        """
        asked = f"{self.prefix}{example.question}{self.suffix}"
        if not self.chat:
            return asked
        if not getattr(tokenizer, "chat_template", None):
            raise ValueError(
                "the tokenizer has no chat template, as base models often have none; set template.chat: false"
            )
        system = [] if self.system is None else [{"role": "system", "content": self.system}]
        messages = [*system, {"role": "user", "content": asked}]
        try:
            return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
        except Exception as error:
            # jinja2 errors come out of templates that take no system message, among others
            raise ValueError(f"the chat template refuses {example.id}: {error}; try template.system: null") from error

    def __call__(self, example: Example, tokenizer: PreTrainedTokenizerBase) -> Prompt:
        """The example with its token ids. A chat template writes its own special tokens, so none are added to it."""
        text = self.text(example, tokenizer)
        ids = tokenizer.encode(text, add_special_tokens=not self.chat)
        if not ids:
            raise ValueError(f"{example.id} encodes to no token; drop the row or give it a prefix")
        return Prompt(example, tuple(ids), text)


@dataclass(frozen=True)
class EncodedPrompts:
    """The prompts that are asked, in order, and the ids of examples left out: too long, or without a usable gold."""

    prompts: tuple[Prompt, ...]
    too_long: tuple[str, ...]
    ungradable: tuple[str, ...] = ()

    @property
    def counts(self) -> str:
        """How many there are and how many were left out, as words for a log line."""
        ungradable = f", {len(self.ungradable)} as ungradable" if self.ungradable else ""
        return f"{len(self.prompts)} prompts, {len(self.too_long)} left out as too long{ungradable}"


def encode_prompts(
    examples: Sequence[Example], template: Template, tokenizer: PreTrainedTokenizerBase, max_prompt_tokens: int
) -> EncodedPrompts:
    """Encode every example; those of more than max_prompt_tokens tokens are left out and named.

    Raises ValueError where nothing is left, with the shortest length, and for an id that occurs twice.
    """
    if max_prompt_tokens < 1:
        raise ValueError(f"max_prompt_tokens={max_prompt_tokens} leaves no room for a prompt; give at least 1")
    seen: set[str] = set()
    for example in examples:
        if example.id in seen:
            raise ValueError(f"two examples have the id {example.id!r}; ids must be unique within a source")
        seen.add(example.id)
    prompts = [template(example, tokenizer) for example in examples]
    fitting = tuple(p for p in prompts if len(p.token_ids) <= max_prompt_tokens)
    if not fitting:
        shortest = min((len(p.token_ids) for p in prompts), default=None)
        why = "there are no examples" if shortest is None else f"the shortest of {len(prompts)} has {shortest} tokens"
        raise ValueError(
            f"no prompt of at most max_prompt_tokens={max_prompt_tokens} tokens: {why}; raise it or shorten them"
        )
    return EncodedPrompts(fitting, tuple(p.id for p in prompts if len(p.token_ids) > max_prompt_tokens))
