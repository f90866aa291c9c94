"""``tensor-ops configure_backend --priority``: taking the order out, and what its entries mean."""

import json

import pytest
from shown_configuration import shown

from tensor_ops.__main__ import main


def configure(*arguments):
    return main(["configure_backend", *arguments])


@pytest.mark.parametrize(
    "before",
    [{}, {"description": "no GPU", "backend_priority": ["cpp"], "force_backend": "python"}],
)
def test_auto_takes_the_order_out_of_the_file(before, config_file, capsys):
    config_file.write_text(json.dumps(before))
    assert configure("--priority= auto ", "--show") == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"Saved no backend_priority in {config_file}\n")
    assert "Priority order: cuda, opencl, cpp, python\n" in out
    assert err == ""
    left = {key: value for key, value in before.items() if key != "backend_priority"}
    assert json.loads(config_file.read_text()) == left
    assert configure("--priority=auto") == 0


def test_auto_makes_a_file_without_an_order(config_file):
    assert configure("--backend=cpp", "--priority=auto") == 0
    assert json.loads(config_file.read_text()) == {
        "preferred_backend": "cpp",
        "force_backend": None,
    }


def test_show_says_what_each_entry_of_the_order_stands_for(config_file, capsys):
    order = ["opencl:gpu", "cuda", "opencl", "openmp", "cpp", "opencl:cpu", "mps"]
    assert configure(f"--priority={','.join(order)}") == 0
    capsys.readouterr()
    assert configure("--show") == 0
    out, _ = capsys.readouterr()
    meanings = {
        "opencl:gpu": "OpenCL on GPUs alone",
        "openmp": "cpp: C++ (SIMD, threads)",
        "cpp": "the same as openmp, so passed over",
        "opencl:cpu": "OpenCL on CPUs alone",
        "mps": "Apple Metal (MPS), for which there is no backend: Apple GPUs are reached through "
        "PyTorch",
        "python": "Python (NumPy), which every order ends with",
    }
    assert out == shown(config_file, priority=order, **meanings)
