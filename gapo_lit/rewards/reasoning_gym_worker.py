"""The process that grades reasoning-gym answers, `python -m gapo_lit.rewards.reasoning_gym_worker`."""

from __future__ import annotations

import json
import math
from functools import lru_cache
from typing import Any

import reasoning_gym

from gapo_lit.rewards.worker import serve


@lru_cache(maxsize=32)
def _dataset(task: str, config: str) -> Any:
    return reasoning_gym.create_dataset(task, **json.loads(config))


@lru_cache(maxsize=1024)
def _entry(task: str, config: str, index: int) -> dict[str, Any]:
    entry: dict[str, Any] = _dataset(task, config)[index]
    return entry


def score(request: dict[str, Any]) -> dict[str, Any]:
    """{"score": …} of the request's answer to entry `index` of the task, or {"failure": reason}."""
    task, config = request["task"], json.dumps(request["config"], sort_keys=True)
    try:
        entry = _entry(task, config, request["index"])
        if entry["question"] != request["entry_question"]:
            return {"failure": f"{task} made another question from the same seed and index in the grading process"}
        value = float(_dataset(task, config).score_answer(request["answer"], entry))
    except Exception as error:
        return {"failure": f"{task}: {type(error).__name__}: {str(error)[:200]}"}
    return {"score": value} if math.isfinite(value) else {"failure": f"{task} scored {value}"}


if __name__ == "__main__":
    serve(score)
