"""The tests of a row, out of the columns of the data sets that people use; each layout is told by its columns.

======================  ==============================================================================================
humaneval               prompt, test (code that defines check(candidate)), entry_point; HumanEval+ on the hub too
humaneval_plus          prompt, base_input, plus_input, entry_point, atol, and the reference solution, which tells what
                        the outputs are (canonical_solution, else the row's answer)
livecodebench           public_test_cases, private_test_cases, metadata (func_name), starter_code: code_generation_lite
deepcoder               tests: {inputs, outputs, fn_name}, or a list of {type or testtype, input, output, fn_name or
                        metadata.func_name}: DeepCoder-Preview, TACO, APPS, PrimeIntellect
======================  ==============================================================================================
"""

from __future__ import annotations

import base64
import io
import json
import pickle
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Literal, get_args

from gapo_lit.rewards.code_values import pack
from gapo_lit.types import Example

Layout = Literal["humaneval", "humaneval_plus", "livecodebench", "deepcoder"]
Kind = Literal["stdin", "call", "assert"]
_MARKS: dict[str, tuple[str, ...]] = {
    "livecodebench": ("public_test_cases",),
    "humaneval_plus": ("base_input", "plus_input", "entry_point"),
    "humaneval": ("test", "entry_point"),
    "deepcoder": ("tests",),
}
_UNPACKED_LIMIT = 1 << 30  # bytes; a private test file of LiveCodeBench unpacks to some tens of megabytes


@dataclass(frozen=True)
class Task:
    """What a program is graded by.

    tests: for "stdin" pairs (input, output) of text; for "call" pairs (arguments, output) as trees of
    `code_values.pack`, output None until the reference has told it; for "assert" nothing, `test` is code. entry: the
    function called. head: code that a completion goes on with. reference: a whole right program. atol: the row's own
    tolerance. loose: values come from JSON, which knows neither tuples nor keys that are no text. unwrap: an output may
    stand in a list of its own. names: whether the usual modules are at hand without an import.
    """

    kind: Kind
    tests: tuple[tuple[Any, Any], ...] = ()
    test: str = ""
    entry: str = ""
    head: str = ""
    reference: str = ""
    atol: float = 0.0
    loose: bool = False
    unwrap: bool = False
    names: bool = False


def layout_of(columns: Mapping[str, Any]) -> Layout:
    """The layout that a row's columns show; ValueError where they show none."""
    for layout, marks in _MARKS.items():
        if all(mark in columns for mark in marks):
            return layout  # type: ignore[return-value]
    known = "; ".join(f"{layout}: {', '.join(marks)}" for layout, marks in _MARKS.items())
    raise ValueError(f"columns {', '.join(sorted(columns)) or '(none)'} hold no tests of a known layout ({known})")


def task_of(example: Example, layout: Layout | Literal["auto"]) -> Task:
    """The tests of a row. Raises ValueError, without the row's name, where they are missing or cannot be read."""
    columns = example.columns
    which = layout_of(columns) if layout == "auto" else layout
    missing = [name for name in _MARKS[which] if name not in columns]
    if missing:
        raise ValueError(f"column {missing[0]} of the layout {which} is missing")
    task = _READERS[which](example)
    if task.kind != "assert" and not task.tests:
        raise ValueError("no tests")
    return task


def longest(task: Task, count: int | None) -> Task:
    """The task with only the `count` tests whose input is longest, in their order; all of them for None."""
    if count is None or len(task.tests) <= count:
        return task
    sizes = [len(test[0]) if isinstance(test[0], str) else len(json.dumps(test[0])) for test in task.tests]
    kept = sorted(sorted(range(len(sizes)), key=lambda i: -sizes[i])[:count])
    return replace(task, tests=tuple(task.tests[i] for i in kept))


def _humaneval(example: Example) -> Task:
    test, entry = _text(example.columns, "test"), _text(example.columns, "entry_point")
    if not test.strip() or not entry.isidentifier():
        raise ValueError(f"test is empty, or entry_point {entry!r} is no name")
    return Task("assert", test=test, entry=entry, head=_head(example))


def _humaneval_plus(example: Example) -> Task:
    columns, head = example.columns, _head(example)
    solution = columns.get("canonical_solution") or example.answer
    if not isinstance(solution, str) or not solution.strip():
        raise ValueError("no reference solution: neither canonical_solution nor an answer")
    inputs = [*_listed(columns["base_input"], "base_input"), *_listed(columns["plus_input"], "plus_input")]
    tests = tuple((pack(_listed(i, "an input")), None) for i in inputs)
    atol, entry = float(columns.get("atol") or 0), _text(columns, "entry_point")
    return Task("call", tests, entry=entry, head=head, reference=head + solution, atol=atol)


def _livecodebench(example: Example) -> Task:
    columns = example.columns
    cases = _listed(columns["public_test_cases"], "public_test_cases")
    cases += _private(columns.get("private_test_cases") or "[]")
    return _cases(cases, _func_name(columns.get("metadata")))


def _deepcoder(example: Example) -> Task:
    tests = example.columns["tests"]
    tests = _parsed(tests, "tests") if isinstance(tests, str) else tests
    if isinstance(tests, Mapping):
        inputs, outputs = _listed(tests.get("inputs"), "inputs"), _listed(tests.get("outputs"), "outputs")
        if len(inputs) != len(outputs):
            raise ValueError(f"{len(inputs)} inputs but {len(outputs)} outputs")
        pairs = zip(inputs, outputs, strict=True)
        return _cases([{"input": i, "output": o} for i, o in pairs], tests.get("fn_name") or "")
    return _cases(_listed(tests, "tests"), _func_name(example.columns.get("metadata")))


_READERS = {
    "humaneval": _humaneval,
    "humaneval_plus": _humaneval_plus,
    "livecodebench": _livecodebench,
    "deepcoder": _deepcoder,
}
assert set(_READERS) == set(get_args(Layout))


def _cases(cases: Sequence[Any], entry: str) -> Task:
    """A task of {input, output} cases, all of one kind: calls of a function where one is named, else standard input."""
    kinds, names = set(), set()
    for case in cases:
        if not isinstance(case, Mapping) or "input" not in case or "output" not in case:
            raise ValueError("a test without input and output")
        name = case.get("fn_name") or _func_name(case.get("metadata")) or entry
        kind = case.get("testtype") or case.get("type") or ("functional" if name else "stdin")
        if kind not in ("stdin", "stdin_stdout", "functional", "function_call"):
            raise ValueError(f"a test of the unknown type {kind!r}")
        kinds.add(kind.startswith("function"))
        names.add(name)
    if len(kinds) > 1:
        raise ValueError("tests by standard input and by function calls in one row")
    if True not in kinds:
        return Task("stdin", tuple((_lines(c["input"]), _lines(c["output"])) for c in cases), names=True)
    if len(names) != 1 or not isinstance(name := names.pop(), str) or not name:
        raise ValueError("function tests that do not all name one function (fn_name, or func_name in metadata)")
    unwrap = not all(isinstance(c["output"], str) for c in cases)
    tests = tuple((pack(_arguments(c["input"])), pack(_value(c["output"]))) for c in cases)
    return Task("call", tests, entry=name, loose=True, unwrap=unwrap, names=True)


def _arguments(given: Any) -> list[Any]:
    """A call's arguments: a list of them, or JSON, one argument a line."""
    if isinstance(given, str):
        return [_parsed(line, "an input") for line in given.splitlines() if line.strip()]
    return _listed(given, "an input")


def _value(given: Any) -> Any:
    if not isinstance(given, str):
        return given
    try:
        return _parsed(given, "an output")
    except ValueError:  # a text that stands for itself
        return given


def _lines(given: Any) -> str:
    """What goes to or comes from a stream: a text, or a list of its lines."""
    if isinstance(given, list):
        return "\n".join(map(str, given)) + "\n"
    if not isinstance(given, str):
        raise ValueError(f"a {type(given).__name__} for standard input or output; give a text")
    return given


def _func_name(metadata: Any) -> str:
    if isinstance(metadata, str):
        metadata = _parsed(metadata, "metadata") if metadata.strip() else {}
    name = metadata.get("func_name") if isinstance(metadata, Mapping) else None
    return name if isinstance(name, str) else ""


def _private(packed: Any) -> list[Any]:
    """LiveCodeBench's private tests: JSON, or JSON pickled, compressed and in base64."""
    if not isinstance(packed, str):
        return _listed(packed, "private_test_cases")
    if packed.lstrip().startswith("["):
        return _listed(packed, "private_test_cases")
    try:
        inflate = zlib.decompressobj()
        raw = inflate.decompress(base64.b64decode(packed, validate=True), _UNPACKED_LIMIT)
        if inflate.unconsumed_tail:
            raise ValueError(f"they unpack to more than {_UNPACKED_LIMIT >> 20} MB")
        text = _TextOnly(io.BytesIO(raw)).load()
    except (ValueError, zlib.error, pickle.UnpicklingError, EOFError, IndexError, KeyError, AttributeError) as error:
        raise ValueError(f"private_test_cases cannot be read: {error}") from error
    if not isinstance(text, str):
        raise ValueError(f"private_test_cases hold a pickled {type(text).__name__}, not text")
    return _listed(text, "private_test_cases")


class _TextOnly(pickle.Unpickler):
    """Reads pickles of plain values: whatever would name a class or function, and so could run code, is refused."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"a pickle that names {module}.{name} could run code")


def _head(example: Example) -> str:
    prompt = example.columns.get("prompt", example.question)
    if not isinstance(prompt, str):
        raise ValueError("prompt is no text")
    return prompt


def _text(columns: Mapping[str, Any], name: str) -> str:
    if not isinstance(columns[name], str):
        raise ValueError(f"column {name} is no text")
    return str(columns[name])


def _listed(given: Any, name: str) -> list[Any]:
    value = _parsed(given, name) if isinstance(given, str) else given
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise ValueError(f"{name} is a {type(value).__name__}, not a list")
    return list(value)


def _parsed(text: str, name: str) -> Any:
    try:
        return json.loads(text, parse_int=_integer)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} is no JSON: {error}") from error


def _integer(digits: str) -> int:
    """As int(), which refuses more than 4,300 digits."""
    return int(digits) if len(digits) < 4000 else int(Decimal(digits))
