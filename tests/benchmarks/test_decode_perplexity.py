"""The perplexity of a model in each format: what is written and measured, on a small model."""

import json

import numpy as np
import pytest

import decode_perplexity
from gguf_models import write_gguf
from small_families import small_model
from tensor_ops_decode import open_weights
from tensor_ops_decode.weights.formats import FORMATS

RECORD = json.loads(decode_perplexity.RECORD.read_text(encoding="utf-8"))


@pytest.mark.parametrize("kind", decode_perplexity.FORMATS)
def test_a_file_has_all_of_its_matrices_in_a_format(tmp_path, kind):
    model = small_model("Qwen 3", hidden_size=64, intermediate_size=64, head_dim=32)
    first, again = tmp_path / "first.gguf", tmp_path / "again.gguf"
    write_gguf(model, first)
    decode_perplexity.write(first, again, kind)
    before, after = open_weights(first), open_weights(again)
    assert sorted(before.names) == sorted(after.names)
    assert {name: after.metadata[name] for name in before.metadata} == dict(before.metadata)
    for name in before.names:
        right, found = before.tensor(name), after.tensor(name)
        assert (found.shape, found.type) == (right.shape, kind if len(right.shape) > 1 else "f32")
        rows = found.data.view(np.uint8).reshape(-1, FORMATS[found.type].row_bytes(found.shape[-1]))
        values = FORMATS[found.type].dequantize(rows, found.shape[-1]).reshape(found.shape)
        exact = right.values(np.float64)
        # The two largest numbers of MXFP4 are a third of the largest apart.
        assert np.abs(values - exact).max() <= 0.25 * np.abs(exact).max()


def test_the_record_has_the_perplexity_of_llama_cpp():
    """Both round what they do beside float weights; beside others llama.cpp rounds activations."""
    assert list(RECORD["formats"]) == list(decode_perplexity.FORMATS)
    for kind, found in RECORD["formats"].items():
        exact, default = (found[f"cpp, activations {each}"] for each in ("float32", "int8x2"))
        bound = 2e-4 if kind in ("f32", "bf16", "f16") else 2e-2
        assert found[decode_perplexity.LLAMA_CPP] == pytest.approx(exact, rel=bound), kind
        assert default == pytest.approx(exact, rel=5e-4), kind
