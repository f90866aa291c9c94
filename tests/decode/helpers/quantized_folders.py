"""Folders with weights as other libraries quantize them, beside the same weights in float32."""

import json

import numpy as np
import torch
from safetensors.torch import load_file, save_file

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
FP8_LARGEST = 448.0


def scaled_e4m3(values, block, scale_dtype):
    """Return a matrix in E4M3 with a scale for each block, and what both mean.

    A block has rows and columns; None for all of them.
    """
    rows, columns = values.shape
    high, wide = (size or most for size, most in zip(block, values.shape, strict=True))
    scales = torch.empty(-(-rows // high), -(-columns // wide), dtype=scale_dtype)
    numbers, meant = torch.empty(values.shape, dtype=torch.float8_e4m3fn), torch.empty(values.shape)
    for i in range(scales.shape[0]):
        for j in range(scales.shape[1]):
            at = slice(i * high, (i + 1) * high), slice(j * wide, (j + 1) * wide)
            # A power of two, which may be rounded down, is to be large enough.
            largest = values[at].abs().max() * (2 if scale_dtype == torch.float8_e8m0fnu else 1)
            scales[i, j] = largest / FP8_LARGEST
            scale = scales[i, j].float()
            numbers[at] = (values[at] / scale).clip(-FP8_LARGEST, FP8_LARGEST)
            meant[at] = numbers[at].float() * scale
    return numbers, scales, meant


def integers_of_4_bits(values, group, *, is_centred=False):
    """Return integers, zero points and scales of groups of columns, and what they mean."""
    rows, columns = values.shape
    grouped = values.reshape(rows, -1, group or columns)
    largest, least = grouped.amax(-1).clip(min=0), grouped.amin(-1).clip(max=0)
    if is_centred:
        scales = (torch.maximum(largest, -least) / 7).half()
        zeros = torch.full_like(scales, 8)
    else:
        scales = ((largest - least) / 15).half()
        zeros = (-least / scales.float()).round().clip(1, 15)
    scale, zero = (each.float().repeat_interleave(group or columns, 1) for each in (scales, zeros))
    integers = (values / scale + zero).round().clip(0, 15)
    return integers.int(), zeros.int(), scales, scale * (integers - zero)


def words(nibbles, axis, order=range(8)):
    """Pack eight integers along an axis into a word each, the one of order[i] in nibble i."""
    nibbles = np.moveaxis(np.asarray(nibbles).astype(np.uint32), axis, -1)
    nibbles = nibbles.reshape(*nibbles.shape[:-1], -1, 8)
    packed = np.zeros(nibbles.shape[:-1], np.uint32)
    for nibble, which in enumerate(order):
        packed |= nibbles[..., which] << np.uint32(4 * nibble)
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(packed, -1, axis)).view(np.int32))


def fp8(name, values, block=(128, 128), scale_dtype=torch.float32, ending="_scale_inv"):
    """Return the tensors that a matrix becomes, and what they mean."""
    numbers, scales, meant = scaled_e4m3(values, block, scale_dtype)
    if scales.numel() == 1:
        scales = scales.reshape(())
    return {name: numbers, name + ending: scales}, meant


def gptq(name, values, group=64, version=1, *, is_centred=False):
    """Return the tensors that a matrix becomes, and what they mean."""
    integers, zeros, scales, meant = integers_of_4_bits(values, group, is_centred=is_centred)
    module = name.removesuffix(".weight")
    columns = values.shape[1]
    return {
        f"{module}.qweight": words(integers.T, 0),
        f"{module}.qzeros": words((zeros - int(version == 1)).T, 1),
        f"{module}.scales": scales.T.contiguous(),
        f"{module}.g_idx": torch.arange(columns, dtype=torch.int32) // (group or columns),
    }, meant


def awq(name, values, group=64):
    """Return the tensors that a matrix becomes, and what they mean."""
    integers, zeros, scales, meant = integers_of_4_bits(values, group)
    module = name.removesuffix(".weight")
    return {
        f"{module}.qweight": words(integers.T, 1, AWQ_ORDER),
        f"{module}.qzeros": words(zeros.T, 1, AWQ_ORDER),
        f"{module}.scales": scales.T.contiguous(),
    }, meant


def write_quantized(folder, meant_folder, quantization, convert):
    """Quantize the matrices of the layers in a folder; write what that means to another."""
    tensors = load_file(folder / "model.safetensors")
    meant = dict(tensors)
    for name, values in tensors.copy().items():
        is_router = name.endswith(("mlp.gate.weight", "shared_expert_gate.weight"))
        if ".layers." not in name or values.ndim < 2 or is_router:
            continue
        parts, meant[name] = convert(name, values.float())
        del tensors[name]
        tensors |= parts
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    for path, found, settings in (
        (folder, tensors, config | {"quantization_config": quantization}),
        (meant_folder, meant, config),
    ):
        save_file(found, path / "model.safetensors", {"format": "pt"})
        (path / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    return meant
