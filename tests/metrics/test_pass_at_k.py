import json
import math
from pathlib import Path

import pytest
import torch

from gapo_lit.metrics import PassAtK, pass_at_k

GOLDEN = json.loads((Path(__file__).parents[1] / "golden/pass_at_k.json").read_text())


def test_every_golden_row():
    assert len(GOLDEN["rows"]) == 462
    for row in GOLDEN["rows"]:
        exact = int(row["num"]) / int(row["den"])
        assert pass_at_k(row["n"], row["c"], row["k"]) == exact == pytest.approx(row["float"], rel=1e-10, abs=1e-15), (
            row
        )


@pytest.mark.parametrize("row", GOLDEN["dataset_means"], ids=lambda row: f"{row['name']}-{row['k']}")
def test_dataset_means(row):
    metric = PassAtK([row["k"]])
    metric.update(torch.tensor(row["n"]), torch.tensor(row["c"]))
    assert metric.compute()[f"pass@{row['k']}"].item() == pytest.approx(row["float"], rel=1e-10)


@pytest.mark.parametrize("row", GOLDEN["undefined"], ids=str)
def test_k_above_n_is_an_error(row):
    with pytest.raises(ValueError, match=rf"pass@{row['k']} cannot be estimated from n={row['n']}"):
        pass_at_k(row["n"], row["c"], row["k"])
    with pytest.raises(ValueError, match="cannot be estimated"):
        PassAtK([1, row["k"]]).update(torch.tensor([row["n"]]), torch.tensor([row["c"]]))


@pytest.mark.parametrize(("n", "c", "k"), [(4, 5, 1), (4, -1, 1), (4, 2, 0)])
def test_counts_that_cannot_be(n, c, k):
    with pytest.raises(ValueError, match="give"):
        pass_at_k(n, c, k)


def test_metric_accumulates_and_resets():
    metric = PassAtK(ks=[8, 1, 8])
    metric.update(torch.tensor([8, 8]), torch.tensor([0, 8]))
    metric.update(torch.tensor([8]), torch.tensor([2]))
    values = metric.compute()
    assert list(values) == ["pass@1", "pass@8"]
    assert values["pass@1"].item() == pytest.approx((0 + 1 + 0.25) / 3)
    assert values["pass@8"].item() == pytest.approx(2 / 3)
    metric.reset()
    metric.update(torch.tensor([8]), torch.tensor([8]))
    assert metric.compute()["pass@8"] == 1


@pytest.mark.filterwarnings("ignore:The ``compute`` method")
def test_no_problem_gives_nan():
    assert math.isnan(PassAtK([1]).compute()["pass@1"])


def test_bad_arguments():
    with pytest.raises(ValueError, match="ks="):
        PassAtK([])
    with pytest.raises(ValueError, match="ks="):
        PassAtK([0, 1])
    with pytest.raises(ValueError, match="shape"):
        PassAtK([1]).update(torch.tensor([[4]]), torch.tensor([1]))


def connected(metrics, rank):
    """`metrics[rank]`, set to gather from all of them by torchmetrics' own sync but without processes."""
    others = {name: [torch.cat([*getattr(m, name)] or [torch.tensor([])]) for m in metrics] for name in ("n", "c")}
    gathered = iter(others.values())

    def gather(mine, group=None):
        every = next(gathered)
        # a real gather cannot mix dtypes, so a rank without problems must send the others' dtype
        assert torch.equal(mine, every[rank])
        assert len({part.dtype for part in every} | {mine.dtype}) == 1
        return every

    metrics[rank].dist_sync_fn = gather
    metrics[rank].distributed_available_fn = lambda: True
    return metrics[rank]


@pytest.mark.filterwarnings("ignore:The ``compute`` method")  # a rank without problems computes before any update
@pytest.mark.parametrize(
    "problems", [[[(8, 0), (4, 4), (16, 3)], [(8, 2)]], [[(8, 2), (8, 1)], []]], ids=["uneven", "one empty"]
)
@pytest.mark.parametrize("rank", [0, 1])
def test_every_rank_gets_the_mean_over_all_problems(problems, rank):
    metrics = [PassAtK([1, 4]) for _ in problems]
    for metric, its_own in zip(metrics, problems, strict=True):
        for n, c in its_own:
            metric.update(torch.tensor([n]), torch.tensor([c]))
    values = connected(metrics, rank).compute()
    everything = [problem for its_own in problems for problem in its_own]
    for k in (1, 4):
        expected = sum(pass_at_k(n, c, k) for n, c in everything) / len(everything)
        assert values[f"pass@{k}"].item() == pytest.approx(expected, rel=1e-12)
