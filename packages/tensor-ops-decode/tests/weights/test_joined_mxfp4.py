"""MXFP4 weights in a folder: blocks and scales, as transformers writes them."""

import json

import gguf
import numpy as np
import pytest
from safetensors.numpy import save_file

from tensor_ops_decode.weights import FileFormatError, open_weights

SHAPE = (2, 3, 64)
NAME = "experts.down_proj"


def pair(values):
    """Return values in the blocks and scales of transformers, and in those of GGML."""
    stored = gguf.quants.quantize(values, gguf.GGMLQuantizationType.MXFP4)
    blocks = stored.reshape(-1, 17)
    codes = np.concatenate([blocks[:, 1:] & 15, blocks[:, 1:] >> 4], axis=1)
    shape = (*values.shape[:-1], values.shape[-1] // 32)
    pairs = codes[:, ::2] | codes[:, 1::2] << 4
    return pairs.reshape(*shape, 16), blocks[:, 0].reshape(shape).copy(), stored


def folder_of(path, **tensors):
    (path / "config.json").write_text(json.dumps({}), encoding="utf-8")
    save_file(tensors, path / "model.safetensors")
    return open_weights(path)


@pytest.fixture
def values():
    return np.random.default_rng(3).standard_normal(SHAPE).astype(np.float32)


def test_blocks_and_scales_are_one_tensor(tmp_path, values):
    blocks, scales, stored = pair(values)
    weights = folder_of(
        tmp_path, **{f"{NAME}_blocks": blocks, f"{NAME}_scales": scales, "norm": values[0, 0]}
    )
    assert set(weights.names) == {NAME, "norm"}
    assert (weights.header(NAME).type, weights.header(NAME).shape) == ("mxfp4", SHAPE)
    found = weights.tensor(NAME)
    assert found.data.tobytes() == stored.tobytes()
    right = gguf.quants.dequantize(stored, gguf.GGMLQuantizationType.MXFP4)
    assert np.array_equal(found.values(), right.reshape(SHAPE))


def test_pairs_that_do_not_fit_are_refused(tmp_path, values):
    blocks, scales, _ = pair(values)
    weights = folder_of(
        tmp_path, **{f"{NAME}_blocks": blocks, f"{NAME}_scales": scales[..., :1].copy()}
    )
    with pytest.raises(FileFormatError, match=r"_blocks' of shape \[2, 3, 2, 16\] and .*_scales'"):
        weights.header(NAME)


def test_what_is_no_pair_stays_as_it_is(tmp_path, values):
    blocks, _, _ = pair(values)
    weights = folder_of(tmp_path, **{f"{NAME}_blocks": blocks, "mlp_scales": values[0]})
    assert set(weights.names) == {f"{NAME}_blocks", "mlp_scales"}
