"""The images of docker/Dockerfile, built from the wheels of a release, and run as in production."""

import shutil
from functools import partial

import pytest

from containers import Chroot, Engine
from dockerfile import stages
from interpreters import HERE, tag_of

pytestmark = pytest.mark.rehearsal

STAGES = stages()
NUMBERS = """
import os
import numpy as np
import tensor_ops

try:
    open("/work/new", "x")
except OSError as error:
    written = error.strerror
y = tensor_ops.silu(np.ones(1, dtype=np.float32))
print(os.getuid(), tensor_ops.get_backend(), y[0], written, sep=";")
"""


@pytest.fixture(scope="module", params=["chroot", "docker", "podman"])
def place(request, this_interpreter, dist, tmp_path_factory):
    """Where images are built: a chroot, or an engine if one is here."""
    folder = tmp_path_factory.mktemp(request.param)
    wheels = folder / "wheels"
    if request.param == "chroot":
        found = Chroot(folder, this_interpreter.executable, wheels)
    else:
        found = Engine(request.param, folder, wheels)
    if why := found.why_not():
        pytest.skip(why)
    wheels.mkdir()
    fitting = {"py3", tag_of(HERE)}
    for path in (*dist.glob("*.whl"), *this_interpreter.wheelhouse.glob("*.whl")):
        if path.parent != dist or path.name.split("-")[2] in fitting:
            shutil.copy(path, wheels)
    return found


@pytest.fixture(scope="module")
def cpu(place):
    """A function that runs a command in the image for CPUs."""
    place.build("cpu")
    return partial(place.run, "cpu")


@pytest.fixture(scope="module")
def cuda(place):
    """A function that runs a command in the image for GPUs."""
    place.build("cuda")
    run = partial(place.run, "cuda")
    if '"available": true' in run("tensor-ops", "info", "cuda", "--json"):
        pytest.skip("this machine has a GPU")
    return run


def test_cpu_computes_as_nobody_on_a_root_that_cannot_be_written_to(cpu):
    said = cpu("python", "-c", NUMBERS).strip()
    assert said == "10001;cpp;0.7310586;Read-only file system"


def test_cpu_is_healthy(cpu):
    said = cpu(*STAGES["cpu"].health_check())
    assert "cpp runs, decided by TENSOR_OPS_FORCE_BACKEND (force)" in said


def test_only_what_is_installed_is_there(cpu):
    code = "from importlib.metadata import distributions; print(*(d.name for d in distributions()))"
    names = set(cpu("python", "-c", code).split()) - {"pip", "setuptools"}
    assert names == {"ml_dtypes", "numpy", "tensor-ops", "tensor-ops-cpp"}
    assert cpu("find", "/opt/tensor-ops", "/work", "-name", "*.whl") == ""


def test_cuda_without_a_gpu_is_not_healthy_and_does_not_start(cuda):
    said = cuda(*STAGES["cuda"].health_check(), status=1)
    assert "backend 'cuda' (--require) is unavailable: " in said
    assert "BackendUnavailableError" in cuda("python", "-c", "import tensor_ops", status=1)


@pytest.mark.usefixtures("cpu", "cuda")
def test_sizes_are_named(place, capsys):
    sizes = {image: place.size(image) for image in ("cpu", "cuda")}
    with capsys.disabled():
        for image, size in sizes.items():
            print(f"\n{type(place).__name__.lower()}: {image} adds {size / 1e6:.0f} MB to its base")
    assert all(0 < size < 200e6 for size in sizes.values())
