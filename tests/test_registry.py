"""One registry a kind: joining, looking up, and what is said when a name is taken or unknown."""

from abc import ABC

import pytest

from gapo_lit import registry


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_kinds", {})
    monkeypatch.setattr(registry, "_components", {})


def declared() -> type:
    @registry.kind("shape")
    class Shape(ABC):  # noqa: B024
        pass

    return Shape


def test_a_part_is_known_by_its_class_name() -> None:
    shape = declared()

    @registry.register(source="Euclid, I.15")
    class Circle(shape):  # type: ignore[misc, valid-type]
        pass

    found = registry.lookup("shape", "Circle")
    assert (found.cls, found.source, found.plugin, found.name) == (Circle, "Euclid, I.15", None, "Circle")
    assert [part.name for part in registry.components("shape")] == ["Circle"]
    assert registry.kinds() == {"shape": shape}


def test_an_unknown_name_lists_near_ones() -> None:
    shape = declared()
    for name in ("Triangle", "Rectangle", "Circle"):
        registry.register(source="Euclid")(type(name, (shape,), {}))
    with pytest.raises(ValueError, match=r"no shape called 'Rectangel'; did you mean Rectangle"):
        registry.lookup("shape", "Rectangel")
    with pytest.raises(ValueError, match="known: Circle, Rectangle, Triangle"):
        registry.lookup("shape", "xyzzy")


def test_near_misses_do_not_mind_case() -> None:
    assert registry.near_misses("gapoclip", ["GAPOClip", "ConstantClip"]).startswith("; did you mean GAPOClip")
    assert registry.near_misses("anything", []) == "; known: none"


def test_a_taken_name_says_who_has_it() -> None:
    shape = declared()

    @registry.register(source="first")
    class Circle(shape):  # type: ignore[misc, valid-type]
        pass

    with pytest.raises(
        ValueError, match=r"'Circle' of .* was already registered by .*test_registry.*Circle \(line \d+"
    ):
        registry.register(source="second")(type("Circle", (shape,), {}))
    assert registry.lookup("shape", "Circle").source == "first"


def test_a_class_of_no_kind_is_refused() -> None:
    declared()
    with pytest.raises(TypeError, match="derives from no component kind; derive it from one of shape"):
        registry.register(source="nowhere")(type("Colour", (), {}))


def test_a_kind_is_declared_once() -> None:
    declared()
    with pytest.raises(ValueError, match="component kind 'shape' was already declared"):
        declared()
