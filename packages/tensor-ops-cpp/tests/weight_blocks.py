"""Random weights of every format that the decode executor multiplies, as files have them."""

import numpy as np

# Columns and bytes of a block, and where in it the half-precision numbers are: a scale, and what
# the minimum is a multiple of.
BLOCKS = {
    "f8_e4m3": (64, 68, ()),
    "iq2_s": (256, 82, (0,)),
    "iq2_xs": (256, 74, (0,)),
    "iq2_xxs": (256, 66, (0,)),
    "iq3_s": (256, 110, (0,)),
    "iq3_xxs": (256, 98, (0,)),
    "iq4_nl": (32, 18, (0,)),
    "iq4_xs": (256, 136, (0,)),
    "mxfp4": (32, 17, ()),
    "nvfp4": (64, 36, ()),
    "q2_K": (256, 84, (80, 82)),
    "q3_K": (256, 110, (108,)),
    "q4_0": (32, 18, (0,)),
    "q4_1": (32, 20, (0, 2)),
    "q4_K": (256, 144, (0, 2)),
    "q4_zp": (32, 19, (0,)),
    "q5_0": (32, 22, (0,)),
    "q5_1": (32, 24, (0, 2)),
    "q5_K": (256, 176, (0, 2)),
    "q6_K": (256, 210, (208,)),
    "q8_0": (32, 34, (0,)),
    "tq1_0": (256, 54, (52,)),
    "tq2_0": (256, 66, (64,)),
}
INTEGER_BLOCKS = tuple(name for name in BLOCKS if name != "f8_e4m3")  # have integer products
NUMBERS = {"bf16": 2, "f16": 2, "f32": 4}  # bytes of a column
# Where the integers of weights are, in formats with a minimum.
INTEGERS = {
    "q2_K": slice(16, 80),
    "q4_1": slice(4, 20),
    "q4_K": slice(16, 144),
    "q4_zp": slice(3, 19),
    "q5_1": slice(4, 24),
    "q5_K": slice(16, 176),
}
# Scales that are no half-precision numbers: a byte of each, and which bits of it are the exponent.
EXPONENTS = {"mxfp4": (slice(0, 1), 128, 0), "nvfp4": (slice(0, 4), 8, 3)}


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
    if name == "f8_e4m3":
        blocks[blocks & 127 == 127] = 0  # NaN
        set_scale(blocks, name, unit * rng.standard_normal(blocks.shape[:2]))
    if name in EXPONENTS:
        set_exponents(blocks, name, np.log2(scale) + rng.integers(-3, 3, blocks.shape[:2]))
    return blocks.reshape(rows, -1)


def set_exponents(blocks, name, exponents):
    """Give scales of one byte exponents, and leave what else is in the byte."""
    at, bias, shift = EXPONENTS[name]
    stored = (np.floor(exponents).astype(int) + bias).clip(0, 255 >> shift) << shift
    blocks[..., at] &= (1 << shift) - 1
    blocks[..., at] |= stored[..., None].astype(np.uint8)


def set_scale(blocks, name, values):
    """Give blocks other scales, which are numbers of half precision or of float32."""
    if name == "f8_e4m3":
        scales = np.broadcast_to(values, blocks.shape[:-1]).astype(np.float32)
        blocks[..., :4] = scales[..., None].view(np.uint8)
    else:
        set_half(blocks, BLOCKS[name][2][0], values)


def scales_of(weight):
    """The scales of rows in f8_e4m3."""
    return weight.reshape(len(weight), -1, 68)[..., :4].copy().view(np.float32)


def values_of_folders(name, weight):
    """The values of a type that GGML has not, in float32."""
    blocks = weight.reshape(len(weight), -1, BLOCKS[name][1])
    if name == "f8_e4m3":
        scales, numbers = scales_of(weight), blocks[..., 4:].astype(int)
        exponents, fractions = numbers >> 3 & 15, numbers & 7
        fractions += 8 * (exponents > 0)
        signed = np.where(numbers < 128, fractions, -fractions)
        numbers = np.ldexp(signed.astype(np.float32), np.maximum(exponents, 1) - 10)
    else:
        scales = blocks[..., :2].copy().view(np.float16).astype(np.float32)
        packed, zeros = blocks[..., 3:], blocks[..., 2:3].astype(int)
        numbers = np.concatenate([packed & 15, packed >> 4], axis=-1) - zeros
    return (scales * numbers.astype(np.float32)).reshape(len(weight), -1)


def set_to_one(block, name):
    """Make the scales of a block one, and its minimums zero."""
    for at, value in zip(BLOCKS[name][2], (1, 0), strict=False):
        set_half(block, at, value)
    if name in EXPONENTS:
        block[EXPONENTS[name][0]] = 0
        set_exponents(block, name, np.zeros(()))
    elif name == "q6_K":
        block[192:208] = 1
    elif name in ("q4_K", "q5_K"):
        block[4:16] = [1] * 4 + [0] * 4 + [1] * 4
    elif name == "q2_K":
        block[:16] = 1
    elif name == "q3_K":  # 32 is subtracted, as from those of iq4_xs
        block[96:108] = [0x11] * 8 + [0xAA] * 4
    elif name == "iq4_xs":
        block[2:8] = [0xAA] * 2 + [0x11] * 4
    elif name in ("iq2_xxs", "iq3_xxs"):  # of codebooks the least, which is one, or a fraction
        block[5 if name == "iq2_xxs" else 69 :: 4] &= 0x0F
    elif name in ("iq2_xs", "iq2_s", "iq3_s"):
        block[-4 if name == "iq3_s" else -8 :] = 0


def set_half(blocks, at, values):
    values = np.broadcast_to(values, blocks.shape[:-1]).astype(np.float16)
    blocks[..., at : at + 2] = values[..., None].view(np.uint8)
