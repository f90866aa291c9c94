"""The tensors of a shard: whole ones, and some planes, rows or columns of those of the program."""

import dataclasses
from collections.abc import Iterable, Sequence

from tensor_ops_decode.kinds.kind import Weight
from tensor_ops_decode.program.builder import Builder
from tensor_ops_decode.program.records import Parts, Tensor, new_name
from tensor_ops_decode.weights.formats import FORMATS
from tensor_ops_decode.weights.transforms import CUT_AXES

__all__ = ["TensorParts"]


class TensorParts:
    """Declares to a builder the tensors of a program that a shard of it uses, or parts of them."""

    def __init__(self, program: Parts, builder: Builder) -> None:
        self._tensors, self._builder = program.tensors, builder

    def whole(self, names: Iterable[str]) -> list[str]:
        """Declare tensors as they are, and return their names."""
        return [self._builder.tensor(name, self._tensors[name]) for name in names]

    def rows(
        self, slot: Weight, stacks: Iterable[Sequence[str]], wanted: Iterable[range]
    ) -> list[str]:
        """Declare some rows of the matrices of a slot, or the elements of its biases for them.

        Of stacks each is one tensor, or matrices one after another; else it is one tensor. What is
        wanted is in the order in which it is to be one below the other.
        """
        axis, back = ("rows", 2) if slot.form in ("matrices", "stack") else ("columns", 1)
        parts = []
        for each in wanted:
            first = 0
            for names in stacks:
                size = self._tensors[names[0]].shape[-back]
                start, stop = max(each.start - first, 0), min(each.stop - first, size)
                if start < stop:
                    parts += [self._part(name, axis, range(start, stop)) for name in names]
                first += size
        return parts

    def columns(self, names: Iterable[str], wanted: range) -> list[str]:
        """Declare some columns of each of several matrices."""
        return [self._part(name, "columns", wanted) for name in names]

    def planes(self, names: Iterable[str], wanted: range) -> list[str]:
        """Declare some matrices of each of several stacks."""
        return [self._part(name, "planes", wanted) for name in names]

    def _part(self, name: str, axis: str, wanted: range) -> str:
        tensor = self._tensors[name]
        index = len(tensor.shape) + CUT_AXES[axis]
        if len(wanted) == tensor.shape[index]:
            return self.whole([name])[0]
        shape = (*tensor.shape[:index], len(wanted), *tensor.shape[index + 1 :])
        cut = f"{axis}:{wanted.start}:{wanted.stop}"
        made = dataclasses.replace(tensor, shape=shape, source=_cut_source(name, tensor, cut))
        before = ":," * index
        part = new_name(f"{name}[{before}{wanted.start}:{wanted.stop}]", self._tensors)
        return self._builder.tensor(part, made)


def _cut_source(name: str, tensor: Tensor, cut: str) -> dict[str, object]:
    source = dict(tensor.source)
    if "attached" in source:
        source = {"tensor": name, "shape": list(tensor.shape), "transform": [], **source}
    transforms = list(source["transform"])
    place = len(transforms)
    if _is_between_blocks_of_all(tensor, cut):
        # Less is quantized then, with the same result.
        while place and transforms[place - 1].startswith("quantize:"):
            place -= 1
    return source | {"transform": [*transforms[:place], cut, *transforms[place:]]}


def _is_between_blocks_of_all(tensor: Tensor, cut: str) -> bool:
    """Return whether a cut goes through no block, of whatever type the tensor was at first."""
    axis, start, stop = cut.split(":")
    if axis != "columns":
        return True
    columns = tensor.shape[-1]
    sizes = [form.block_size for form in FORMATS.values() if columns % form.block_size == 0]
    return int(start) % max(sizes) == int(stop) % max(sizes) == 0
