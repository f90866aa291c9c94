"""The choice of experts by logits that are not finite: the same on every executor."""

import numpy as np
import pytest

from node_programs import TOKENS, fill_step, node_program
from tensor_ops_decode import reference
from tensor_ops_decode.nodes import KINDS


def chosen(executor, program, tensors):
    executable = executor.compile_program(program.to_json(), tensors)
    fill_step(executable.arrays)
    with np.errstate(all="ignore"):
        executable.run(TOKENS, 0)
    found = [executable.arrays[name][:TOKENS].copy() for name in program.outputs]
    executable.close()
    return found


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("sample", KINDS["route"].samples, ids=lambda sample: sample.name)
def test_special_logits(executor, sample, value):
    program, tensors = node_program("route", sample)
    reason = executor.supports_program(program.to_json())
    if reason is not None:
        pytest.skip(reason)
    for where in (0, -1, slice(None)):
        special = {name: array.copy() for name, array in tensors.items()}
        special["table.x"][:, where] = value
        (weights, experts), right = (
            chosen(each, program, special) for each in (executor, reference)
        )
        assert np.array_equal(experts, right[1])
        np.testing.assert_allclose(weights, right[0], rtol=1e-5)
        if np.isnan(value):
            assert np.isnan(weights).any(axis=1).all()
