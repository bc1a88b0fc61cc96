"""What is measured of a policy, as torchmetrics."""

from gapo_lit.metrics.pass_at_k import PassAtK, pass_at_k

__all__ = ["PassAtK", "pass_at_k"]
