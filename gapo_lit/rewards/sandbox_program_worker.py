"""Making a module of a program, inside the sandbox, where this too is sent as code."""

from __future__ import annotations

import builtins
import sys
from types import CodeType, ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:  # the real one costs an import of typing in every sandbox
    from typing import Any

# Names that contest programs use without importing them: their judges import these beforehand.
_MODULES = set(
    "bisect collections copy datetime decimal fractions functools heapq io itertools json math operator os random re "  # noqa: SIM905
    "statistics string sys time typing".split()
)
_NAMES = {
    "typing": "List Dict Set Tuple Optional Union Any Callable Deque DefaultDict Iterable Iterator Sequence",
    "collections": "deque defaultdict Counter OrderedDict namedtuple ChainMap",
    "heapq": "heappush heappop heapify heappushpop heapreplace nlargest nsmallest merge",
    "bisect": "bisect bisect_left bisect_right insort insort_left insort_right",
    "itertools": "accumulate chain combinations combinations_with_replacement count cycle groupby islice pairwise "
    "permutations product repeat starmap takewhile dropwhile zip_longest",
    "functools": "cache cmp_to_key lru_cache partial reduce total_ordering wraps",
    "math": "ceil comb cos exp factorial floor gcd hypot inf isqrt lcm log log10 log2 pi prod sin sqrt tan",
    "copy": "copy deepcopy",
    "string": "ascii_letters ascii_lowercase ascii_uppercase digits punctuation",
    "operator": "add itemgetter mul sub xor",
    "random": "choice randint shuffle",
    "datetime": "datetime timedelta",
    "io": "BytesIO StringIO",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}


def complete(prompt: str) -> CodeType:
    """A prompt that stops after a function's head or docstring, as a module."""
    try:
        return compile(prompt, "prompt", "exec", dont_inherit=True)
    except SyntaxError:
        return compile(f"{prompt}\n    pass\n", "prompt", "exec", dont_inherit=True)


def compiled(message: dict[str, Any], name: str) -> tuple[CodeType, dict[str, Any]]:
    """The program as code, and the namespace of the module it is."""
    code = _parsed(message["program"], message["prefix"])
    module = ModuleType(name)
    sys.modules[name] = module
    if message["names"]:
        for unknown in _used(code) - vars(builtins).keys():
            if unknown in _HOME:
                setattr(module, unknown, getattr(__import__(_HOME[unknown]), unknown))
            elif unknown in _MODULES:
                setattr(module, unknown, __import__(unknown))
    sys.argv = ["solution.py"]
    return code, vars(module)


def _parsed(source: str, prefix: int) -> CodeType:
    """`source` compiled. Past its first `prefix` characters, text that is no Python is cut off from the end, back to a
    line that starts at the margin: what a policy writes after the function it was to continue.
    """
    end = len(source)
    while True:
        try:
            return compile(source[:end], "solution.py", "exec", dont_inherit=True)
        except SyntaxError:
            if not prefix:
                raise
            end = source.rfind("\n", prefix, end)
            while end > prefix and source[end + 1 : end + 2] in (" ", "\t", "\n", "#", ""):
                end = source.rfind("\n", prefix, end)
            if end <= prefix:
                raise


def _used(code: CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _used(constant)
    return names
