"""The steps of docker/Dockerfile, by hand: its commands, with other folders."""

import pytest

from dockerfile import stages
from interpreters import PACKAGES, run

STAGES = stages()


@pytest.fixture
def build(this_interpreter, dist, tmp_path):
    """A function that builds an image's environment, from our wheels and those downloaded."""

    def steps(image):
        folder = tmp_path / "tensor-ops"
        offline = {
            "PYTHON": this_interpreter.executable,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(this_interpreter.wheelhouse),
        }
        for step in [*STAGES["packages"].all("RUN"), *STAGES[f"{image}-packages"].all("RUN")]:
            command = step.replace("/opt/tensor-ops", str(folder))
            command = command.replace("python -m venv", "$PYTHON -m venv")
            command = command.replace("--find-links=/wheels", f"--find-links={dist}")
            run("bash", "-euc", command, variables=offline)
        variables = STAGES["runtime"].variables() | STAGES[image].variables()
        path = variables["PATH"].replace("/opt/tensor-ops", str(folder))
        return variables | {"PATH": path.replace("$PATH", "/usr/bin:/bin")}

    return steps


def test_cpu(build, tmp_path):
    variables = build("cpu")
    said = run(*_in(tmp_path, STAGES["cpu"].health_check()), variables=variables, cwd=tmp_path)
    assert "cpp runs, decided by TENSOR_OPS_FORCE_BACKEND (force)" in said
    code = "import tensor_ops; print(tensor_ops.get_backend())"
    assert run(*_in(tmp_path, ["python", "-c", code]), variables=variables).strip() == "cpp"


@pytest.mark.skipif("tensor-ops-cuda" not in PACKAGES, reason="there is no CUDA backend yet")
def test_cuda_without_a_gpu_is_not_healthy_and_does_not_start(build, tmp_path):
    variables = build("cuda")
    words = _in(tmp_path, ["tensor-ops", "info", "cuda", "--json"])
    if '"available": true' in run(*words, variables=variables):
        pytest.skip("this machine has a GPU")
    said = run(*_in(tmp_path, STAGES["cuda"].health_check()), variables=variables, status=1)
    assert "backend 'cuda' (--require) is unavailable: " in said
    words = _in(tmp_path, ["python", "-c", "import tensor_ops"])
    assert "BackendUnavailableError" in run(*words, variables=variables, status=1)


def _in(folder, words):
    """Return a command of the image's environment, which is not that of this process."""
    return [folder / "tensor-ops" / "bin" / words[0], *words[1:]]
