"""Options of every test run; no configuration of its machine may decide what the tests see."""

import os
import tempfile

for name in list(os.environ):
    if name.startswith("TENSOR_OPS_") and name != "TENSOR_OPS_CPP_ISA":
        del os.environ[name]
os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp(prefix="tensor-ops-no-config-")


def pytest_addoption(parser):
    parser.addoption(
        "--require-backend",
        action="append",
        default=[],
        metavar="NAME",
        help="fail instead of skipping when this backend is unavailable (repeatable)",
    )
    parser.addoption(
        "--backend",
        action="append",
        default=[],
        metavar="NAME",
        help="run only on this backend (repeatable)",
    )
