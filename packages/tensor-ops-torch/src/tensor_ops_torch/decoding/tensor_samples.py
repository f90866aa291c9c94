"""Samples of the elements of tensors, by which a write is noticed that nobody has counted."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

__all__ = ["TensorSamples"]

# Each element is a miss of the cache: more would take as long as all else that is compared.
_MOST_OF_A_TENSOR = 64
# So many samples are joined without starting PyTorch's threads.
_TENSORS_AT_ONCE = 256


class TensorSamples:
    """Elements of tensors, in each tensor equally far apart; of a small tensor all.

    They are so in memory, or along each dimension of a tensor that is not contiguous.

    Examples
    --------
    >>> tensors = [torch.zeros(8, 100), torch.ones(3)]
    >>> samples = TensorSamples(tensors)
    >>> print(samples.first_change(tensors))
    None
    >>> tensors[1].data[2] = 5
    >>> samples.first_change(tensors)
    1
    """

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._places = [_places(each) for each in tensors]
        by_kind: dict[tuple[torch.device, torch.dtype], list[int]] = {}
        for index, tensor in enumerate(tensors):
            by_kind.setdefault((tensor.device, tensor.dtype), []).append(index)
        self._groups = [
            indices[start : start + _TENSORS_AT_ONCE]
            for indices in by_kind.values()
            for start in range(0, len(indices), _TENSORS_AT_ONCE)
        ]
        self._before = [self._samples(tensors, group) for group in self._groups]

    def first_change(self, tensors: Sequence[torch.Tensor]) -> int | None:
        """Return the index of the first tensor with another sample now, None if there is none.

        The tensors have the layouts, dtypes and devices that they had.
        """
        for group, before in zip(self._groups, self._before, strict=True):
            now = self._samples(tensors, group)
            if not torch.equal(now, before):
                counts = [math.prod(self._places[index][0]) for index in group]
                parts = zip(group, now.split(counts), before.split(counts), strict=True)
                return next(index for index, new, old in parts if not torch.equal(new, old))
        return None

    def _samples(self, tensors: Sequence[torch.Tensor], group: Sequence[int]) -> torch.Tensor:
        """Return the samples of a group as integers, by which a NaN is equal to itself."""
        with torch.no_grad():
            found = [tensors[i].as_strided(*self._places[i]).flatten() for i in group]
            joined = torch.cat(found)
        return joined.view(getattr(torch, f"int{8 * joined.element_size()}"))


def _places(tensor: torch.Tensor) -> tuple[list[int], list[int]]:
    """Return the sizes and strides of what is taken of a tensor."""
    sizes, strides = tensor.shape, tensor.stride()
    if tensor.is_contiguous():
        count = min(tensor.numel(), _MOST_OF_A_TENSOR)
        step = max(tensor.numel() - 1, 0) // max(count - 1, 1)
        # If the step and the length of a row shared a divisor, samples would miss whole columns.
        while step > 1 and math.gcd(step, tensor.shape[-1]) > 1:
            step -= 1
        return [count], [step]
    most = round(_MOST_OF_A_TENSOR ** (1 / len(sizes)))
    counts = [min(size, most) for size in sizes]
    steps = [
        max(size - 1, 0) // max(count - 1, 1) for size, count in zip(sizes, counts, strict=True)
    ]
    return counts, [stride * step for stride, step in zip(strides, steps, strict=True)]
