"""Prompts: where examples come from, and how the policy is asked them."""

from gapo_lit.prompts.arithmetic import ArithmeticTask
from gapo_lit.prompts.base import PromptSource
from gapo_lit.prompts.files import JsonlPrompts
from gapo_lit.prompts.gym import ReasoningGymTask
from gapo_lit.prompts.hub import HubPrompts
from gapo_lit.prompts.template import EncodedPrompts, Template, encode_prompts

__all__ = [
    "ArithmeticTask",
    "EncodedPrompts",
    "HubPrompts",
    "JsonlPrompts",
    "PromptSource",
    "ReasoningGymTask",
    "Template",
    "encode_prompts",
]
