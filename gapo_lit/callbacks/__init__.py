"""What watches a run and keeps what it leaves behind; each is named in a recipe by its class name."""

from gapo_lit.callbacks.checkpoint import RunCheckpoint
from gapo_lit.callbacks.evaluation import EvaluationReport
from gapo_lit.callbacks.export import ExportModel
from gapo_lit.callbacks.plots import PlotCurves
from gapo_lit.callbacks.progress import RolloutProgressBar
from gapo_lit.callbacks.run_folder import RunLogger
from gapo_lit.callbacks.samples import SampleTable
from gapo_lit.callbacks.summary import RunSummary

__all__ = [
    "EvaluationReport",
    "ExportModel",
    "PlotCurves",
    "RolloutProgressBar",
    "RunCheckpoint",
    "RunLogger",
    "RunSummary",
    "SampleTable",
]
