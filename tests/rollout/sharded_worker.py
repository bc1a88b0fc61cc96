"""Run by torchrun on two processes: a policy sharded by FSDP2, and a vLLM engine in each process that follows it."""

from __future__ import annotations

import sys

import torch
from torch import distributed
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM

from gapo_lit.rollout import VLLMEngine, request_seed, sync_weights, verify_sync
from gapo_lit.types import Sampling


def main(folder: str) -> None:
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    torch.manual_seed(0)
    policy = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for layer in policy.model.layers:
        fully_shard(layer)
    fully_shard(policy)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(1.1)

    def score(prompts, responses, temperature):
        scores = []
        for prompt, response in zip(prompts, responses, strict=True):
            with torch.no_grad():
                logits = policy(torch.tensor([[*prompt, *response]])).logits[0, len(prompt) - 1 : -1]
            logprobs = (logits / temperature).log_softmax(-1)
            scores.append(logprobs[torch.arange(len(response)), list(response)])
        return scores

    engine = VLLMEngine(folder, max_model_len=64, max_num_seqs=8, kv_cache_gib=0.0625)
    engine.start()
    sync_weights(engine, policy.named_parameters(remove_duplicate=False), 1)
    gap = verify_sync(engine, score, [(5, 6, 7), (8, 9)], temperature=0.8)
    # Ranks may sample different amounts: no collective hides in it. Equal prompts at equal positions agree.
    prompts = [(10, 11), (12, 13), (14, 15)][: 3 - rank]
    drawn = engine.generate(prompts, Sampling(1.0, 8), 2, [request_seed(0, i) for i in range(len(prompts))])
    engine.close()

    everyone: list = [None, None]
    distributed.all_gather_object(everyone, [[c.token_ids for c in group] for group in drawn])
    assert distributed.get_world_size() == 2, "the trainer's process group did not survive the engine"
    assert everyone[0][:2] == everyone[1], everyone
    print(f"rank {rank} gap {gap:.2e}", flush=True)
    distributed.destroy_process_group()


main(sys.argv[1])
