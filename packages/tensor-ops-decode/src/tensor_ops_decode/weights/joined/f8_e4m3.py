"""Weights of 8 bits in floating point, E4M3, beside scales.

A scale is for the whole tensor, for a row, or for a block of rows and columns. It multiplies the
weights, though its name may end in ``_inv``.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensor_ops_decode.weights.formats import FORMATS, Format
from tensor_ops_decode.weights.joined.joined_tensor import JoinedTensor, integers_of
from tensor_ops_decode.weights.mapped_file import FileFormatError
from tensor_ops_decode.weights.tensor import StoredTensor, TensorHeader, TensorPlace

__all__ = ["tensors_in"]

_F8 = FORMATS["f8_e4m3"]
_SCALES, _EXPONENTS = ("_scale_inv", "_scale"), "F8_E8M0"
# What activations were scaled by, which are not rounded here.
_IGNORED = ("input_scale", "activation_scale")
# Rows and columns of a block where config.json does not say it.
_BLOCK = (128, 128)
_BLOCKS_AT_ONCE = 4096  # so that the temporaries of a piece stay in the cache
_NAN, _EACH = np.float32(np.nan), np.uint64(0x0101010101010101)


@dataclass(frozen=True)
class _Scaled(JoinedTensor):
    block: tuple[int, int] = _BLOCK

    def header(self) -> TensorHeader:
        shape = self.parts[0].shape
        if len(shape) < 2 or shape[-1] % _F8.block_size or not math.prod(shape):
            raise FileFormatError(
                f"{self.file.path}: {self.parts[0].what} of type F8_E4M3 has the shape "
                f"{list(shape)}; expected columns in multiples of {_F8.block_size}"
            )
        self._scales()
        return TensorHeader(_F8.name, shape, self.file.path)

    def open(self) -> StoredTensor:
        *rows, _ = self.header().shape
        numbers = integers_of(self.parts[0], "u1").reshape(*rows, -1, _F8.block_size)
        scales = self._scales()
        # The last blocks may be cut off.
        if scales.shape[-1] > 1:
            scales = scales.repeat(self.block[1] // _F8.block_size, -1)[..., : numbers.shape[-2]]
        if scales.shape[-2] not in (1, rows[-1]):
            scales = scales.repeat(self.block[0], -2)[..., : rows[-1], :]
        scales = np.broadcast_to(scales, numbers.shape[:-1]).reshape(-1)
        numbers = numbers.reshape(-1, _F8.block_size)
        made = np.empty((len(numbers), _F8.block_bytes), np.uint8)
        for start in range(0, len(numbers), _BLOCKS_AT_ONCE):
            at = slice(start, start + _BLOCKS_AT_ONCE)
            found = np.where(_has_nan(numbers[at]), _NAN, scales[at])
            made[at, :4] = found[:, None].view(np.uint8)
            made[at, 4:] = numbers[at]
        return self.stored(made.reshape(math.prod(rows), -1))

    def _scales(self) -> NDArray[np.float32]:
        """Return the scales in the dimensions of the tensor; one for all of them has the size 1."""
        shape, found = self.parts[0].shape, _values_of(self.parts[1])
        of_rows = (*shape[:-1], 1)
        if found.size == 1:
            return found.reshape((1,) * len(shape))
        if found.shape in (of_rows, of_rows[:-1]):
            return found.reshape(of_rows)
        high, wide = self.block
        is_whole = high > 0 and wide > 0 and wide % _F8.block_size == 0
        blocks = (*shape[:-2], -(-shape[-2] // high), -(-shape[-1] // wide)) if is_whole else ()
        if found.shape != blocks:
            raise self.misfit(
                "FP8",
                f"one scale, or one for each row, or one for each block of {high} rows and {wide} "
                f"columns, which are a multiple of {_F8.block_size}",
            )
        return found


def _is_float(place: TensorPlace) -> bool:
    return isinstance(place.format, Format) and place.format.is_float


def _values_of(scales: TensorPlace) -> NDArray[np.float32]:
    """Return scales; those of E8M0 are powers of two, or NaN."""
    if scales.format != _EXPONENTS:
        return scales.open().values()
    stored = integers_of(scales, "u1")
    powers = np.ldexp(np.float32(1), stored.astype(np.int32) - 127)
    return np.where(stored == 255, np.float32(np.nan), powers).astype(np.float32)


def _has_nan(numbers: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return for each row whether it has E4M3's NaN, all bits but the sign."""
    magnitudes = numbers.view(np.uint64) & _EACH * np.uint64(0x7F)
    sums = np.bitwise_or.reduce(magnitudes + _EACH, axis=-1)
    found: NDArray[np.bool_] = sums & _EACH * np.uint64(0x80) != 0
    return found


def tensors_in(
    tensors: Mapping[str, TensorPlace], quantization: Mapping[str, Any]
) -> Iterator[JoinedTensor]:
    """Return the tensors of E4M3 that have scales, under their own names."""
    block = _block_of(quantization)
    for name, numbers in tensors.items():
        if numbers.format != "F8_E4M3":
            continue
        found = (tensors.get(name + ending) for ending in _SCALES)
        scales = next((each for each in found if each is not None), None)
        if scales is not None and (_is_float(scales) or scales.format == _EXPONENTS):
            of_module = (name.removesuffix("weight") + ending for ending in _IGNORED)
            ignored = tuple(tensors[each] for each in of_module if each in tensors)
            yield _Scaled(name, (numbers, scales), ignored, block)


def _block_of(quantization: Mapping[str, Any]) -> tuple[int, int]:
    """Return the rows and columns of a block, which config.json has under one of two names."""
    groups = quantization.get("config_groups")
    sections = groups.values() if isinstance(groups, Mapping) else ()
    weights = (each.get("weights") for each in sections if isinstance(each, Mapping))
    stated = [each.get("block_structure") for each in weights if isinstance(each, Mapping)]
    for block in (quantization.get("weight_block_size"), *stated):
        if isinstance(block, list) and len(block) == 2 and all(type(n) is int for n in block):
            return block[0], block[1]
    return _BLOCK
