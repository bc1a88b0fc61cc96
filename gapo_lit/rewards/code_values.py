"""Plain values as JSON trees, so that what a program returns is data wherever it arrives. Needs no import at all: the
same code runs inside the sandbox.

A tree is a string, bool, None, small integer or finite float as itself, a list of trees, or an object with one key
that says what it holds: i (integer, hex), f (float), c (complex), b (bytes, hex), t (tuple), s (set), z (frozenset),
d (dictionary, as pairs).
"""

from __future__ import annotations

DEEPEST = 200
_SMALL = 1 << 53


def pack(value: object, depth: int = 0) -> object:
    """The tree of a plain value. An instance of a class derived from a plain one is taken for its plain content,
    whatever methods it overrides; numpy scalars for the number they hold. Raises TypeError for anything else and
    ValueError for nesting deeper than 200.
    """
    if depth > DEEPEST:
        raise ValueError(f"nested more than {DEEPEST} deep")
    if value is None or value is True or value is False:
        return value
    if isinstance(value, int):
        number = int.__index__(value)
        return number if -_SMALL < number < _SMALL else {"i": hex(number)}
    if isinstance(value, float):
        real = float.__float__(value)
        return real if real - real == 0 else {"f": float.hex(real)}
    if isinstance(value, str):
        return str.__str__(value)
    for base, key in (
        (list, ""), (tuple, "t"), (set, "s"), (frozenset, "z")
    ):  # fmt: skip
        if isinstance(value, base):
            items = [pack(item, depth + 1) for item in base.__iter__(value)]  # type: ignore[arg-type]
            return {key: items} if key else items
    if isinstance(value, dict):
        return {"d": [[pack(k, depth + 1), pack(v, depth + 1)] for k, v in dict.items(value)]}
    return _pack_rare(value, depth)


def _pack_rare(value: object, depth: int) -> object:
    if isinstance(value, complex):
        return {"c": [float.hex(value.real), float.hex(value.imag)]}
    if isinstance(value, bytes | bytearray):
        return {"b": bytes(value).hex()}
    kind = type(value)
    if kind.__module__ == "numpy" and getattr(value, "shape", None) == ():
        return pack(value.item(), depth + 1)  # type: ignore[attr-defined]
    raise TypeError(f"{kind.__name__} is no plain value")


def unpack(tree: object) -> object:
    """The value of a tree. Raises ValueError, TypeError or RecursionError where it is none."""
    if isinstance(tree, list):
        return [unpack(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if len(tree) != 1:
        raise ValueError("a tagged value has one key")
    ((key, body),) = tree.items()
    if key == "i":
        return int(body, 16)
    if key == "f":
        return float.fromhex(body)
    if key == "b":
        return bytes.fromhex(body)
    if key == "c":
        return complex(float.fromhex(body[0]), float.fromhex(body[1]))
    if not isinstance(body, list):
        raise ValueError(f"{key} holds no list")
    if key == "t":
        return tuple([unpack(item) for item in body])
    return _unpack_hashed(key, body)


def _unpack_hashed(key: str, body: list[object]) -> object:
    # Added one by one: keys made to collide take long, and between two of them an alarm can stop it.
    if key == "d":
        table: dict[object, object] = {}
        for pair in body:
            table[unpack(pair[0])] = unpack(pair[1])  # type: ignore[index]
        return table
    items: set[object] = set()
    for item in body:
        items.add(unpack(item))
    if key == "s":
        return items
    if key == "z":
        return frozenset(items)
    raise ValueError(f"unknown kind {key}")
