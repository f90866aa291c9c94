"""What importing the package says where PyTorch is missing, broken or too old."""

import os
import subprocess
import sys

import pytest

TRY = """
import sys
if "{hidden}":
    sys.modules["torch"] = None  # as if nothing of that name were installed
import tensor_ops
for _ in range(2):  # the second import must not find half a package
    try:
        from tensor_ops_torch import resolve_torch_device
    except tensor_ops.BackendError as error:
        assert isinstance(error, RuntimeError) and isinstance(error, ImportError)
        print(f"{{error}} <- {{type(error.__cause__).__name__}}")
"""


def outcome(tmp_path, torch=None):
    """Return what a process with a `torch` of its own says to the import."""
    if torch is not None:
        (tmp_path / "torch.py").write_text(torch)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    code = TRY.format(hidden="yes" if torch is None else "")
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.splitlines()
    assert first == second
    return first


def test_missing(tmp_path):
    said = outcome(tmp_path)
    assert said.startswith("tensor_ops_torch needs PyTorch: torch is not installed; ")
    assert "install it with: pip install 'torch>=" in said
    assert said.endswith("<- ModuleNotFoundError")


@pytest.mark.parametrize(
    ("torch", "says"),
    [
        (
            "raise OSError('libtorch_cpu.so: cannot open shared object file')",
            "importing torch failed: OSError: libtorch_cpu.so: cannot open shared object file; "
            "install it anew: pip install --force-reinstall 'torch>=2.6' <- OSError",
        ),
        (
            "import a_module_that_is_not_here",
            "a module that it needs is not: No module named 'a_module_that_is_not_here'; "
            "install that, or PyTorch with all it needs: pip install 'torch>=2.6' "
            "<- ModuleNotFoundError",
        ),
        (
            "__version__ = '2.5.1+cu121'",
            "version 2.5.1+cu121 is installed, expected 2.6 or newer; install that: "
            "pip install -U 'torch>=2.6' <- NoneType",
        ),
        ("", "version unknown is installed, expected 2.6 or newer"),
    ],
    ids=["unloadable", "incomplete", "old", "something else"],
)
def test_unimportable(tmp_path, torch, says):
    assert says in outcome(tmp_path, torch)
