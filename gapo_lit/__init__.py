"""Group-relative RL with verifiable rewards on PyTorch Lightning: GAPO and every method it is compared with.

Importing this package loads nothing heavy; `gapo_lit.policies` and `gapo_lit.clipping` need torch alone.
"""

__version__ = "0.1.0"
