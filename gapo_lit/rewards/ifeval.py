"""Instruction following: does a completion do what can be checked by program in its prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from gapo_lit.registry import register
from gapo_lit.rewards.base import LISTED, Reward, paired
from gapo_lit.rewards.ifeval_instructions import Check, row_checks
from gapo_lit.types import Completion, Example, Prompt, Verdict

Mode = Literal["strict", "loose"]
Score = Literal["prompt", "instruction"]


@register(source="IFEval, arXiv:2311.07911")
class IFEval(Reward):
    """Whether a completion follows all of its prompt's instructions; correct where it does.

    mode: "strict" grades the completion as it is; "loose" counts an instruction that any of eight variants follows.
    score: "prompt" is 1 or 0; "instruction" the share of the prompt's instructions that are followed. response_after:
    only what follows the last of this text is graded, such as "</think>"; a completion without it follows nothing,
    and so does a blank one.

    Rows have the columns `instruction_id_list` and `kwargs` of the data set google/IFEval, as lists or as text.
    Components, whatever the mode: strict_prompt and loose_prompt (1 or 0), strict_instruction and loose_instruction
    (shares), and strict_followed, loose_followed and asked (counts), of which `figures` makes the published accuracies.
    """

    def __init__(self, mode: Mode = "strict", score: Score = "prompt", response_after: str | None = None) -> None:
        for name, value, known in (("mode", mode, get_args(Mode)), ("score", score, get_args(Score))):
            if value not in known:
                raise ValueError(f"{name}={value!r} is unknown; give one of {', '.join(known)}")
        if response_after == "":
            raise ValueError("response_after='' is found everywhere; give null to grade the whole completion")
        self.mode, self.score, self.response_after = mode, score, response_after

    def __call__(self, prompts: Sequence[Prompt], completions: Sequence[Completion]) -> list[Verdict]:
        """See Reward; never without a verdict. Raises ValueError for a row that check() refuses."""
        return [self._verdict(p.example, c.text) for p, c in paired(prompts, completions)]

    def check(self, examples: Sequence[Example]) -> None:
        """ValueError naming rows with unknown instructions or wrong arguments; ImportError without what they need."""
        bad = [(e.id, why) for e in examples if (why := _problem(e)) is not None]
        if bad:
            rows = "; ".join(f"{id}: {why}" for id, why in bad[:LISTED])
            more = f"; and {len(bad) - LISTED} more" if len(bad) > LISTED else ""
            raise ValueError(
                f"{len(bad)} of {len(examples)} rows have instructions that cannot be checked: {rows}{more}; "
                "drop these rows or mend them"
            )

    def figures(self, components: Mapping[str, tuple[float, int]]) -> Mapping[str, float]:
        """The four published accuracies (arXiv:2311.07911, Section 2.2).

        strict_prompt and loose_prompt: share of prompts with all instructions followed. strict_instruction and
        loose_instruction: Σ followed / Σ asked over all prompts, which is not the mean of the prompts' shares.
        """
        if "asked" not in components:
            return {}
        asked, prompts = components["asked"]
        return {
            **{f"{mode}_prompt": components[f"{mode}_prompt"][0] / prompts for mode in get_args(Mode)},
            **{f"{mode}_instruction": components[f"{mode}_followed"][0] / asked for mode in get_args(Mode)},
        }

    def _verdict(self, example: Example, text: str) -> Verdict:
        checks = row_checks(example.columns)
        strict, loose = followed(self._response(text), [check for _, check in checks])
        counted = strict if self.mode == "strict" else loose
        missed = [id for (id, _), done in zip(checks, counted, strict=True) if not done]
        components = _components(strict, loose)
        return Verdict(
            "incorrect" if missed else "correct",
            components[f"{self.mode}_{self.score}"],
            f"not followed: {', '.join(missed)}" if missed else "",
            components,
        )

    def _response(self, text: str) -> str:
        if self.response_after is None:
            return text
        _, marker, response = text.rpartition(self.response_after)
        return response.lstrip() if marker else ""


def followed(response: str, checks: Sequence[Check]) -> tuple[tuple[bool, ...], tuple[bool, ...]]:
    """Which of the n instructions the response follows, strictly and loosely; nothing where it is blank."""
    strict = tuple(bool(response.strip()) and check(response) for check in checks)
    others = [v for v in variants(response)[1:] if v.strip()]
    loose = tuple(done or any(check(v) for v in others) for done, check in zip(strict, checks, strict=True))
    return strict, loose


def variants(response: str) -> list[str]:
    """The different ones of the eight texts that loose grading looks at, the response itself first.

    Without its first line, its last line or both, as a model may open or close with a remark; each also without
    asterisks, as it may set words in bold (arXiv:2311.07911, Section 2.2).
    """
    lines = response.split("\n")
    cut = [response, *("\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1]))]
    return list(dict.fromkeys(cut + [text.replace("*", "") for text in cut]))


def _components(strict: Sequence[bool], loose: Sequence[bool]) -> dict[str, float]:
    parts = {"asked": float(len(strict))}
    for mode, done in (("strict", strict), ("loose", loose)):
        parts[f"{mode}_prompt"] = float(all(done))
        parts[f"{mode}_instruction"] = sum(done) / len(done)
        parts[f"{mode}_followed"] = float(sum(done))
    return parts


def _problem(example: Example) -> str | None:
    try:
        row_checks(example.columns)
    except ValueError as error:
        return str(error)
    return None
