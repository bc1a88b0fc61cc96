"""Engines that sample completions, and keeping their weights equal to the policy's."""

from gapo_lit.rollout.engine import Engine, EngineError, SyncMismatch, request_seed
from gapo_lit.rollout.sync import full_parameters, sync_weights, verify_sync
from gapo_lit.rollout.transformers import TransformersEngine
from gapo_lit.rollout.vllm import VLLMEngine

__all__ = [
    "Engine",
    "EngineError",
    "SyncMismatch",
    "TransformersEngine",
    "VLLMEngine",
    "full_parameters",
    "request_seed",
    "sync_weights",
    "verify_sync",
]
