"""Rewards that look at the form of a completion and not at its answer, to be parts of a CombinedReward.

Their verdicts are "correct" where nothing is held against the form.
"""

from __future__ import annotations

from collections.abc import Sequence

import regex  # type: ignore[import-untyped]

from gapo_lit.registry import register
from gapo_lit.rewards.base import Reward, paired
from gapo_lit.types import Completion, Prompt, Verdict


@register(source="regular expression over the completion, as the format reward of arXiv:2501.12948")
class FormatReward(Reward):
    """1 where `pattern` matches, else 0; `.` matches line ends too.

    whole: the pattern must match all of the completion, blanks around it aside, instead of some of it. A search that
    takes longer than `time_limit` seconds gives no verdict: a pattern with nested repetitions can take for ever on what
    a policy may write. Raises ValueError for a pattern that is none.
    """

    def __init__(self, pattern: str, whole: bool = True, time_limit: float = 0.2) -> None:
        if not 0 < time_limit < float("inf"):
            raise ValueError(f"time_limit={time_limit} is no limit in seconds; give a positive number")
        try:
            compiled = regex.compile(pattern, regex.DOTALL)
        except regex.error as error:
            raise ValueError(f"pattern={pattern!r} is no regular expression: {error}") from error
        self.match = compiled.fullmatch if whole else compiled.search
        self.time_limit = time_limit

    def __call__(self, prompts: Sequence[Prompt], completions: Sequence[Completion]) -> list[Verdict]:
        """See Reward."""
        return [self._verdict(completion.text) for _, completion in paired(prompts, completions)]

    def _verdict(self, text: str) -> Verdict:
        try:
            found = self.match(text.strip(), timeout=self.time_limit)
        except TimeoutError:
            return Verdict.none(f"pattern took longer than {self.time_limit:g} s")
        return Verdict.of(found is not None, "" if found else "format")


@register(source="a linear ramp beside a range of lengths")
class LengthReward(Reward):
    """1 for a completion of `shortest` to `longest` tokens; outside it falls to 0 over `margin` tokens more or fewer.

    score = max(0, 1 − d/margin), d the tokens missing or too many; with margin 0 any of them give 0. Tokens include the
    end-of-sequence token. longest None is no upper limit. Raises ValueError for an empty range.
    """

    def __init__(self, shortest: int = 0, longest: int | None = None, margin: int = 0) -> None:
        if min(shortest, margin) < 0 or (longest is not None and longest < shortest):
            raise ValueError(
                f"shortest={shortest}, longest={longest}, margin={margin} leave no length to reward; "
                "give 0 <= shortest <= longest and margin >= 0"
            )
        self.shortest, self.longest, self.margin = shortest, longest, margin

    def __call__(self, prompts: Sequence[Prompt], completions: Sequence[Completion]) -> list[Verdict]:
        """See Reward; never without a verdict."""
        return [self._verdict(len(completion.token_ids)) for _, completion in paired(prompts, completions)]

    def _verdict(self, length: int) -> Verdict:
        over = 0 if self.longest is None else length - self.longest
        off = max(0, self.shortest - length, over)
        if not off:
            return Verdict.of(True)
        return Verdict("incorrect", max(0.0, 1 - off / self.margin) if self.margin else 0.0, f"{length} tokens")


@register(source="DAPO soft overlong punishment, arXiv:2503.14476, Eq. 13")
class OverlongPunishment(Reward):
    """0 up to max_tokens − buffer tokens, falling linearly to −1 at max_tokens, and −1 beyond; never positive.

    (max_tokens − buffer − length)/buffer in between. DAPO's own: max_tokens 20,480, buffer 4,096, weight 1. Tokens
    include the end-of-sequence token; max_tokens is usually the sampling limit. Raises ValueError for a buffer outside
    1..max_tokens.
    """

    def __init__(self, max_tokens: int, buffer: int) -> None:
        if not 1 <= buffer <= max_tokens:
            raise ValueError(f"buffer={buffer} is no part of max_tokens={max_tokens}; give 1 <= buffer <= max_tokens")
        self.max_tokens, self.buffer = max_tokens, buffer

    def __call__(self, prompts: Sequence[Prompt], completions: Sequence[Completion]) -> list[Verdict]:
        """See Reward; never without a verdict."""
        return [self._verdict(len(completion.token_ids)) for _, completion in paired(prompts, completions)]

    def _verdict(self, length: int) -> Verdict:
        free = self.max_tokens - self.buffer
        if length <= free:
            return Verdict("correct", 0.0)
        return Verdict("incorrect", max(-1.0, (free - length) / self.buffer), f"{length} tokens, {free} go unpunished")
