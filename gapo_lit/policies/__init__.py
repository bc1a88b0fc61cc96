"""Policy optimisation as pure functions on tensors, and the objective that composes them. Needs torch alone."""

from gapo_lit.policies.advantages import Advantage, Focal, GroupMean, GroupStd, LeaveOneOut
from gapo_lit.policies.aggregation import (
    Aggregation,
    ConstantLength,
    SequenceMeanTokenMean,
    SequenceMeanTokenSum,
    TokenMean,
)
from gapo_lit.policies.correction import Correction, TruncatedImportance, mismatch_metrics
from gapo_lit.policies.groups import group_center, group_mean, group_size, group_stats, group_sum
from gapo_lit.policies.kl import K1, K2, K3, KLEstimator
from gapo_lit.policies.objective import Objective
from gapo_lit.policies.ratio import Ratio, SequenceRatio, TokenRatio

__all__ = [
    "K1",
    "K2",
    "K3",
    "Advantage",
    "Aggregation",
    "ConstantLength",
    "Correction",
    "Focal",
    "GroupMean",
    "GroupStd",
    "KLEstimator",
    "LeaveOneOut",
    "Objective",
    "Ratio",
    "SequenceMeanTokenMean",
    "SequenceMeanTokenSum",
    "SequenceRatio",
    "TokenMean",
    "TokenRatio",
    "TruncatedImportance",
    "group_center",
    "group_mean",
    "group_size",
    "group_stats",
    "group_sum",
    "mismatch_metrics",
]
