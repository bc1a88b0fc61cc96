"""The figures of a run, each a function of a matplotlib figure and a history; false where there is nothing to draw."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from gapo_lit.callbacks.history import STEP, History

# Okabe and Ito's colours, told apart with every kind of colour blindness.
BLUE, ORANGE, GREEN, RED, PURPLE, SKY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"
COLUMNS_OF_A_MAP = 120
UPDATES = "updates"


def _reward(figure: Figure, history: History) -> bool:
    axes = _axes(figure, "Reward of training rollouts", "mean reward")
    drawn = _curve(axes, history, "train/reward", BLUE, "all parts" if history.names("train/reward/") else None)
    for name, colour in zip(history.names("train/reward/"), (ORANGE, GREEN, RED, PURPLE, SKY), strict=False):
        _curve(axes, history, name, colour, name.removeprefix("train/reward/"))
    return _finish(axes, drawn)


def _pass_at_k(figure: Figure, history: History) -> bool:
    axes = _axes(figure, "Problems solved", "pass@k")
    drawn = _curve(axes, history, "train/pass@1", SKY, "training, pass@1")
    names = history.names("val/pass@")
    for place, name in enumerate(names):
        steps, values = history.series(name)
        shade = _between(GREEN, RED, place / max(len(names) - 1, 1))
        axes.plot(
            steps, values, color=shade, marker="o", markersize=4, label=f"validation, {name.removeprefix('val/')}"
        )
    axes.set_ylim(-0.02, 1.02)
    return _finish(axes, drawn or bool(names))


def _clip_fraction(figure: Figure, history: History) -> bool:
    title = "Tokens at which the clip was active, without the first update of each rollout batch"
    axes = _axes(figure, title, "fraction of response tokens")
    later = History(history.later_updates())
    high = _curve(axes, later, "train/clip_fraction/high", RED, "upper bound")
    low = _curve(axes, later, "train/clip_fraction/low", BLUE, "lower bound")
    axes.set_ylim(bottom=0)
    return _finish(axes, high or low)


def _clip_by_count(figure: Figure, history: History) -> bool:
    sides = {"upper": "train/by_count/clip_fraction_high", "lower": "train/by_count/clip_fraction_low"}
    return _maps(figure, history, {f"{side} bound": name for side, name in sides.items()}, "fraction clipped")


def _ratio_by_count(figure: Figure, history: History) -> bool:
    return _maps(figure, history, {"distance from π_old": "train/by_count/ratio_deviation"}, "mean |ratio − 1|")


def _entropy(figure: Figure, history: History) -> bool:
    axes = _axes(figure, "Entropy of the policy", "nats a token")
    drawn = _curve(axes, history, "train/entropy", PURPLE)
    axes.set_ylim(bottom=0)
    return _finish(axes, drawn)


def _gradient_norm(figure: Figure, history: History) -> bool:
    axes = _axes(figure, "Gradient norm, before its own limit", "L2 norm")
    drawn = _curve(axes, history, "train/grad_norm", GREEN)
    axes.set_ylim(bottom=0)
    return _finish(axes, drawn)


def _lengths(figure: Figure, history: History) -> bool:
    axes = _axes(figure, "Length of completions", "tokens")
    drawn = _curve(axes, history, "train/completions/mean_length", BLUE, "mean length")
    axes.set_ylim(bottom=0)
    if not drawn:
        return False
    right = axes.twinx()
    _curve(right, history, "train/completions/truncated_fraction", ORANGE, "cut at max_tokens (right axis)")
    right.set_ylim(-0.02, 1.02)
    right.set_ylabel("fraction of completions")
    right.spines["top"].set_visible(False)
    lines = [*axes.get_lines(), *right.get_lines()]
    named = [line for line in lines if not str(line.get_label()).startswith("_")]
    axes.legend(named, [str(line.get_label()) for line in named], frameon=False)
    return True


FIGURES: dict[str, Callable[[Figure, History], bool]] = {
    "reward": _reward,
    "pass_at_k": _pass_at_k,
    "clip_fraction": _clip_fraction,
    "clip_fraction_by_success_count": _clip_by_count,
    "ratio_deviation_by_success_count": _ratio_by_count,
    "entropy": _entropy,
    "gradient_norm": _gradient_norm,
    "completion_length": _lengths,
}


def count_map(history: History, name: str, columns: int = COLUMNS_OF_A_MAP) -> tuple[np.ndarray, np.ndarray]:
    """(edges, map) of a metric by success count: map (k+1, columns), a mean over the updates between two edges.

    NaN where no group had that success count. Updates are put together so that there are at most `columns` of them;
    the first update of each rollout batch is left out, because its ratios are 1 by construction. Both are empty where
    the metric was not logged.
    """
    names = {int(n.rpartition("=")[2]): n for n in history.names(f"{name}/c=")}
    rows = [row for row in history.later_updates() if STEP in row]
    if not names or not rows:
        return np.zeros(0), np.zeros((0, 0))
    table = np.array([[row.get(names.get(c, ""), np.nan) for row in rows] for c in range(max(names) + 1)])
    parts = np.array_split(np.arange(len(rows)), min(columns, len(rows)))
    cells = np.stack([_mean_of_known(table[:, part]) for part in parts], axis=1)
    first = [rows[part[0]][STEP] - 0.5 for part in parts]
    return np.array([*first, rows[-1][STEP] + 0.5]), cells


def _mean_of_known(table: np.ndarray) -> np.ndarray:
    known = ~np.isnan(table)
    count = known.sum(1)
    total = np.where(known, table, 0.0).sum(1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _maps(figure: Figure, history: History, names: dict[str, str], label: str) -> bool:
    maps = {title: count_map(history, name) for title, name in names.items()}
    shown = {title: cells for title, (_, cells) in maps.items() if cells.size}
    if not shown:
        return False
    top = max(float(np.nanmax(cells, initial=0.0)) for cells in shown.values()) or 1.0
    panels = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    figure.set_size_inches(7, 2 + 2 * len(shown))
    figure.suptitle(f"{label.capitalize()}, by how many of the group are correct", fontsize="medium")
    for axes, title in zip(panels, shown, strict=True):
        edges, cells = maps[title]
        rows = np.arange(len(cells) + 1) - 0.5
        image = axes.pcolormesh(edges, rows, cells, cmap="viridis", vmin=0, vmax=top)
        axes.set_facecolor("#dddddd")
        axes.set_title(f"{title} (grey: no such group)", fontsize="small", loc="left")
        axes.set_ylabel("success count c")
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    panels[-1].set_xlabel(UPDATES)
    panels[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.colorbar(image, ax=list(panels), label=label)
    return True


def _axes(figure: Figure, title: str, unit: str) -> Axes:
    axes = figure.subplots()
    axes.set_title(title, loc="left", fontsize="medium")
    axes.set_xlabel(UPDATES)
    axes.set_ylabel(unit)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    return axes


def _curve(axes: Any, history: History, name: str, colour: str, label: str | None = None) -> bool:
    """The metric as it was logged, faint, and its running mean."""
    steps, values = history.series(name)
    if not values:
        return False
    window = max(1, len(values) // 25)
    smooth = window > 1
    axes.plot(steps, values, color=colour, alpha=0.3 if smooth else 1.0, linewidth=1, label=None if smooth else label)
    if smooth:
        axes.plot(steps, running_mean(np.array(values), window), color=colour, linewidth=2, label=label)
    return True


def running_mean(values: np.ndarray, window: int) -> np.ndarray:
    """Mean over the `window` values up to and including each, fewer at the start; NaN counts as missing."""
    known = ~np.isnan(values)
    total = np.cumsum(np.where(known, values, 0.0))
    count = np.cumsum(known)
    total[window:], count[window:] = total[window:] - total[:-window], count[window:] - count[:-window]
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _finish(axes: Axes, drawn: bool) -> bool:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return drawn


def _between(start: str, end: str, share: float) -> tuple[float, ...]:
    return tuple((1 - share) * a + share * b for a, b in zip(to_rgb(start), to_rgb(end), strict=True))
