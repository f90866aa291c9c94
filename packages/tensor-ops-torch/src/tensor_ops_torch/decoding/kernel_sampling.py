"""The logits processors of transformers that the kernel has within its step."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import (
    LogitsProcessor,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

__all__ = ["sampling_settings"]

# Beyond these the kernel has no setting; transformers' class does it then.
_HOTTEST = 1e6
_MOST_KEPT = 2**31 - 1


def sampling_settings(
    processors: Sequence[LogitsProcessor], do_sample: bool, starts: Sequence[int]
) -> dict[str, float] | None:
    """Return the settings of a request that do what processors do, None if there are none.

    `processors` are those that transformers has made for a call, with the caller's own; `starts`
    says where each row of the batch begins behind its padding.

    Examples
    --------
    >>> from transformers import TopHLogitsWarper, TopKLogitsWarper
    >>> sampling_settings([TopKLogitsWarper(5)], True, [0])
    {'temperature': 1.0, 'top_k': 5}
    >>> sampling_settings([TopHLogitsWarper(0.5)], True, [0]) is None
    True
    """
    settings: dict[str, float] = {"temperature": 1.0} if do_sample else {}
    last = -1
    for processor in processors:
        # The kernel knows these and no subclasses, each once, and in this order.
        place = _ORDER.index(type(processor)) if type(processor) in _ORDER else -1
        if place <= last or (place > 0 and not do_sample):
            return None
        found = _RULES[place](processor, starts)
        if found is None:
            return None
        settings.update(found)
        last = place
    return settings


def _penalty(processor: Any, starts: Sequence[int]) -> dict[str, float] | None:
    # transformers must ignore just the padding, which the kernel never sees.
    ignored = processor.prompt_ignore_length
    if isinstance(ignored, torch.Tensor):
        ignored = ignored.tolist()
    elif ignored is None or isinstance(ignored, int):
        ignored = [ignored or 0] * len(starts)
    return {"repetition_penalty": processor.penalty} if ignored == [*starts] else None


def _temperature(processor: Any, starts: Sequence[int]) -> dict[str, float] | None:
    temperature = processor.temperature
    return {"temperature": temperature} if temperature <= _HOTTEST else None


def _top_k(processor: Any, starts: Sequence[int]) -> dict[str, float] | None:
    drops = processor.filter_value == -math.inf and processor.top_k <= _MOST_KEPT
    return {"top_k": processor.top_k} if drops else None


def _top_p(processor: Any, starts: Sequence[int]) -> dict[str, float] | None:
    return {"top_p": processor.top_p} if processor.top_p > 0 and _drops(processor) else None


def _min_p(processor: Any, starts: Sequence[int]) -> dict[str, float] | None:
    return {"min_p": processor.min_p} if _drops(processor) else None


def _drops(processor: Any) -> bool:
    """Return whether a warper leaves tokens out, and keeps none beyond its rule but the best."""
    return bool(processor.filter_value == -math.inf and processor.min_tokens_to_keep == 1)


_ORDER = [
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    MinPLogitsWarper,
]
_RULES: list[Callable[[Any, Sequence[int]], dict[str, float] | None]] = [
    _penalty,
    _temperature,
    _top_k,
    _top_p,
    _min_p,
]
