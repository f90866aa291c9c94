"""One model on two devices of a process, with the kernels that the guide's block makes."""

import os
import textwrap

from test_kernel_guide import DEVICES

BEFORE = """
import sys
sys.path.insert(0, {folder!r})
from emulated import Runtime
taken = Runtime().taken
"""
AFTER = """
def bytes_of(kernel, device):
    before = taken(device)
    kernel.compile()
    return taken(device) - before
shared = [bytes_of(kernel, device) for device, kernel in enumerate(kernels)]
alone = yr.PersistentKernel(backend="cuda")
assert 0 < min(shared) and max(shared) < bytes_of(alone, 0), shared
every = [*kernels, alone]
for kernel in every:
    kernel.add_request([1, 2, 3])
for _ in range(5):
    first, second, expected = [kernel() for kernel in every]
    assert first == second == expected
assert kernels[0].logits(0).tobytes() == kernels[1].logits(0).tobytes()
print(len(kernels), kernels[1].explain().shares.rank)
"""


def test_kernels_of_a_process_have_a_device_each(python, runtime):
    guide = textwrap.dedent(DEVICES).replace("import yirage as yr", "import tensor_ops as yr")
    code = BEFORE.format(folder=os.path.dirname(__file__)) + guide + AFTER
    assert python(code, TENSOR_OPS_EMULATED_DEVICES="2").split() == ["2", "1"]
