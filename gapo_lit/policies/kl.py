"""Per-token estimates of KL(π_θ ‖ π_ref) from tokens sampled by π_θ (http://joschu.net/blog/kl-approx.html).

With x = log π_ref(y_t) − log π_θ(y_t). As a loss term the estimates behave otherwise than as a measurement: the
gradient of k1 is 0 in expectation, that of k2 is the gradient of the KL, that of k3 is approximately so near x = 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from gapo_lit.registry import kind, register

LOG_RATIO_LIMIT = 20.0


def kl_k1(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """k1 = −x: unbiased, noisy, of either sign. logprobs, ref_logprobs: (B, T); returns (B, T)."""
    return logprobs - ref_logprobs


def kl_k2(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """k2 = x²/2: biased, low variance, never negative. logprobs, ref_logprobs: (B, T); returns (B, T)."""
    return 0.5 * (ref_logprobs - logprobs).square()


def kl_k3(logprobs: Tensor, ref_logprobs: Tensor, limit: float = LOG_RATIO_LIMIT) -> Tensor:
    """k3 = e^x − 1 − x: unbiased, low variance, never negative.

    logprobs, ref_logprobs: (B, T); returns (B, T). x is clamped to ±limit, with zero gradient beyond, to stay finite.
    """
    x = (ref_logprobs - logprobs).clamp(-limit, limit)
    return x.expm1() - x


@kind("kl")
class KLEstimator(ABC):
    """A penalty for leaving the reference policy."""

    @abstractmethod
    def __call__(self, logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
        """(B, T) estimates, with gradient to logprobs; the caller masks both inputs beforehand."""


@register(source="http://joschu.net/blog/kl-approx.html")
class K1(KLEstimator):
    """log π_θ − log π_ref. Its gradient is 0 in expectation: fit to measure, not to penalise."""

    def __call__(self, logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
        """(B, T) estimates."""
        return kl_k1(logprobs, ref_logprobs)


@register(source="http://joschu.net/blog/kl-approx.html")
class K2(KLEstimator):
    """½(log π_θ − log π_ref)²."""

    def __call__(self, logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
        """(B, T) estimates."""
        return kl_k2(logprobs, ref_logprobs)


@register(source="http://joschu.net/blog/kl-approx.html; arXiv:2402.03300, Eq. 4")
class K3(KLEstimator):
    """e^x − 1 − x with x = log π_ref − log π_θ, GRPO's penalty."""

    def __call__(self, logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
        """(B, T) estimates."""
        return kl_k3(logprobs, ref_logprobs)
