"""Tensors that a folder has as two: MXFP4 weights as transformers writes them, blocks and scales.

A block of 32 columns is 16 bytes, each of which has two neighbours, the first one in its low half.
GGML's type has the same numbers in another order, behind the scale of the block.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tensor_ops_decode.weights.formats import FORMATS
from tensor_ops_decode.weights.mapped_file import FileFormatError, MappedFile
from tensor_ops_decode.weights.tensor import StoredTensor, TensorHeader, TensorPlace

__all__ = ["PairedBlocks", "with_pairs_joined"]

_BLOCKS, _SCALES = "_blocks", "_scales"
_MXFP4 = FORMATS["mxfp4"]


@dataclass(frozen=True)
class PairedBlocks:
    """Where in files the blocks and the scales of a tensor are."""

    name: str
    blocks: TensorPlace
    scales: TensorPlace

    @property
    def file(self) -> MappedFile:
        """The file of the blocks."""
        return self.blocks.file

    def header(self) -> TensorHeader:
        """Return the header of the tensor that both are."""
        *rows, blocks, size = self.blocks.shape if len(self.blocks.shape) > 2 else (0, 0, 0)
        if (*rows, blocks) != self.scales.shape or size != 16 or not math.prod(self.scales.shape):
            raise FileFormatError(
                f"{self.file.path}: {self.blocks.what} of shape {list(self.blocks.shape)} and "
                f"{self.scales.what} of shape {list(self.scales.shape)} are no MXFP4 weights; "
                "expected the shape of the scales, and 16 more"
            )
        return TensorHeader(_MXFP4.name, (*rows, blocks * _MXFP4.block_size), self.file.path)

    def open(self) -> StoredTensor:
        """Return the tensor, whose blocks are put together."""
        header = self.header()
        pairs = self._bytes(self.blocks).reshape(-1, 16)
        made = np.empty((len(pairs), _MXFP4.block_bytes), np.uint8)
        made[:, 0] = self._bytes(self.scales)
        # Columns 0 to 15 of a block are in the low halves of its bytes, and 16 to 31 in the high.
        codes = np.stack([pairs & 15, pairs >> 4], axis=2).reshape(-1, 32)
        made[:, 1:] = codes[:, :16] | codes[:, 16:] << 4
        data = made.reshape(math.prod(header.shape[:-1]), -1)
        return StoredTensor(self.name, header.type, header.shape, data, header.file)

    @staticmethod
    def _bytes(place: TensorPlace) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        return place.file.view(place.offset, place.size, place.what)


def with_pairs_joined(
    tensors: Mapping[str, TensorPlace],
) -> dict[str, TensorPlace | PairedBlocks]:
    """Return tensors with each pair of blocks and scales as one, under the name of both."""
    joined: dict[str, TensorPlace | PairedBlocks] = {}
    for name, place in tensors.items():
        start = name.removesuffix(_BLOCKS)
        scales = tensors.get(start + _SCALES)
        if start != name and scales is not None and place.format == scales.format == "U8":
            joined[start] = PairedBlocks(start, place, scales)
        elif f"{name.removesuffix(_SCALES)}{_BLOCKS}" not in tensors or _SCALES not in name:
            joined[name] = place
    return joined
