"""Which writes samples of tensors show."""

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


@pytest.fixture
def tensors():
    return [torch.zeros(0, 4), *(make() for make in TENSORS.values())]


def test_the_same_tensors_have_the_same_samples(tensors):
    samples = TensorSamples(tensors)
    assert samples.first_change(tensors) is None
    assert samples.first_change([each.clone() for each in tensors]) is None


@pytest.mark.parametrize("place", range(1, 1 + len(TENSORS)), ids=list(TENSORS))
def test_a_tensor_with_other_values_is_found(tensors, place):
    samples = TensorSamples(tensors)
    tensors[place] = tensors[place] * 0 if place != 7 else torch.ones(3)
    assert samples.first_change(tensors) == place


def test_samples_of_a_large_tensor_are_equally_far_apart():
    tensor = torch.zeros(50, 70)
    samples, found = TensorSamples([tensor]), []
    for index in range(tensor.numel()):
        tensor.view(-1)[index] = 1
        if samples.first_change([tensor]) == 0:
            found.append(index)
        tensor.view(-1)[index] = 0
    assert found == [*range(0, 64 * 55, 55)]


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
