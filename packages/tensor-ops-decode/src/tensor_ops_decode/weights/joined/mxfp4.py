"""MXFP4 weights as transformers writes them: blocks and scales.

A block of 32 columns is 16 bytes, each of which has two neighbours, the first one in its low half.
GGML's type has the same numbers in another order, behind the scale of the block.
"""

import math
from collections.abc import Iterator, Mapping

import numpy as np

from tensor_ops_decode.weights.formats import FORMATS
from tensor_ops_decode.weights.joined.joined_tensor import JoinedTensor, integers_of
from tensor_ops_decode.weights.tensor import StoredTensor, TensorHeader, TensorPlace

__all__ = ["tensors_in"]

_BLOCKS, _SCALES = "_blocks", "_scales"
_MXFP4 = FORMATS["mxfp4"]


class _Blocks(JoinedTensor):
    def header(self) -> TensorHeader:
        blocks, scales = self.parts
        *rows, count, size = blocks.shape if len(blocks.shape) > 2 else (0, 0, 0)
        if (*rows, count) != scales.shape or size != 16 or not math.prod(scales.shape):
            raise self.misfit("MXFP4", "the shape of the scales, and 16 more")
        return TensorHeader(_MXFP4.name, (*rows, count * _MXFP4.block_size), self.file.path)

    def open(self) -> StoredTensor:
        header = self.header()
        blocks, scales = (integers_of(part, "u1") for part in self.parts)
        pairs = blocks.reshape(-1, 16)
        made = np.empty((len(pairs), _MXFP4.block_bytes), np.uint8)
        made[:, 0] = scales.reshape(-1)
        # Columns 0 to 15 of a block are in the low halves of its bytes, and 16 to 31 in the high.
        codes = np.stack([pairs & 15, pairs >> 4], axis=2).reshape(-1, 32)
        made[:, 1:] = codes[:, :16] | codes[:, 16:] << 4
        return self.stored(made.reshape(math.prod(header.shape[:-1]), -1))


def tensors_in(tensors: Mapping[str, TensorPlace]) -> Iterator[JoinedTensor]:
    """Return the tensors that have blocks and scales, under the common part of both names."""
    for name, blocks in tensors.items():
        start = name.removesuffix(_BLOCKS)
        scales = tensors.get(start + _SCALES)
        if start != name and scales is not None and blocks.format == scales.format == "U8":
            yield _Blocks(start, (blocks, scales))
