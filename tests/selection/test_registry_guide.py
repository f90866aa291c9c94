"""The registry functions as the guide on several backends uses them, on a machine without a GPU."""

import pytest

import tensor_ops as yr


def test_checking_available_backends(capsys):
    backends = yr.get_available_backends()
    print(f"Available backends: {backends}")
    assert "python" in backends
    assert not {"cpu", "openmp", "numpy"} & set(backends)  # real names, not aliases

    if yr.is_backend_available("cuda"):
        print("CUDA is available")

    default = yr.get_default_backend()
    print(f"Default backend: {default}")
    assert default == backends[0]

    info = yr.get_backend_info("cuda")
    print(f"CUDA Info: {info}")

    capsys.readouterr()
    yr.list_backends(verbose=True)
    lines = capsys.readouterr().out.splitlines()
    shown = dict(line.split(maxsplit=1) for line in lines)
    of_guide = ("cuda", "cpu", "mps", "cudnn", "mkl", "mkldnn", "openmp", "nki", "triton")
    assert set(of_guide) <= set(shown)
    assert shown["openmp"].startswith("stands for cpp: ")
    assert shown["cpu"].startswith(f"stands for {yr.get_backend_info('cpu')['name']}: ")


@pytest.mark.parametrize("name", ["cuda", "mps", "cpu", "openmp", "python"])
def test_the_arithmetic_of_the_guide_needs_no_check(name):
    info = yr.get_backend_info(name)
    compute_capability = info.get("compute_capability", 0)
    print(f"Compute Capability: {compute_capability // 10}.{compute_capability % 10}")
    assert info.get("max_memory", 0) // (4096 * 2) >= 0
    assert info.get("max_shared_memory", 0) >= 0
    assert len(range(info.get("device_count", 1))) == info["device_count"]
    assert info["available"] or (info["device_count"] == 0 and info["reason"])


def test_cpu_cores():
    assert yr.is_backend_available("cpu")
    assert yr.get_backend_info("cpu").get("compute_units", 0) >= 1


def test_setting_the_global_default():
    yr.set_default_backend("cpu")
    try:
        assert yr.get_default_backend() == yr.get_backend_info("cpu")["name"]
    finally:
        yr.set_default_backend(None)
