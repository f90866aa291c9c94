"""The torch backend of tensor_ops; its numbers are for the conformance suite."""

import inspect
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

import tensor_ops
from tensor_ops import backends
from tensor_ops.backends import contract, installed
from tensor_ops.backends.names import KNOWN
from tensor_ops.ops import OPS
from tensor_ops_torch import torch_backend


def output(code, **variables):
    """Return what a process prints that is given ``TENSOR_OPS_<name>`` variables."""
    own = {f"TENSOR_OPS_{name}": value for name, value in variables.items()}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | own,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


class TestContract:
    def test_it_is_installed_under_its_name(self):
        assert "torch" in backends.INSTALLED
        assert backends.load("torch").module is torch_backend
        assert tensor_ops.is_backend_available("torch")

    def test_facts(self):
        facts = tensor_ops.get_backend_info("torch")
        assert list(torch_backend.info()) == list(facts)
        assert (facts["available"], facts["reason"]) == (True, None)
        assert facts["version"] == torch.__version__
        assert facts["compute_units"] == torch.get_num_threads()
        assert facts["ops"] == tensor_ops.list_ops()
        assert facts["device_name"] == f"CPU ({torch.backends.cpu.get_cpu_capability()})"

    def test_facts_without_the_core(self):
        facts = torch_backend.info()
        assert facts["display_name"] == KNOWN["torch"].display_name
        assert all(isinstance(facts[key], int) for key in contract.NUMBER_KEYS)
        assert torch_backend.probe()["kind"] == backends.kind_of_device("torch") == "cpu"

    @pytest.mark.parametrize("name", OPS)
    def test_it_has_every_op_in_every_dtype_on_the_cpu(self, name):
        assert all(torch_backend.supports(name, dtype, "cpu") is None for dtype in OPS[name].bounds)
        function = getattr(torch_backend, name)
        assert function.__doc__
        assert inspect.signature(function) == OPS[name].signature

    @pytest.mark.parametrize(
        ("op", "dtype", "device", "says"),
        [
            ("matmul", "float32", "cpu", "it has no matmul"),
            ("silu", "int8", "cpu", "it has no int8; it has float32, float16"),
            ("silu", "float32", "cuda:0", "it takes arrays on the CPU, not on cuda:0"),
        ],
    )
    def test_what_it_does_not_support(self, op, dtype, device, says):
        assert torch_backend.supports(op, dtype, device).startswith(says)


class TestSelection:
    def test_it_is_not_in_the_default_priority_and_not_imported(self):
        code = (
            "import sys, numpy, tensor_ops; tensor_ops.silu(numpy.ones(3)); "
            "tensor_ops.list_backends(verbose=True); "
            "print('imported:', *{'torch', 'tensor_ops_torch'} & set(sys.modules))"
        )
        *lines, imported = output(code).splitlines()
        assert imported == "imported:"
        shown = dict(line.split(maxsplit=1) for line in lines)
        assert shown["torch"] == "installed, outside the priority list: not imported"
        for name in ("mps", "tpu", "nki"):
            assert "call the operators of tensor_ops_torch on tensors" in shown[name]

    @pytest.mark.parametrize("first", ["tensor_ops", "tensor_ops_torch", "torch"])
    def test_forced_whatever_is_imported_first(self, first):
        code = f"import {first}, tensor_ops, tensor_ops_torch; print(tensor_ops.get_backend())"
        assert output(code, FORCE_BACKEND="torch") == "torch"

    def test_preferred(self):
        code = "import numpy, tensor_ops; print(tensor_ops.explain('silu', numpy.ones(3)).backend)"
        assert output(code, BACKEND="torch") == "torch"

    def test_the_operators_run_on_it_where_it_is_named(self):
        x = torch.linspace(-4, 4, 9, requires_grad=True)
        with tensor_ops.use_backend("torch"):
            y = torch.ops.tensor_ops.silu(x)
            y.sum().backward()
        torch.testing.assert_close(y, torch.nn.functional.silu(x))
        assert x.grad is not None

    def test_a_pytorch_that_is_broken_is_the_reason(self, tmp_path):
        (tmp_path / "torch.py").write_text("raise OSError('libtorch_cpu.so is lost')")
        code = (
            f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import tensor_ops; "
            "print(tensor_ops.get_backend_info('torch')['reason'])"
        )
        reason = output(code)
        assert "importing torch failed: OSError: libtorch_cpu.so is lost; install it" in reason


class TestCalls:
    def test_settings_of_pytorch_do_not_change_results(self):
        x = np.linspace(-4, 4, 65, dtype=np.float32)
        expected = tensor_ops.softmax(x, backend="torch")
        with torch.autocast("cpu", dtype=torch.bfloat16), torch.inference_mode():
            np.testing.assert_array_equal(tensor_ops.softmax(x, backend="torch"), expected)
        torch.set_default_dtype(torch.float64)
        try:
            np.testing.assert_array_equal(tensor_ops.softmax(x, backend="torch"), expected)
        finally:
            torch.set_default_dtype(torch.float32)

    def test_a_long_row_has_the_same_bits_alone_and_among_others(self):
        """PyTorch splits the sum over one row among its threads."""
        x = np.random.default_rng(3).standard_normal((3, 1 << 20))
        weight = np.ones(1 << 20)
        together = tensor_ops.layer_norm(x, weight, backend="torch")
        for row, expected in zip(x, together, strict=True):
            alone = tensor_ops.layer_norm(row, weight, backend="torch")
            np.testing.assert_array_equal(alone, expected)

    def test_why_the_formulas_of_pytorch_are_not_taken_as_they_are(self):
        """What PyTorch's own kernels give where ours must be right; the day they are, use them."""
        x = torch.tensor([-torch.inf, -100.0])
        assert torch.nn.functional.silu(x)[0].isnan()
        assert tensor_ops.silu(x.numpy(), backend="torch")[0] == 0
        far = torch.tensor([-6.0])
        own = torch.nn.functional.gelu(far, approximate="tanh").item()
        right = tensor_ops.gelu(far.numpy(), backend="torch").item()
        assert own != pytest.approx(right, rel=1e-2)


class TestFacts:
    """What tensor_ops reads of PyTorch's files is what PyTorch says of itself."""

    def test_build(self):
        found = installed.pytorch()
        assert found.version == torch.__version__
        assert (found.cuda, found.hip) == (torch.version.cuda, torch.version.hip)

    def test_libraries_within(self):
        found = installed.pytorch()
        assert found.has_mkl is torch.backends.mkl.is_available()
        assert found.has_mkldnn is torch.backends.mkldnn.is_available()
