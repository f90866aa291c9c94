"""Every block of the guides that this project implements has its counterpart in a block of ours.

Those guides (on configuration, backends, PyTorch's backends and its devices) are not part of the
repository. Their shell, Python, JSON and output blocks are numbered here in their order, each with
lines that keep its promise. That our blocks are true is for ``test_pages.py``.
"""

from pathlib import Path

import pytest

CONFIGURE = "tensor-ops configure_backend "
CONFIGURATION = {
    1: ('"preferred_backend": "auto"', '["cuda", "opencl", "cpp", "python"]'),
    2: (CONFIGURE + "--show",),
    3: ("Current Backend Configuration:\n  Preferred backend: auto\n  Force backend: None\n",),
    4: tuple(f"--backend={name} " for name in ("cpp", "cuda", "opencl", "python", "auto")),
    5: (CONFIGURE + "--backend=cuda --force",),
    6: ('--priority="cpp,cuda,opencl,python"', '--priority="opencl,cuda,cpp,python"'),
    7: (CONFIGURE + '--backend=auto --priority="cpp,cuda,opencl,python"',),
    8: ('"preferred_backend": "cpp"', '["cpp", "cuda", "opencl", "python"]'),
    9: (CONFIGURE + "--backend=cpp\n",),
    10: ("print(tensor_ops.get_backend())",),
    11: (CONFIGURE + "--backend=cuda\n",),
    12: ("BackendFallbackWarning: backend 'cuda', preferred by", "Running on 'cpp' instead"),
    13: (CONFIGURE + '--backend=auto --priority="cpp,opencl,cuda,python"',),
    14: ("print(tensor_ops.get_backend())  # the first of cpp, opencl, cuda, python",),
    15: (CONFIGURE + "--backend=cuda --force",),
    16: ("BackendUnavailableError: backend 'cuda' (forced by .../backend.json) is unavailable",),
    17: ('info["backend"]', 'info["config"]', 'info["available_backends"]'),
    18: ("Active backend: cpp\nConfiguration: {", "Available backends: ['cpp', 'python']"),
    19: (CONFIGURE + "--backend=cuda --force",),
    20: (CONFIGURE + "--backend=auto\n",),
    21: ("for backend in python cpp; do\n", "python benchmark.py"),
    22: ("--backend=cuda --force", "--backend=opencl:gpu --force", "--backend=cpp"),
    23: (CONFIGURE + "--backend=cuda\n",),
    24: ('get_backend_info("cuda")["reason"]',),
    25: ("pip install ./packages/tensor-ops-cpp",),
    26: ("BackendUnavailableError: backend 'cuda' (forced by TENSOR_OPS_FORCE_BACKEND)",),
    27: ('if [ "${GPU_TYPE:-none}" = "nvidia" ]; then', "elif", "else"),
}
BACKENDS = {
    1: ("tensor_ops.get_backend_info()", "rms_norm(x, weight)", "silu(x)", "gelu(x)"),
    2: (CONFIGURE + "--show", "--backend=cpp", '--priority="cpp,cuda,opencl,python"'),
    3: ("tensor-ops test_capabilities",),
    4: ("nox -s build_cpp",),
    5: ('tensor_ops.get_backend_info("cuda")["reason"]',),
    6: ("tensor-ops info opencl",),
    7: ("nox -s detect_and_benchmark",),
    8: ("nox -s conformance -- --backend=cpp",),
    9: ("import tensor_ops_cuda", "tensor_ops_cuda.get_cuda_info()"),
    10: ("import tensor_ops_opencl", "tensor_ops_opencl.get_opencl_info()"),
    11: ("tensor_ops_cpp.get_optimization_info()", "tensor_ops_cpp.rms_norm(x, weight)"),
    12: ("nvcc --version",),
    13: ("ocl-icd-opencl-dev", "clinfo\n"),
    14: ("import sys", 'importlib.util.find_spec("tensor_ops_cpp")'),
}
PYTORCH_DEVICES = {
    1: (
        "from tensor_ops_devices import (\n    BackendError,\n    configure_torch_backend,\n",
        'backend = "auto"\ntry:\n    device = resolve_torch_device(backend)\n',
        'except BackendError as exc:\n    raise SystemExit(f"Invalid backend: {exc}") from exc\n',
        "configure_torch_backend(backend, device, verbose=True)\n",
        "amp_config = resolve_amp_config(device)\n",
    ),
}

NVIDIA = "config.hardware.nvidia."
TPU = "config.hardware.tpu."
PYTORCH = {
    1: ("backend_name = detector.get_optimal_backend()", "config = KernelPyTorchConfig()"),
    2: (
        "model = nvidia_backend.prepare_model(your_model)",
        "model = tpu_backend.prepare_model(your_model)",
    ),
    3: (
        "profile = detector.detect()",
        "{profile.hardware_type}",
        "{profile.device_name}",
        "{profile.device_count}",
        "{profile.total_memory_gb",
        "backend = detector.get_optimal_backend()",
    ),
    4: (
        NVIDIA + "architecture = NVIDIAArchitecture.HOPPER",
        NVIDIA + "fp8_enabled = True",
        NVIDIA + 'flash_attention_version = "3"',
        "backend = NVIDIABackend(config)",
        "model = backend.prepare_model(your_model)",
    ),
    # of the same block of the guide
    "4, kernels": ("model_with_kernels = backend.prepare_model_with_custom_kernels(your_model)",),
    5: (
        TPU + "version = TPUVersion.V5E",
        TPU + 'precision = "bfloat16"',
        TPU + "mixed_precision = True",
        TPU + 'compilation_mode = "torch_xla"',
        "backend = TPUBackend(config)",
    ),
    6: (
        "nvidia_config = NVIDIAConfig(",
        "architecture=NVIDIAArchitecture.HOPPER,",
        "device_id=0,",
        "fp8_enabled=True,",
        'flash_attention_version="3",',
        "tensor_core_version=4,",
        "memory_pool_init_mb=1024,",
        "memory_growth_enabled=True,",
        "max_memory_fraction=0.9,",
        'precision="float16",',
        "allow_fp32=True,",
    ),
    7: (
        "tpu_config = TPUConfig(",
        "version=TPUVersion.V5E,",
        "topology=TPUTopology.SINGLE,",
        'compilation_mode="torch_xla",',
        "enable_xla_cache=True,",
        "cache_max_size=100,",
        'precision="bfloat16",',
        "mixed_precision=True,",
        "memory_fraction=0.9,",
        "allocation_history_retention_seconds=3600,",
        "monitoring_interval_seconds=1.0,",
        "monitoring_duration_seconds=60.0,",
    ),
    8: (NVIDIA + 'flash_attention_version = "3"\n',),
    9: (NVIDIA + "fp8_enabled = True\n",),
    10: ("model = backend.prepare_model_with_custom_kernels(model)",),
    11: ("backend.empty_cache()", "{stats['allocated']}MB"),
    12: ("# One shape:",),
    13: (TPU + "enable_xla_cache = True",),
    14: ("batch_size=128",),
    15: (TPU + 'precision = "bfloat16"\n',),
    16: ("detector = HardwareDetector()\nbackend_name = detector.get_optimal_backend()",),
    17: (
        "validator = UnifiedValidator(config)",
        "nvidia_result = validator.validate_nvidia_compatibility(model)",
        "tpu_result = validator.validate_tpu_compatibility(model)",
    ),
    18: (
        "backends = [NVIDIABackend(config), TPUBackend(config)]\n\nfor backend in backends:\n",
        "    model = backend.prepare_model(your_model)",
    ),
    19: ('if backend_name == "nvidia":', 'elif backend_name == "tpu":'),
    20: ('print(f"Memory: {stats}")', "backend.synchronize()"),
    21: (
        "nvidia_model = nvidia_backend.prepare_model(model)",
        '"model_state_dict": {k: v.cpu() for k, v in nvidia_model.state_dict().items()}',
        "tpu_model = tpu_backend.prepare_model(model)",
        'tpu_model.load_state_dict(checkpoint["model_state_dict"])',
    ),
}


# A guide whose counterpart is on several pages.
PAGES = {"pytorch_backends": ("pytorch_backends", "pytorch_settings", "checkpoints")}


@pytest.mark.parametrize(
    ("guide", "number", "lines"),
    [("configuration", *item) for item in CONFIGURATION.items()]
    + [("backends", *item) for item in BACKENDS.items()]
    + [("pytorch_backends", *item) for item in PYTORCH.items()]
    + [("pytorch_devices", *item) for item in PYTORCH_DEVICES.items()],
)
def test_block_has_its_counterpart(guide, number, lines, read):
    ours = [
        block
        for page in PAGES.get(guide, (guide,))
        for block in read(Path(f"docs/guides/{page}.md"))
    ]
    assert any(all(line in block.code for line in lines) for block in ours), lines
