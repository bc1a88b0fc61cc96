"""How much faster an update is when the rollouts of a group share one forward pass of their prompt.

    python benchmarks/shared_prompts.py --model models/SmolLM2-135M-Instruct

Forward and backward pass over the same random rollouts, alternating between the two layouts; prints the ratio of each
pair of runs and its median, and the largest difference between the log-probs, so that what is compared is the same
computation.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time

import torch

from gapo_lit.batching import token_batch
from gapo_lit.language_model import load_model
from gapo_lit.logprobs import response_logprobs
from gapo_lit.packing import plan_micro_batches
from gapo_lit.types import RolloutBatch


def rollouts(groups: int, k: int, prompt: int, response: int, vocabulary: int) -> RolloutBatch:
    """Random token ids; responses of half to full length."""
    draw = random.Random(0)
    prompts = [[draw.randrange(vocabulary) for _ in range(prompt)] for _ in range(groups)]
    answers = [
        [draw.randrange(vocabulary) for _ in range(draw.randint(response // 2, response))] for _ in range(groups * k)
    ]
    return token_batch(prompts, [i // k for i in range(groups * k)], answers, [[0.0] * len(a) for a in answers], 1.0, 0)


def passes(model: torch.nn.Module, batch: RolloutBatch, budget: int, share: bool) -> tuple[float, torch.Tensor]:
    """Seconds of forward and backward over the batch, and its log-probs."""
    logprobs = torch.zeros(batch.response_ids.shape)
    started = time.perf_counter()
    for micro in plan_micro_batches(batch, torch.arange(len(batch)), budget, share):
        part = batch.select(micro.rows)
        found, _ = response_logprobs(model, part, micro.sizes)
        (found * part.response_mask).sum().backward()
        logprobs[micro.rows, : found.shape[1]] = found.detach()
    seconds = time.perf_counter() - started
    model.zero_grad()
    return seconds, logprobs * batch.response_mask


def main() -> None:
    """Compare the layouts on one update of the given shape."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--k", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=75)
    parser.add_argument("--response", type=int, default=6)
    parser.add_argument("--budget", type=int, default=4096)
    parser.add_argument("--pairs", type=int, default=5)
    args = parser.parse_args()
    model = load_model(args.model, "sdpa", gradient_checkpointing=False)
    batch = rollouts(args.groups, args.k, args.prompt, args.response, model.config.vocab_size)
    ratios = []
    for pair in range(args.pairs + 1):
        alone, expected = passes(model, batch, args.budget, share=False)
        shared, found = passes(model, batch, args.budget, share=True)
        if pair:  # the first pair warms up
            ratios.append(alone / shared)
            print(f"pair {pair}: alone {alone:.2f} s, shared {shared:.2f} s, ratio {alone / shared:.2f}", flush=True)
    difference = (expected - found).abs().max()
    print(f"median ratio {statistics.median(ratios):.2f}; log-probs differ by at most {difference:.1e}")


if __name__ == "__main__":
    main()
