"""No configuration of the machine that runs the tests may decide what they see."""

import os
import tempfile

for name in list(os.environ):
    if name.startswith("TENSOR_OPS_") and name != "TENSOR_OPS_CPP_ISA":
        del os.environ[name]
os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp(prefix="tensor-ops-no-config-")
