"""Which writes samples of tensors show."""

import itertools

import pytest
import torch

from tensor_ops_torch.decoding.tensor_samples import TensorSamples

TENSORS = {
    "matrix": lambda: torch.ones(50, 70),
    "transposed": lambda: torch.ones(50, 70).T,
    "every second column": lambda: torch.ones(50, 70)[:, ::2],
    "expanded": lambda: torch.ones(1, 70).expand(50, 70),
    "bfloat16": lambda: torch.ones(50, 70, dtype=torch.bfloat16),
    "number": lambda: torch.tensor(1.0),
    "NaN": lambda: torch.full((3,), torch.nan),
    "small": lambda: torch.ones(64),
    "indices": lambda: torch.ones(100, dtype=torch.int64),
    "other indices": lambda: torch.ones(100, dtype=torch.int32),
}


def make_tensors():
    return [torch.zeros(0, 4), *(make() for make in TENSORS.values())]


@pytest.fixture
def tensors():
    return make_tensors()


def test_the_same_tensors_have_the_same_samples(tensors):
    samples = TensorSamples(tensors)
    assert samples.first_change(tensors) is None
    assert samples.first_change(make_tensors()) is None


@pytest.mark.parametrize("place", range(1, 1 + len(TENSORS)), ids=list(TENSORS))
def test_a_tensor_with_other_values_is_found(tensors, place):
    samples = TensorSamples(tensors)
    tensors[place].untyped_storage().fill_(3)  # each byte
    assert samples.first_change(tensors) == place


def test_samples_of_a_large_tensor_are_equally_far_apart():
    """At no multiple of the columns or of a part of them, as 55 would be."""
    tensor = torch.zeros(50, 70)
    samples, found = TensorSamples([tensor]), []
    for index in range(tensor.numel()):
        tensor.view(-1)[index] = 1
        if samples.first_change([tensor]) == 0:
            found.append(index)
        tensor.view(-1)[index] = 0
    assert found == [*range(0, 64 * 53, 53)]


@pytest.mark.parametrize("shape", [(4096, 16), (64, 8), (4096, 62), (64, 63), (2, 64), (1, 9999)])
def test_all_columns_but_one_are_seen(shape):
    tensor = torch.zeros(shape)
    samples = TensorSamples([tensor])
    tensor[:, 1:] = 1
    assert samples.first_change([tensor]) == 0


@pytest.mark.parametrize("kind", ["transposed", "every second column"])
def test_samples_of_other_layouts_are_a_grid(kind):
    tensor, found = TENSORS[kind](), []
    samples = TensorSamples([tensor])
    for row, column in itertools.product(*map(range, tensor.shape)):
        tensor[row, column] = 5
        if samples.first_change([tensor]) == 0:
            found.append((row, column))
        tensor[row, column] = 1
    steps = [(size - 1) // 7 for size in tensor.shape]
    assert found == [*itertools.product(*(range(0, 8 * step, step) for step in steps))]


def test_every_element_of_a_small_tensor_is_a_sample(tensors):
    samples = TensorSamples(tensors)
    for index in range(64):
        tensors[8][index] = 5
        assert samples.first_change(tensors) == 8
        tensors[8][index] = 1


def test_many_tensors_are_compared():
    tensors = [torch.zeros(100) for _ in range(600)]
    samples = TensorSamples(tensors)
    tensors[555][0] = 1
    assert samples.first_change(tensors) == 555


def test_zeros_of_other_signs_are_other_values():
    tensor = torch.zeros(3)
    samples = TensorSamples([tensor])
    assert samples.first_change([-tensor]) == 0
