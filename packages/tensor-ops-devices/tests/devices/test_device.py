"""Which device a backend means, and every error on the way."""

import pytest
import torch

import tensor_ops
import tensor_ops_devices
from tensor_ops import BackendUnavailableError
from tensor_ops_devices import BackendError, resolve_amp_config, resolve_torch_device

BUILDS = {"cuda": {"cuda": "13.0"}, "rocm": {"hip": "6.4"}, "mps": {"mps": True}}


def test_backend_error_is_that_of_tensor_ops_and_a_runtime_error():
    assert tensor_ops_devices.BackendError is tensor_ops.BackendError
    assert issubclass(BackendError, RuntimeError)


class TestAuto:
    def test_cpu_where_there_is_nothing_else(self, pretend):
        pretend.devices()
        assert resolve_torch_device("auto") == torch.device("cpu")

    def test_mps_before_the_cpu(self, pretend):
        pretend.apple()
        assert resolve_torch_device("auto") == torch.device("mps")

    @pytest.mark.parametrize("build", ["cuda", "rocm"])
    def test_cuda_before_mps(self, pretend, build):
        pretend.gpu(**BUILDS[build])
        pretend.devices(cuda=1, mps=True)
        assert resolve_torch_device("auto") == torch.device("cuda")


def test_cpu_is_the_cpu_beside_a_gpu(pretend):
    pretend.gpu()
    assert resolve_torch_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize("backend", ["cuda", "rocm"])
def test_a_build_for_the_backend_with_a_gpu(pretend, backend):
    pretend.gpu(**BUILDS[backend])
    assert resolve_torch_device(backend) == torch.device("cuda")


@pytest.mark.parametrize(("backend", "build"), [("cuda", "rocm"), ("rocm", "cuda")])
def test_a_build_for_the_other_backend(pretend, backend, build):
    pretend.gpu(**BUILDS[build])
    with pytest.raises(BackendUnavailableError) as caught:
        resolve_torch_device(backend)
    built_for = "ROCm 6.4" if build == "rocm" else "CUDA 13.0"
    for text in (repr(backend), f"is built for {built_for}", f"ask for '{build}' or 'auto'"):
        assert text in str(caught.value)
    assert caught.value.name == backend


@pytest.mark.parametrize("backend", ["cuda", "rocm", "mps"])
def test_a_build_for_the_cpu_only(pretend, backend):
    pretend.build()
    pretend.devices()
    with pytest.raises(BackendError, match=r"built for the CPU only; ask for 'cpu' or 'auto'"):
        resolve_torch_device(backend)


@pytest.mark.parametrize(
    ("backend", "says"),
    [("cuda", "no NVIDIA GPU"), ("rocm", "no AMD GPU"), ("mps", "it needs an Apple GPU")],
)
def test_the_right_build_without_a_device(pretend, backend, says):
    pretend.build(**BUILDS[backend])
    pretend.devices()
    with pytest.raises(BackendError, match=says):
        resolve_torch_device(backend)


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        ("cudaa", "cuda"),
        ("vulkan", None),
        ("CPU", "cpu"),
        ("rocmm", "rocm"),
        # The name that is meant, and not the one that is written alike.
        ("nvidia", "cuda"),
        ("AMD", "rocm"),
        ("hip", "rocm"),
        ("metal", "mps"),
        ("tpu", None),
        ("xpu", None),
    ],
)
def test_unknown_backends(given, nearest):
    with pytest.raises(BackendError) as caught:
        resolve_torch_device(given)
    message = str(caught.value)
    assert message.startswith(f"unknown backend {given!r}; ")
    assert "'auto', 'cpu', 'cuda', 'rocm', 'mps'" in message
    assert ("did you mean" in message) is (nearest is not None)
    assert nearest is None or f"did you mean {nearest!r}?" in message


def test_any_gpu_is_several_backends():
    with pytest.raises(BackendError, match=r"did you mean 'auto', 'cuda', 'rocm' or 'mps'\?"):
        resolve_torch_device("gpu")


def test_none_is_auto(pretend):
    pretend.apple()
    assert resolve_torch_device(None) == torch.device("mps")
    assert resolve_amp_config(None) == resolve_amp_config("mps")


@pytest.mark.parametrize("given", [1, torch.device("cpu")], ids=repr)
def test_backends_that_are_no_names(given):
    with pytest.raises(TypeError, match=f"must be a string, got {type(given).__name__}"):
        resolve_torch_device(given)


class TestAMP:
    @pytest.mark.parametrize(
        ("device", "enabled", "dtype", "scaled"),
        [
            ("cpu", False, None, False),
            ("cuda", True, torch.float16, True),
            ("cuda:1", True, torch.float16, True),
            (torch.device("mps"), True, torch.float16, False),
        ],
    )
    def test_the_documented_policy(self, device, enabled, dtype, scaled):
        assert resolve_amp_config(device) == {
            "enabled": enabled,
            "dtype": dtype,
            "use_grad_scaler": scaled,
        }

    @pytest.mark.parametrize("device", ["cpu", "cuda", "mps"])
    def test_bfloat16_on_request_is_not_scaled(self, pretend, device):
        pretend.gpu()
        pretend.devices(cuda=1, mps=True)
        pretend.patch.setattr(torch.backends.mps, "is_macos_or_newer", lambda *version: True)
        policy = resolve_amp_config(device, dtype=torch.bfloat16)
        assert policy == {"enabled": True, "dtype": torch.bfloat16, "use_grad_scaler": False}

    def test_the_policy_of_the_cpu_trains(self):
        policy = resolve_amp_config("cpu", dtype=torch.bfloat16)
        layer = torch.nn.Linear(8, 2)
        with torch.autocast("cpu", enabled=policy["enabled"], dtype=policy["dtype"]):
            result = layer(torch.ones(3, 8))
        assert result.dtype is torch.bfloat16
        scaler = torch.amp.GradScaler("cpu", enabled=policy["use_grad_scaler"])
        scaler.scale(result.sum()).backward()
        assert layer.weight.grad.dtype is torch.float32

    @pytest.mark.parametrize(
        ("device", "build", "reason"),
        [
            ("cuda", {}, "is built for the CPU only"),
            ("cuda:1", {"cuda": "13.0"}, "no NVIDIA GPU that this process may use"),
            ("cuda", {"hip": "6.4"}, "no AMD GPU that this process may use"),
            ("mps", {}, "it needs an Apple GPU and its macOS"),
            ("mps", {"mps": True}, "it needs an Apple GPU and its macOS"),
        ],
    )
    def test_bfloat16_of_a_device_that_is_not_there(self, pretend, device, build, reason):
        pretend.build(**build)
        pretend.devices()
        with pytest.raises(BackendUnavailableError, match=reason) as caught:
            resolve_amp_config(device, dtype=torch.bfloat16)
        assert str(caught.value).startswith(f"no autocast in torch.bfloat16 on {device!r}: ")
        assert caught.value.name == device.partition(":")[0]

    def test_a_gpu_without_bfloat16(self, pretend):
        pretend.gpu()
        pretend.patch.setattr(torch.cuda, "is_bf16_supported", lambda: False)
        with pytest.raises(BackendError, match=r"leave dtype out for torch\.float16"):
            resolve_amp_config("cuda", dtype=torch.bfloat16)

    def test_a_macos_without_bfloat16(self, pretend):
        pretend.apple()
        pretend.patch.setattr(torch.backends.mps, "is_macos_or_newer", lambda *version: False)
        with pytest.raises(BackendError, match="macOS 14"):
            resolve_amp_config("mps", dtype=torch.bfloat16)

    def test_float16_on_the_cpu(self):
        with pytest.raises(BackendError, match=r"ask for torch\.bfloat16"):
            resolve_amp_config("cpu", dtype=torch.float16)

    @pytest.mark.parametrize("dtype", [torch.float32, "float16", torch.float8_e5m2], ids=repr)
    def test_dtypes_without_autocast(self, dtype):
        with pytest.raises(BackendError, match=r"expected torch\.float16 or torch\.bfloat16"):
            resolve_amp_config("cuda", dtype=dtype)

    @pytest.mark.parametrize("device", ["meta", "xpu", "tpu"], ids=repr)
    def test_devices_without_a_policy(self, device):
        with pytest.raises(BackendError, match=r"no policy for device|no device of PyTorch"):
            resolve_amp_config(device)

    def test_any_gpu(self):
        with pytest.raises(BackendError, match=r"did you mean 'auto', 'cuda', .*\? pass what"):
            resolve_amp_config("gpu")

    @pytest.mark.parametrize("backend", ["auto", "rocm"])
    def test_names_of_backends_that_are_no_devices(self, backend):
        with pytest.raises(BackendError, match=rf"pass resolve_torch_device\('{backend}'\)"):
            resolve_amp_config(backend)
