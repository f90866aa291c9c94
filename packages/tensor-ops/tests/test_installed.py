"""Facts about the known names without a backend, read from the files of what is installed."""

import json
import platform
import subprocess
import sys
from functools import cache
from importlib.machinery import PathFinder

import pytest

import tensor_ops
from tensor_ops import backends
from tensor_ops.backends import installed
from tensor_ops.backends.names import KNOWN

VERSION = """
from typing import Optional

__version__ = '{version}'
cuda: Optional[str] = {cuda!r}
hip: Optional[str] = {hip!r}
"""
CONFIG = "#define AT_MKLDNN_ENABLED() {mkldnn}\n#define AT_MKL_ENABLED() {mkl}\n"


@pytest.fixture
def lay_out(tmp_path, monkeypatch):
    """Install PyTorch as far as its facts go: its importing would end the process."""
    find = PathFinder.find_spec

    def lay_out(version="2.13.0", cuda=None, hip=None, mkl=None, mkldnn=None):
        folder = tmp_path / "torch"
        (folder / "include/ATen").mkdir(parents=True)
        (folder / "__init__.py").write_text("import os; os._exit(3)")
        (folder / "version.py").write_text(VERSION.format(version=version, cuda=cuda, hip=hip))
        if mkl is not None:
            config = CONFIG.format(mkl=mkl, mkldnn=mkldnn)
            (folder / "include/ATen/Config.h").write_text(config)

    monkeypatch.setattr(PathFinder, "find_spec", lambda name: find(name, [str(tmp_path)]))
    return lay_out


@pytest.fixture
def distributions(monkeypatch):
    """The versions of distributions by name, instead of the installed ones."""
    versions = {}
    monkeypatch.setattr(installed, "version_of", versions.get)
    return versions


def test_no_pytorch(lay_out):
    assert installed.pytorch() is None
    for name in ("torch", "rocm", "mkl", "mkldnn"):
        assert installed.about(name) is None


def test_its_build(lay_out):
    lay_out("2.9.0+rocm6.4", hip="6.4.43483", mkl=0, mkldnn=1)
    assert installed.pytorch() == ("2.9.0+rocm6.4", None, "6.4.43483", False, True)


@pytest.mark.parametrize(
    ("build", "built_for"),
    [
        ({}, "neither CUDA nor ROCm"),
        ({"cuda": "13.0"}, "CUDA 13.0"),
        ({"hip": "6.4"}, "ROCm 6.4"),
    ],
)
def test_what_it_was_built_for(lay_out, build, built_for):
    lay_out(**build)
    assert installed.about("rocm") == f"PyTorch 2.13.0 is built for {built_for}"


def test_what_is_within(lay_out):
    lay_out(mkl=0, mkldnn=1)
    assert installed.about("mkl") == "PyTorch 2.13.0 is built without Intel MKL"
    assert installed.about("mkldnn") == "PyTorch 2.13.0 has oneDNN within, for its own use"


def test_a_build_without_headers_says_nothing_of_what_is_within(lay_out):
    lay_out()
    assert installed.about("mkl") is installed.about("mkldnn") is None


def test_version_files_of_another_form(lay_out, tmp_path):
    lay_out()
    (tmp_path / "torch/version.py").write_text("from torch._version import *\n")
    assert installed.pytorch() == ("of unknown version", None, None, None, None)
    (tmp_path / "torch/version.py").unlink()
    assert installed.pytorch().version == "of unknown version"


def test_cudnn(lay_out, distributions):
    assert installed.about("cudnn") is None
    lay_out()
    assert installed.about("cudnn").endswith("is built for neither CUDA nor ROCm, so has no cuDNN")
    distributions["nvidia-cudnn-cu12"] = "9.10.2.21"
    assert installed.about("cudnn").startswith("nvidia-cudnn-cu12 9.10.2.21 is installed")


def test_cudnn_that_a_build_may_have_brought(lay_out, distributions):
    lay_out(cuda="13.0")
    assert installed.about("cudnn") is None


@pytest.mark.parametrize(
    ("name", "distribution"), [("triton", "triton"), ("tpu", "torch_xla"), ("nki", "neuronx-cc")]
)
def test_distributions(name, distribution, distributions):
    assert installed.about(name) == f"no {distribution}"
    distributions[distribution] = "3.4"
    assert installed.about(name) == f"{distribution} 3.4 is installed, and no op here uses it"


def test_a_distribution_that_is_here():
    assert installed.version_of("numpy") == __import__("numpy").__version__
    assert installed.version_of("no-such-distribution") is None


def test_a_distribution_whose_version_is_gone(tmp_path, monkeypatch):
    (tmp_path / "gone-1.dist-info").mkdir()
    (tmp_path / "gone-1.dist-info" / "METADATA").write_text("Name: gone\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert installed.version_of("gone") is None


@pytest.mark.parametrize(
    ("system", "says"),
    [
        ("Linux", "Apple's GPUs are in Macs, and this is Linux"),
        ("Darwin", "PyTorch 2.13.0 is installed"),
    ],
)
def test_mps(lay_out, monkeypatch, system, says):
    lay_out()
    monkeypatch.setattr(platform, "system", lambda: system)
    assert installed.about("mps") == says


def test_pytorch_without_our_package(lay_out):
    lay_out()
    assert installed.about("torch") == "PyTorch 2.13.0 is, but not tensor-ops-torch"


@pytest.fixture
def entry_points(monkeypatch):
    """Have these backends installed, and the reasons of others found anew."""

    def entry_points(*names):
        monkeypatch.setattr(backends, "installed_points", cache(lambda: dict.fromkeys(names, ())))
        monkeypatch.setattr(backends, "loaded", {})

    return entry_points


@pytest.mark.parametrize("name", [name for name, known in KNOWN.items() if known.served_by])
def test_names_without_a_backend_say_what_to_do(name, entry_points):
    known = KNOWN[name]
    entry_points()
    reason = tensor_ops.get_backend_info(name)["reason"]
    assert reason.startswith(f"not installed; {known.hint}")
    assert reason.endswith(f"; {installed.how_to_install(known.served_by)}")
    entry_points(known.served_by)
    reason = tensor_ops.get_backend_info(name)["reason"]
    assert reason.startswith(f"no backend of its own; {known.hint}")
    assert reason.endswith(f": {known.instead}")
    assert not tensor_ops.is_backend_available(name)


def test_the_fact_stands_in_the_reason(lay_out, entry_points):
    lay_out(mkl=1, mkldnn=1)
    entry_points("cpp")
    assert tensor_ops.get_backend_info("mkl")["reason"] == (
        "no backend of its own; Intel CPUs are served by the cpp backend (PyTorch 2.13.0 has Intel "
        "MKL within, for its own use): use 'cpp'"
    )


def test_nothing_is_imported_for_it():
    code = (
        "import sys, tensor_ops; tensor_ops.list_backends(verbose=True); "
        "print(*{'torch', 'triton', 'onnxruntime', 'tensor_ops_torch'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == ""


@pytest.fixture
def noted(tmp_path, monkeypatch):
    """Have the installer of tensor-ops note where it is from; None if it is from an index."""
    information = tmp_path / "tensor_ops-1.2.3.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(
        "Metadata-Version: 2.4\nName: tensor-ops\nVersion: 1.2.3\n"
    )
    monkeypatch.setattr("sys.path", [str(tmp_path)])

    def noted(note):
        if note is not None:
            (information / "direct_url.json").write_text(json.dumps(note))

    return noted


@pytest.mark.parametrize(
    "note",
    [
        None,
        {"url": "file:///tmp/tensor_ops-1.2.3-py3-none-any.whl", "archive_info": {}},
        {"url": "https://example.org/it.git", "vcs_info": {"vcs": "git", "commit_id": "12ab"}},
    ],
    ids=["index", "wheel", "git"],
)
def test_what_is_missing_comes_from_the_index(note, noted):
    noted(note)
    assert installed.how_to_install("cpp") == "install it: pip install 'tensor-ops[cpp]'"
    assert installed.command("torch") == "pip install 'tensor-ops[torch]'"
    assert installed.command("") == "pip install tensor-ops"


@pytest.mark.parametrize("note", [{"dir_info": {}}, {"dir_info": {"editable": True}}])
def test_what_is_missing_comes_from_the_clone(note, noted):
    noted({"url": "file:///home/me/tensor-ops/packages/tensor-ops"} | note)
    packages = "./packages/tensor-ops-devices ./packages/tensor-ops-torch"
    assert installed.command("torch") == f"pip install {packages}"
    assert installed.command("") == "pip install ./packages/tensor-ops"
    cpp = "install it from a clone: pip install ./packages/tensor-ops-cpp"
    assert installed.how_to_install("cpp") == cpp


def test_sources_that_are_not_installed_are_a_clone(monkeypatch, tmp_path):
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    assert installed.command("cpp") == "pip install ./packages/tensor-ops-cpp"
