"""IFEval's instructions as a row of data names them: an id and its arguments, read, checked and made a predicate."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from gapo_lit.registry import near_misses
from gapo_lit.rewards import ifeval_checks as checks
from gapo_lit.rewards.ifeval_text import language_detector, sentence_splitter

IDS = "instruction_id_list"
ARGUMENTS = "kwargs"
RELATIONS = ("less than", "at least")

Check = Callable[[str], bool]


@dataclass(frozen=True)
class Instruction:
    """An instruction's predicate, how each of its arguments is read, and what must be installed for it."""

    check: Callable[..., bool]
    arguments: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    needs: Callable[[], object] | None = None

    def bind(self, given: Mapping[str, Any]) -> Check:
        """The predicate with its arguments; None stands for one that is not given.

        Raises ValueError for an argument that is missing, unknown or of a wrong value.
        """
        values = {name: value for name, value in given.items() if value is not None}
        for name in values:
            if name not in self.arguments:
                raise ValueError(f"takes no argument {name!r}{near_misses(name, self.arguments)}")
        read = {}
        for name, reader in self.arguments.items():
            if name not in values:
                raise ValueError(f"lacks its argument {name!r}")
            try:
                read[name] = reader(values[name])
            except ValueError as error:
                raise ValueError(f"{name}={str(values[name])[:60]!r} {error}") from None
        if "nth_paragraph" in read and read["nth_paragraph"] > read["num_paragraphs"]:
            raise ValueError(f"asks for paragraph {read['nth_paragraph']} of {read['num_paragraphs']}")
        return partial(self.check, **read)


def row_checks(columns: Mapping[str, Any]) -> list[tuple[str, Check]]:
    """The ids and predicates of a row's instructions, in order.

    columns: `instruction_id_list`, n ids, and `kwargs`, n mappings of their arguments; either may be text, as JSON or
    as Python literals. Raises ValueError saying what is wrong, ImportError where an instruction's package is missing.
    """
    ids, given = _listed(columns, IDS), _listed(columns, ARGUMENTS)
    if not ids:
        raise ValueError(f"{IDS} is empty")
    if len(ids) != len(given):
        raise ValueError(f"{len(ids)} instructions but {len(given)} {ARGUMENTS}")
    return [(id, _bound(id, _parsed(arguments))) for id, arguments in zip(ids, given, strict=True)]


def _bound(id: Any, arguments: Any) -> Check:
    instruction = INSTRUCTIONS.get(id) if isinstance(id, str) else None
    if instruction is None:
        raise ValueError(f"there is no instruction {id!r}{near_misses(str(id), INSTRUCTIONS)}")
    if not isinstance(arguments, Mapping | None):
        raise ValueError(f"{id}: arguments {str(arguments)[:60]!r} are no mapping")
    if instruction.needs is not None:
        instruction.needs()
    try:
        return instruction.bind(arguments or {})
    except ValueError as error:
        raise ValueError(f"{id} {error}") from None


def _listed(columns: Mapping[str, Any], name: str) -> Sequence[Any]:
    if name not in columns:
        raise ValueError(f"there is no column {name!r}{near_misses(name, columns)}")
    value = _parsed(columns[name])
    if not isinstance(value, list | tuple):
        raise ValueError(f"{name} is no list but {str(value)[:60]!r}")
    return value


def _parsed(value: Any) -> Any:
    """What a text holds as JSON or as Python literals; any other value as it is."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        pass
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise ValueError(f"{value[:60]!r} is neither JSON nor a Python literal") from None


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value % 1 != 0 or value < 1:
        raise ValueError("is no whole number of at least 1")
    return int(value)


def _words(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not value:
        raise ValueError("is no list of words")
    return tuple(_phrase(word) for word in value)


def _phrase(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("is no text")
    return value


def _letter(value: Any) -> str:
    if not isinstance(value, str) or len(value) != 1:
        raise ValueError("is no single character")
    return value


def _relation(value: Any) -> str:
    if value not in RELATIONS:
        raise ValueError(f"is no relation{near_misses(str(value), RELATIONS)}")
    return str(value)


def _language(value: Any) -> str:
    known = language_detector().get_lang_list()
    if value not in known:
        raise ValueError(f"is no language that can be told{near_misses(str(value), known)}")
    return str(value)


INSTRUCTIONS: Mapping[str, Instruction] = {
    "keywords:existence": Instruction(checks.keywords_exist, {"keywords": _words}),
    "keywords:frequency": Instruction(
        checks.keyword_frequency, {"keyword": _phrase, "frequency": _count, "relation": _relation}
    ),
    "keywords:forbidden_words": Instruction(checks.no_forbidden_words, {"forbidden_words": _words}),
    "keywords:letter_frequency": Instruction(
        checks.letter_frequency, {"letter": _letter, "let_frequency": _count, "let_relation": _relation}
    ),
    "language:response_language": Instruction(checks.response_language, {"language": _language}, language_detector),
    "length_constraints:number_sentences": Instruction(
        checks.number_of_sentences, {"num_sentences": _count, "relation": _relation}, sentence_splitter
    ),
    "length_constraints:number_paragraphs": Instruction(checks.number_of_paragraphs, {"num_paragraphs": _count}),
    "length_constraints:number_words": Instruction(
        checks.number_of_words, {"num_words": _count, "relation": _relation}
    ),
    "length_constraints:nth_paragraph_first_word": Instruction(
        checks.nth_paragraph_first_word, {"num_paragraphs": _count, "nth_paragraph": _count, "first_word": _phrase}
    ),
    "detectable_content:postscript": Instruction(checks.postscript, {"postscript_marker": _phrase}),
    "detectable_content:number_placeholders": Instruction(checks.number_of_placeholders, {"num_placeholders": _count}),
    "detectable_format:number_bullet_lists": Instruction(checks.number_of_bullets, {"num_bullets": _count}),
    "detectable_format:number_highlighted_sections": Instruction(
        checks.number_of_highlights, {"num_highlights": _count}
    ),
    "detectable_format:multiple_sections": Instruction(
        checks.multiple_sections, {"section_spliter": _phrase, "num_sections": _count}
    ),
    "detectable_format:title": Instruction(checks.title),
    "detectable_format:json_format": Instruction(checks.json_format),
    "detectable_format:constrained_response": Instruction(checks.constrained_response),
    "combination:two_responses": Instruction(checks.two_responses),
    "combination:repeat_prompt": Instruction(checks.repeat_prompt, {"prompt_to_repeat": _phrase}),
    "startend:end_checker": Instruction(checks.end_checker, {"end_phrase": _phrase}),
    "startend:quotation": Instruction(checks.quotation),
    "change_case:capital_word_frequency": Instruction(
        checks.capital_word_frequency,
        {"capital_frequency": _count, "capital_relation": _relation},
        sentence_splitter,
    ),
    "change_case:english_capital": Instruction(checks.english_capital, needs=language_detector),
    "change_case:english_lowercase": Instruction(checks.english_lowercase, needs=language_detector),
    "punctuation:no_comma": Instruction(checks.no_comma),
}
