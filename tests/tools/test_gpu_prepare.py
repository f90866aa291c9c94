"""`tools/gpu_prepare.py` makes what goes to a machine with a GPU, and says what fails there."""

import os
import zipfile

import pytest

import gpu_prepare

# A Python that makes of "-m venv" itself, and of "-m pip wheel" a wheel.
PYTHON = """#!/bin/sh
echo "$TENSOR_OPS_CUDA_ARCHITECTURES: $*" >> {log}
case "$*" in
  *"-m venv"*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  *"pip wheel"*) cp {wheel} "$7" ;;
esac
"""
NVCC = """#!/bin/sh
echo "nvcc $*" >> {log}
for out; do :; done
echo compiled > "$out"
"""


@pytest.fixture
def made(tmp_path):
    """Return a function that makes a wheel whose library needs symbols of some versions."""

    def make(*symbols):
        path = tmp_path / "tensor_ops_cuda-0.1.0-cp399-cp399-linux_x86_64.whl"
        with zipfile.ZipFile(path, "w") as wheel:
            wheel.writestr("tensor_ops_cuda/lib.so", "\0".join(["", *symbols, ""]))
            wheel.writestr("tensor_ops_cuda/_backend.py", "GLIBC_9.9\0")
        return path

    return make


@pytest.fixture
def here(made, tmp_path, monkeypatch):
    """A Python and an nvcc that are only here for the test; what they were asked is in a log."""
    wheel, log = made("GLIBC_2.34", "GLIBCXX_3.4.30"), tmp_path / "log"
    for name, text in (("python3.99", PYTHON), ("nvcc", NVCC)):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(text.format(log=log, wheel=wheel))
        program.chmod(0o755)
    monkeypatch.delenv("CUDACXX", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return log


def test_the_folder_has_what_the_check_needs(here, tmp_path, capsys):
    folder = tmp_path / "prepared"
    folder.mkdir()
    (folder / "tensor_ops_cuda-0.0.1-cp398-cp398-linux_x86_64.whl").write_text("old")
    words = [str(folder), "--python", "python3.99", "--architecture", "90"]
    assert gpu_prepare.main(words) == 0
    (wheel,) = folder.glob("*.whl")
    assert wheel.name.startswith("tensor_ops_cuda-0.1.0-cp399")
    assert len((folder / "commit").read_text().strip()) in (0, 40)
    assert "MB to carry" in capsys.readouterr().out
    asked = here.read_text()
    assert "90: -m pip wheel" in asked
    assert "import tensor_ops_cuda" in asked


@pytest.mark.parametrize(
    ("symbols", "says"),
    [
        (["GLIBC_2.35", "GLIBCXX_3.4.9", "CXXABI_1.3.13"], []),
        (["GLIBC_2.4", "GLIBC_2.38", "GLIBC_2.9"], ["GLIBC_2.38, newer than GLIBC_2.35"]),
        (["GLIBCXX_3.4.31", "CXXABI_1.3.15"], ["GLIBCXX_3.4.31,", "CXXABI_1.3.15,"]),
        ([], []),
    ],
)
def test_symbols_that_the_other_system_lacks_are_named(symbols, says, made):
    problems = gpu_prepare.newer_symbols(made(*symbols), gpu_prepare.NEWEST.split(","))
    assert len(problems) == len(says)
    assert all(text in problem for text, problem in zip(says, problems, strict=True))


def test_what_fails_there_makes_the_status_1(here, tmp_path, capsys):
    words = [str(tmp_path / "prepared"), "--python", "python3.99", "--architecture", "90"]
    assert gpu_prepare.main([*words, "--newest", "GLIBC_2.17"]) == 1
    assert "needs GLIBC_2.34, newer than GLIBC_2.17" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("python", "path", "says"),
    [("python3.98", None, "no python3.98 is here"), ("python3.99", "bin", "no nvcc is here")],
)
def test_what_is_missing_is_said_before_any_work(
    here, tmp_path, monkeypatch, capsys, python, path, says
):
    if path:
        (tmp_path / path / "nvcc").unlink()
        monkeypatch.setenv("PATH", str(tmp_path / path))
    with pytest.raises(SystemExit):
        gpu_prepare.main([str(tmp_path / "made"), "--python", python, "--architecture", "90"])
    assert says in capsys.readouterr().err
    assert not (tmp_path / "made").exists()
