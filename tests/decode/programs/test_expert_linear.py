"""Products with chosen experts: no bit depends on the threads, or on what shares a step."""

import numpy as np
import pytest

from node_programs import TOKENS, fill_step, holds, node_program
from tensor_ops_decode.kinds.kind import Sample

# Experts, how many are chosen, columns; rows of the stacks; parts of the input and of the output.
SHAPES = {
    "one expert": ((1, 1, 32), (16,), (1, 1)),
    "gate and up": ((64, 8, 32), (24, 24), (1, 2)),
    "all are chosen": ((9, 9, 45), (7,), (9, 1)),
    "long matrices": ((5, 2, 64), (300, 20), (2, 1)),
    "one row": ((3, 3, 64), (1,), (1, 1)),
    "parts for several": ((40, 6, 96), (50,), (3, 2)),
}


def sample(name):
    (experts, chosen, columns), stacks, (inputs, outputs) = SHAPES[name]
    return Sample(
        name,
        {"x": columns * inputs, "chosen": chosen},
        {
            "weight": [(experts, rows, columns) for rows in stacks],
            "bias": [(experts, rows) for rows in stacks],
        },
        {"num_experts": experts, "input_parts": inputs, "output_parts": outputs},
    )


def outputs(executable, steps):
    """Return the rows of all tokens, which are divided into steps of so many."""
    rows, first = [], 0
    for count in steps:
        fill_step(executable.arrays)
        tokens = executable.arrays["tokens"]
        tokens[:count] = tokens[first : first + count].copy()
        executable.run(count, 0)
        rows.append(executable.arrays["output"][:count].copy())
        first += count
    return np.concatenate(rows)


@pytest.mark.parametrize("weight_type", ["f32", "q4_0", "mxfp4"])
@pytest.mark.parametrize("name", SHAPES)
def test_bits_depend_on_no_other_token_and_no_thread(executor, name, weight_type):
    if not holds(weight_type, SHAPES[name][0][2]):
        pytest.skip("rows of no whole blocks")
    program, tensors = node_program("expert_linear", sample(name), weight_type)
    reason = executor.supports_program(program.to_json())
    if reason is not None:
        pytest.skip(reason)
    found, divisions = set(), ([TOKENS], [1] * TOKENS, [3] * (TOKENS // 3))
    for num_workers in (1, 2, 7):
        executable = executor.compile_program(program.to_json(), tensors, num_workers=num_workers)
        found.update(outputs(executable, steps).tobytes() for steps in divisions)
        executable.close()
    assert len(found) == 1
