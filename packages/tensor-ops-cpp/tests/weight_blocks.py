"""Random weights of every format that the decode executor multiplies, as files have them."""

import numpy as np

# Columns and bytes of a block, and where in it the half-precision numbers are: a scale, and what
# the minimum is a multiple of.
BLOCKS = {
    "q4_0": (32, 18, (0,)),
    "q4_1": (32, 20, (0, 2)),
    "q4_K": (256, 144, (0, 2)),
    "q5_0": (32, 22, (0,)),
    "q5_1": (32, 24, (0, 2)),
    "q5_K": (256, 176, (0, 2)),
    "q6_K": (256, 210, (208,)),
    "q8_0": (32, 34, (0,)),
}
NUMBERS = {"bf16": 2, "f16": 2, "f32": 4}  # bytes of a column


def random_weight(rng, name, rows, columns, scale=1.0):
    """The bytes of a weight whose integers are any, and whose scales are of both signs."""
    if name == "bf16":
        values = scale * rng.standard_normal((rows, columns))
        bits = values.astype(np.float32).view(np.uint32) >> 16
        return bits.astype(np.uint16).view(np.uint8)
    if name in NUMBERS:
        dtype = np.float16 if name == "f16" else np.float32
        return (scale * rng.standard_normal((rows, columns))).astype(dtype).view(np.uint8)
    block_columns, block_bytes, halves = BLOCKS[name]
    blocks = rng.integers(0, 256, (rows, columns // block_columns, block_bytes), np.uint8)
    # Weights of K formats are multiplied by integers.
    unit = scale if block_columns == 32 else scale / 64
    for at in halves:
        set_half(blocks, at, unit * rng.standard_normal(blocks.shape[:2]))
    return blocks.reshape(rows, -1)


def set_half(blocks, at, values):
    values = np.broadcast_to(values, blocks.shape[:-1]).astype(np.float16)
    blocks[..., at : at + 2] = values[..., None].view(np.uint8)
