"""DTensors of two gloo processes against one process."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def run(*words):
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.nightly
def test_two_ranks_agree_with_one_process():
    done = run(str(HERE / "sharded_ranks.py"))
    assert done.returncode == 0, done.stdout + done.stderr
    for each in ("operator", "model"):
        assert done.stdout.count(f"every {each} agrees") == 2


@pytest.mark.parametrize("first", ["tensor_ops_torch", "torch.distributed.tensor"])
@pytest.mark.sampled(2, "first")
def test_dtensor_is_told_of_the_operators_whichever_is_imported_first(first):
    code = f"""
import sys
import torch
import {first}
print("torch.distributed.tensor" in sys.modules)
import tensor_ops_torch
import torch.distributed.tensor
propagator = torch.distributed.tensor.DTensor._op_dispatcher.sharding_propagator
print(torch.ops.tensor_ops.silu.default in propagator.op_strategy_funcs)
"""
    done = run("-c", code)
    expected = [str(first == "torch.distributed.tensor"), "True"]
    assert done.stdout.split() == expected, done.stderr
