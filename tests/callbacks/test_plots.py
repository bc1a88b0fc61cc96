import math
from pathlib import Path

import numpy as np
import pytest
from matplotlib import pyplot
from PIL import Image

from gapo_lit.callbacks import PlotCurves
from gapo_lit.callbacks import plots as module
from gapo_lit.callbacks.figures import FIGURES, count_map, running_mean
from gapo_lit.callbacks.history import History
from gapo_lit.callbacks.plots import draw_run
from tests.callbacks.fake_run import run


def history(updates: int = 60) -> History:
    rows = []
    for step in range(1, updates + 1):
        index = (step - 1) % 4
        names = ("reward", "reward/format", "pass@1", "entropy", "grad_norm", "completions/mean_length")
        row = {f"train/{name}": 0.5 + 0.1 * index for name in names}
        row |= {"train/clip_fraction/high": 0.1 * index, "train/clip_fraction/low": 0.05 * index}
        row |= {"train/completions/truncated_fraction": 0.1, "train/policy_version": float(step - 1 - index)}
        for c in range(0, 9, 2):
            for name in ("clip_fraction_high", "clip_fraction_low", "ratio_deviation"):
                row[f"train/by_count/{name}/c={c}"] = 0.01 * c * index
        rows.append({"step": float(step), **row})
        if step % 20 == 0:
            rows.append({"step": float(step), "val/pass@1": 0.5, "val/pass@8": 0.9})
    return History(rows)


def test_every_figure_is_drawn_and_is_not_blank(tmp_path: Path) -> None:
    files = draw_run(history(), tmp_path / "plots", dpi=50)
    assert [file.stem for file in files] == list(FIGURES)
    for file in files:
        with Image.open(file) as image:
            assert image.width == 350
            assert len(image.convert("RGB").getcolors(1 << 20)) > 20
    assert pyplot.get_fignums() == []  # figures of our own, none in pyplot's list


def test_figures_without_metrics_are_left_out(tmp_path: Path) -> None:
    assert draw_run(History([]), tmp_path) == []
    only = History([{"step": 1.0, "train/entropy": 1.0}, {"step": 2.0, "train/entropy": math.nan}])
    assert [file.name for file in draw_run(only, tmp_path, dpi=40)] == ["entropy.png"]


def test_count_map_averages_later_updates() -> None:
    edges, cells = count_map(history(8), "train/by_count/clip_fraction_high")
    assert edges.tolist() == [1.5, 2.5, 3.5, 5.5, 6.5, 7.5, 8.5]  # updates 1 and 5 begin rollout batches
    assert cells.shape == (9, 6)
    np.testing.assert_allclose(cells[8], [0.08, 0.16, 0.24] * 2)
    assert np.isnan(cells[1::2]).all()
    _, coarse = count_map(history(8), "train/by_count/clip_fraction_high", columns=2)
    np.testing.assert_allclose(coarse[8], [0.16, 0.16])
    assert count_map(history(8), "train/by_count/unknown")[1].size == 0


def test_running_mean() -> None:
    values = np.array([1.0, 3.0, np.nan, 5.0, 7.0])
    np.testing.assert_allclose(running_mean(values, 2), [1.0, 2.0, 3.0, 5.0, 6.0])


def test_a_run_leaves_plots(tmp_path: Path) -> None:
    trainer = run(tmp_path, PlotCurves(every_validation=False, dpi=40))
    names = {file.stem for file in (Path(trainer.log_dir) / "plots").iterdir()}
    assert names >= {"reward", "pass_at_k", "clip_fraction", "clip_fraction_by_success_count", "gradient_norm"}


def test_a_plot_that_fails_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("no pixels")

    monkeypatch.setattr(module, "draw_run", fail)
    with pytest.warns(UserWarning, match="could not be drawn: ZeroDivisionError"):
        trainer = run(tmp_path, PlotCurves())
    assert trainer.global_step == 4


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="dpi=0"):
        PlotCurves(dpi=0)
