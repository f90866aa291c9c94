"""Every block of the guides that this project implements has its counterpart in a block of ours.

Those guides (on the configuration, the backends, and the devices of PyTorch) are not part of the
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
    22: ("--backend=cuda --force", "--backend=opencl --force", "--backend=cpp"),
    23: (CONFIGURE + "--backend=cuda\n",),
    24: ('get_backend_info("cuda")["reason"]',),
    25: ("pip install 'tensor-ops[cpp]'",),
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
        "from tensor_ops_torch import (\n    BackendError,\n    configure_torch_backend,\n",
        'backend = "auto"\ntry:\n    device = resolve_torch_device(backend)\n',
        'except BackendError as exc:\n    raise SystemExit(f"Invalid backend: {exc}") from exc\n',
        "configure_torch_backend(backend, device, verbose=True)\n",
        "amp_config = resolve_amp_config(device)\n",
    ),
}


@pytest.mark.parametrize(
    ("guide", "number", "lines"),
    [("configuration", *item) for item in CONFIGURATION.items()]
    + [("backends", *item) for item in BACKENDS.items()]
    + [("pytorch_devices", *item) for item in PYTORCH_DEVICES.items()],
)
def test_block_has_its_counterpart(guide, number, lines, read):
    ours = read(Path(f"docs/guides/{guide}.md"))
    assert any(all(line in block.code for line in lines) for block in ours), lines
