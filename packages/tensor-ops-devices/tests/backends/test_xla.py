"""The TPU path on XLA's device for CPUs, where torch_xla is installed.

Each test is a process of its own: XLA is set up once for each. A TPU differs in its memory, of
which XLA reports that of TPUs only, and in its speed.
"""

import importlib.util
import os
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch_xla") is None, reason="torch_xla is not installed"
)
START = """
import os, sys, warnings
import torch
from torch import nn
import tensor_ops
from tensor_ops_devices.backends.tpu import TPUBackend
from tensor_ops_devices.backends.cpu import CPUBackend
from tensor_ops_devices.hardware.config import KernelPyTorchConfig, TPUVersion
from tensor_ops_devices.hardware.detector import HardwareDetector
warnings.simplefilter("ignore", tensor_ops.BackendFallbackWarning)
config = KernelPyTorchConfig()
tpu = config.hardware.tpu
torch.manual_seed(0)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(8, 16)
        self.norm = nn.LayerNorm(16)
        self.output = nn.Linear(16, 8, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, tokens):
        return self.output(self.norm(self.embedding(tokens)))

model, tokens = Model().eval(), torch.arange(8)
expected = model(tokens).detach()

def compilations():
    import torch_xla.debug.metrics as metrics
    data = metrics.metric_data("CompileTime")
    return data[0] if data else 0
"""


@pytest.fixture
def run(tmp_path):
    """A function that runs code with XLA's CPU."""

    def call(code, **variables):
        environment = {**os.environ, "PJRT_DEVICE": "CPU", "XDG_CACHE_HOME": str(tmp_path)}
        environment.pop("XLA_COMPILATION_CACHE_SIZE", None)
        environment.pop("XLA_PERSISTENT_CACHE_PATH", None)
        done = subprocess.run(
            [sys.executable, "-c", START + textwrap.dedent(code)],
            env={**environment, **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return call


def test_a_model_runs_on_xla_and_that_is_said(run):
    run("""
        tpu.version = TPUVersion.V5E
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            backend = TPUBackend(config)
        (warning,) = caught
        assert "Models run on that device of XLA instead; without effect there: version='v5e'" in (
            str(warning.message)
        )
        assert backend.device.type == "xla" and not backend.is_fallback
        moved = backend.prepare_model(model)
        assert moved.output.weight is moved.embedding.weight
        found = moved(backend.prepare_data(tokens))
        assert found.device.type == "xla"
        torch.testing.assert_close(found.detach().cpu(), expected)
        backend.synchronize()
        backend.empty_cache()
        assert backend.get_memory_stats()["allocated"] > 0
        assert "PJRT_DEVICE=CPU" in HardwareDetector().reasons["tpu"]
    """)


def test_training_steps_change_shared_parameters_together(run):
    run("""
        backend = TPUBackend(config)
        moved = backend.prepare_model(model).train()
        optimizer = torch.optim.SGD(moved.parameters(), lr=0.5)
        losses = []
        for _ in range(20):
            optimizer.zero_grad()
            y = moved(backend.prepare_data(tokens))
            loss = nn.functional.cross_entropy(y, backend.prepare_data(tokens))
            loss.backward()
            optimizer.step()
            backend.synchronize()
            losses.append(loss.item())
        assert losses[-1] < losses[0]
        assert torch.equal(moved.output.weight.cpu(), moved.embedding.weight.cpu())
    """)


def test_precision(run):
    run("""
        tpu.precision, tpu.mixed_precision = "bfloat16", True
        backend = TPUBackend(config)
        moved = backend.prepare_model(model)
        found = moved(backend.prepare_data(tokens))
        assert moved.embedding.weight.dtype == torch.float32 and found.dtype == torch.bfloat16
        torch.testing.assert_close(found.float().cpu(), expected, rtol=0.05, atol=0.1)
        tpu.mixed_precision = False
        moved = TPUBackend(config).prepare_model(model)
        assert moved(backend.prepare_data(tokens)).dtype == torch.bfloat16
        assert moved.embedding.weight.dtype == torch.bfloat16
        assert moved.output.weight is moved.embedding.weight
    """)


def test_torch_compile(run):
    run("""
        tpu.compilation_mode = "torch_compile"
        backend = TPUBackend(config)
        compiled = backend.prepare_model(model)
        assert compiled is not model
        found = compiled(backend.prepare_data(tokens))
        torch.testing.assert_close(found.detach().cpu(), expected)
    """)


def test_the_cache_on_disk_is_written(run, tmp_path):
    run("""
        tpu.enable_xla_cache = True
        backend = TPUBackend(config)
        backend.prepare_model(model)(backend.prepare_data(tokens)).cpu()
        TPUBackend(config)
    """)
    assert [path for path in tmp_path.glob("tensor-ops/xla/*") if path.stat().st_size > 0]


def test_the_cache_in_memory_is_as_large_as_was_asked(run):
    code = """
        tpu.cache_max_size = {size}
        backend = TPUBackend(config)
        for _ in range(3):
            for n in (1, 2, 3):
                (torch.ones(n, device=backend.device) * 2).cpu()
        print(compilations())
    """
    few, many = (int(run(code.format(size=size))) for size in (1, 100))
    assert many < few


def test_settings_that_come_too_late(run):
    run("""
        backend = TPUBackend(config)
        (torch.ones(2, device=backend.device) * 2).cpu()
        for name, value in (("enable_xla_cache", True), ("cache_max_size", 5)):
            late = KernelPyTorchConfig()
            setattr(late.hardware.tpu, name, value)
            try:
                TPUBackend(late)
            except tensor_ops.BackendError as error:
                assert f"{name} comes too late" in str(error)
            else:
                raise AssertionError(name)
    """)


def test_a_model_over_the_fraction_of_the_memory(run):
    run("""
        tpu.memory_fraction = 1e-9
        try:
            TPUBackend(config).prepare_model(model)
        except tensor_ops.BackendError as error:
            assert "memory_fraction=1e-09 allows 0.0 MB" in str(error)
        else:
            raise AssertionError
    """)


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_a_checkpoint_of_xla_is_one_of_the_cpu(run, tmp_path, suffix):
    run(f"""
        from tensor_ops_devices.checkpoint import load_checkpoint, save_checkpoint
        path = {str(tmp_path / "model")!r} + ".{suffix}"
        backend, host = TPUBackend(config), CPUBackend(config)
        save_checkpoint(backend.prepare_model(model), path)
        other = host.prepare_model(Model().eval())
        load_checkpoint(other, path)
        assert torch.equal(other(tokens), expected)
        again = backend.prepare_model(Model().eval())
        load_checkpoint(again, path)
        found = again(backend.prepare_data(tokens)).detach().cpu()
        torch.testing.assert_close(found, expected)
    """)


def test_without_a_choice_xla_is_left_alone(run):
    run(
        """
        backend = TPUBackend(config)
        assert backend.device.type == "cpu" and backend.is_fallback, backend
        assert "torch_xla" not in sys.modules and not os.environ["PJRT_DEVICE"]
        """,
        PJRT_DEVICE="",
    )


def test_the_validator_asks_xla_for_its_operators(run):
    run("""
        from tensor_ops_devices.validation.unified_validator import UnifiedValidator
        report = UnifiedValidator(config).validate_tpu_compatibility(model, example_inputs=tokens)
        (check,) = [each for each in report.passed if each.name == "operators"]
        assert check.message.startswith("all ")

        class Unknown(nn.Module):
            def forward(self, x):
                return torch.special.bessel_j0(x)

        report = UnifiedValidator(config).validate_tpu_compatibility(
            Unknown(), example_inputs=torch.ones(2)
        )
        (check,) = [each for each in report.warnings if each.name == "operators"]
        assert "aten::special_bessel_j0 on the CPU" in check.message
    """)
