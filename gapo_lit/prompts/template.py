"""From an example's words to the token ids the policy is asked. Nothing downstream encodes text again."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapo_lit.registry import near_misses
from gapo_lit.types import Example, Prompt

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Names in braces, one behind the other, where LaTeX and code have none. (\w holds the _ of LaTeX's indices too.)
_REFERENCES = re.compile(r"(?<![\w\\^\]}])(?:\{[A-Za-z_]\w*\})+")
_NAME = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Template:
    """How a question is put.

    pattern: what is asked, with {question} and, for other columns of a row that hold text or a number, {column}; they
    are put in as they are, and nothing in them is looked at again. pattern_with: for rows whose column of that name is
    not empty, the pattern that takes the place of `pattern`; the first that fits. A brace right after a letter, digit,
    backslash or one of ^ _ ] } belongs to LaTeX or code and stays; so does one around anything but a name.
    chat: prefix + the filled pattern + suffix is one user turn of the tokenizer's chat template, after the system
    message; else that text is encoded as it stands, with the special tokens the tokenizer adds to any text. prefix
    holds worked examples in few-shot form; neither it nor suffix is filled. system None gives no system message, for
    which some templates (SmolLM2's) insert one of their own; "" gives an empty one. chat_template: a Jinja template, or
    the path of a file that holds one, in place of the tokenizer's; the model is saved with the tokenizer's own.
    Raises ValueError for a system message or chat_template without chat, a pattern without {question}, and a file that
    is not there.
    """

    system: str | None = None
    chat: bool = True
    prefix: str = ""
    suffix: str = ""
    pattern: str = "{question}"
    pattern_with: dict[str, str] | None = None
    chat_template: str | None = None

    def __post_init__(self) -> None:
        if self.system is not None and not self.chat:
            raise ValueError(
                f"system={self.system[:40]!r} with chat: false goes nowhere; put it into prefix, or give chat: true"
            )
        if self.chat_template is not None:
            if not self.chat:
                raise ValueError("chat_template with chat: false goes nowhere; leave it out, or give chat: true")
            self._jinja()
        for name, pattern in {"pattern": self.pattern, **(self.pattern_with or {})}.items():
            if not any("{question}" in run for run in _REFERENCES.findall(pattern)):
                raise ValueError(f"{name}={pattern[:60]!r} asks no question; put {{question}} where it belongs")

    def check(self, examples: Sequence[Example]) -> None:
        """ValueError where no example has a column of pattern_with, but one of nearly its name: a slip of the pen. Rows
        of several tables need not have it.
        """
        known = sorted({column for example in examples for column in example.columns})
        for column in self.pattern_with or {}:
            near = difflib.get_close_matches(column, known, n=1, cutoff=0.8)
            if column not in known and near:
                raise ValueError(f"template.pattern_with: no row has a column {column!r}; did you mean {near[0]}?")

    def asked(self, example: Example) -> str:
        """The user's words: prefix, the pattern with its columns filled in, suffix.

        Raises ValueError, with the near names, for a column that the row does not have or that holds no text.
        """
        special = (self.pattern_with or {}).items()
        pattern = next((p for column, p in special if example.columns.get(column)), self.pattern)
        filled = _REFERENCES.sub(lambda run: _NAME.sub(lambda name: _filled(name[1], example), run[0]), pattern)
        return self.prefix + filled + self.suffix

    def text(self, example: Example, tokenizer: PreTrainedTokenizerBase) -> str:
        """The whole prompt as text, up to where the answer begins.

        Raises ValueError where the tokenizer has no chat template or refuses these messages, and as `asked`.
        """
        asked = self.asked(example)
        if not self.chat:
            return asked
        if self.chat_template is None and not getattr(tokenizer, "chat_template", None):
            raise ValueError(
                "the tokenizer has no chat template, as base models often have none; set template.chat: false, "
                "or give template.chat_template"
            )
        system = [] if self.system is None else [{"role": "system", "content": self.system}]
        messages = [*system, {"role": "user", "content": asked}]
        own: dict[str, Any] = {} if self.chat_template is None else {"chat_template": self._jinja()}
        try:
            return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **own))
        except Exception as error:
            # jinja2 errors come out of templates that take no system message, among others
            raise ValueError(f"the chat template refuses {example.id}: {error}; try template.system: null") from error

    def _jinja(self) -> str:
        """The text of chat_template: itself where it has Jinja's braces, else what its file holds."""
        given = str(self.chat_template)
        return given if "{{" in given or "{%" in given else _file_text(given)

    def __call__(self, example: Example, tokenizer: PreTrainedTokenizerBase) -> Prompt:
        """The example with its token ids. A chat template writes its own special tokens, so none are added to it."""
        text = self.text(example, tokenizer)
        ids = tokenizer.encode(text, add_special_tokens=not self.chat)
        if not ids:
            raise ValueError(f"{example.id} encodes to no token; drop the row or give it a prefix")
        return Prompt(example, tuple(ids), text)


def _filled(name: str, example: Example) -> str:
    """What stands in a row's column: text or a number; an empty one is empty text."""
    if name == "question":
        return example.question
    if name not in example.columns:
        raise ValueError(
            f"template.pattern names {{{name}}}, but {example.id} has no such column"
            f"{near_misses(name, ['question', *example.columns])}; if it is no column, put a space inside the braces"
        )
    value = example.columns[name]
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"template.pattern names {{{name}}}, but it holds {type(value).__name__} in {example.id}")
    return str(value)


@cache
def _file_text(path: str) -> str:
    file = Path(path).expanduser()
    if not file.is_file():
        raise ValueError(f"template.chat_template: there is no file {file.absolute()}; give a path or a Jinja template")
    return file.read_text(encoding="utf-8")


@dataclass(frozen=True)
class EncodedPrompts:
    """The prompts that are asked, in order, and the ids of examples left out.

    too_long: for max_prompt_tokens; ungradable: without a usable gold; contaminated: questions of other data.
    """

    prompts: tuple[Prompt, ...]
    too_long: tuple[str, ...]
    ungradable: tuple[str, ...] = ()
    contaminated: tuple[str, ...] = ()

    @property
    def counts(self) -> str:
        """How many there are and how many were left out, as words for a log line."""
        ungradable = f", {len(self.ungradable)} as ungradable" if self.ungradable else ""
        contaminated = f", {len(self.contaminated)} as questions of other data" if self.contaminated else ""
        return f"{len(self.prompts)} prompts, {len(self.too_long)} left out as too long{ungradable}{contaminated}"

    @property
    def left_out(self) -> tuple[str, ...]:
        """The ids of all examples left out."""
        return (*self.too_long, *self.ungradable, *self.contaminated)


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
    template.check(examples)
    prompts = [template(example, tokenizer) for example in examples]
    fitting = tuple(p for p in prompts if len(p.token_ids) <= max_prompt_tokens)
    if not fitting:
        shortest = min((len(p.token_ids) for p in prompts), default=None)
        why = "there are no examples" if shortest is None else f"the shortest of {len(prompts)} has {shortest} tokens"
        raise ValueError(
            f"no prompt of at most max_prompt_tokens={max_prompt_tokens} tokens: {why}; raise it or shorten them"
        )
    return EncodedPrompts(fitting, tuple(p.id for p in prompts if len(p.token_ids) > max_prompt_tokens))
