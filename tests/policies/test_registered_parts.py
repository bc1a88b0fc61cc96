import pytest

import gapo_lit.policies  # noqa: F401  (registers the parts, those of gapo_lit.clipping too)
from gapo_lit import registry


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("ratio", {"TokenRatio", "SequenceRatio"}),
        ("advantage", {"GroupMean", "GroupStd", "LeaveOneOut", "Focal"}),
        ("aggregation", {"TokenMean", "SequenceMeanTokenMean", "SequenceMeanTokenSum", "ConstantLength"}),
        ("kl", {"K1", "K2", "K3"}),
        ("correction", {"TruncatedImportance"}),
        ("surrogate", {"PPOClip", "DualClip", "CISPO"}),
        (
            "clip",
            {
                "ConstantClip",
                "GAPOClip",
                "ExponentialClip",
                "HarmonicClip",
                "MatchedWidthClip",
                "ReversedClip",
                "TwoSidedClip",
            },
        ),
    ],
)
def test_parts_are_registered_with_a_source_and_a_docstring(kind, names):
    ours = {
        c.name: c for c in registry.components(kind) if c.plugin is None and c.cls.__module__.startswith("gapo_lit.")
    }
    assert set(ours) == names
    assert all(c.source and c.cls.__doc__ for c in ours.values())
