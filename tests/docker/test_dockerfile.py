"""The images pin one backend, run as nobody in particular, and say whether they are well."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dockerfile import PATH, stages

STAGES = stages()
BACKENDS = {"cpu": "cpp", "cuda": "cuda"}

images = pytest.mark.parametrize(("image", "backend"), BACKENDS.items())


def test_hadolint():
    if shutil.which("hadolint") is None:
        pytest.skip("hadolint is not installed; nox -s workflows installs it")
    command = ["hadolint", "--strict-labels", str(PATH)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_bases_are_one_image_that_a_build_can_pin():
    bases = {stage.base for stage in STAGES.values()} - set(STAGES)
    assert bases == {"${PYTHON_IMAGE}"}


@images
def test_one_backend_is_forced_and_its_health_is_checked(image, backend):
    stage = STAGES[image]
    assert stage.variables()["TENSOR_OPS_FORCE_BACKEND"] == backend
    assert stage.health_check() == ["tensor-ops", "doctor", "--require", backend]


@images
def test_it_does_not_run_as_root(image, backend):
    (user,) = STAGES[image].all("USER")
    # A number: Kubernetes cannot tell a name from root's.
    assert int(user) >= 10000
    assert f"--uid {user}" in " ".join(STAGES["runtime"].all("RUN"))


@images
def test_nothing_but_the_environment_is_copied(image, backend):
    """Neither compilers, nor wheels, nor the checkout are in the image."""
    (copied,) = STAGES[image].all("COPY")
    assert copied == f"--from={image}-packages /opt/tensor-ops /opt/tensor-ops"
    assert STAGES[image].base == "runtime"


def test_the_gpu_is_asked_for():
    variables = STAGES["cuda"].variables()
    assert variables["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert "compute" in variables["NVIDIA_DRIVER_CAPABILITIES"]


def test_only_wheels_are_sent_to_the_builder():
    ignored = PATH.with_name("Dockerfile.dockerignore").read_text(encoding="utf-8")
    assert ignored.split() == ["*", "!dist/*.whl"]


@images
def test_a_missing_backend_is_not_healthy(image, backend, tmp_path):
    """The command of the health check, with what is installed here and a backend that is not."""
    name, *words = STAGES[image].health_check()
    program = Path(sys.executable).with_name(name)
    if not program.exists():
        pytest.skip("tensor-ops is not installed here")
    variables = os.environ | STAGES[image].variables() | {"PATH": os.environ["PATH"]}
    done = subprocess.run(
        [program, *words[:-1], "tpu"],
        env=variables,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "backend 'tpu' (--require) is unavailable: not installed" in done.stdout
