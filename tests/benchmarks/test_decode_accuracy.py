"""How near logits are to those of float64: what is measured, on a small model."""

import numpy as np
import pytest

import decode_accuracy
from byte_models import save_model
from tensor_ops_decode import PersistentKernel, open_weights, reference

TOKENS = list(range(1, 81))  # more than a step takes


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    save_model(folder)
    return open_weights(folder)


def test_the_logits_are_those_after_each_token(weights):
    logits = decode_accuracy.of_backend(reference, weights, TOKENS, "float32", {})
    assert len(logits) == len(TOKENS)
    for length in (1, 65, 80):
        with PersistentKernel(
            model=weights, backend="python", cache_dtype="float32", max_seq_length=96
        ) as kernel:
            kernel.compile()
            request = kernel.add_request(TOKENS[:length], max_new_tokens=1)
            kernel()
            np.testing.assert_array_equal(logits[length - 1], kernel.logits(request))


def test_differences_are_from_the_right_logits():
    right = np.log([[0.5, 0.25, 0.25], [0.2, 0.2, 0.6]])
    same = decode_accuracy.differences(right + 3.0, right)
    assert same["largest_difference"] == pytest.approx(3)
    assert same["largest_divergence"] == pytest.approx(0, abs=1e-12)
    other = decode_accuracy.differences(np.log([[0.25, 0.5, 0.25], [0.2, 0.2, 0.6]]), right)
    assert other["largest_divergence"] == pytest.approx(0.25 * np.log(2))
    assert other["mean_divergence"] == pytest.approx(0.125 * np.log(2))
    assert (same["other_best"], other["other_best"]) == (0, 1)
