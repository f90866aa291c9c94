"""The wheel is small, needs nothing but the system, and is told apart from a broken one."""

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2]
LARGEST = 30 * 10**6
# What every glibc system has; libcuda is opened at run time, where there is one.
SYSTEM_LIBRARIES = re.compile(
    r"lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+)\.so\.\d+|ld-linux-[\w-]+\.so\.\d"
)
NO_DRIVER = not any(
    Path(folder, "libcuda.so.1").exists()
    for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/nvidia/lib64")
)


def test_it_has_all_files(build):
    inside = set(zipfile.ZipFile(build.wheel).namelist())
    source = PACKAGE / "src"
    files = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*")
        if path.suffix in {".py", ".pyi", ".typed"}
    }
    assert files <= inside
    assert not any("emulation" in name for name in inside)


def test_it_is_small(build):
    """Eight architectures are under 30 MB, and fewer have their share."""
    count = len(build.architectures) if build.log else 8
    assert build.wheel.stat().st_size < LARGEST * count / 8


def test_it_links_no_cuda(library):
    if shutil.which("readelf") is None:
        pytest.skip("no readelf is here; it is in binutils")
    needed = re.findall(r"NEEDED.*\[(.*)\]", output("readelf", "-d", library))
    assert needed
    assert all(SYSTEM_LIBRARIES.fullmatch(name) for name in needed), needed


def test_it_exports_only_its_init_function(library):
    if shutil.which("nm") is None:
        pytest.skip("no nm is here; it is in binutils")
    lines = output("nm", "-D", "--defined-only", library).splitlines()
    assert [line.split()[-1] for line in lines] == ["PyInit__native"]


def test_auditwheel_takes_it_as_it_is(build):
    if importlib.util.find_spec("auditwheel") is None:
        pytest.skip("no auditwheel is here: pip install auditwheel")
    said = output(sys.executable, "-m", "auditwheel", "show", build.wheel)
    assert re.search(rf'platform tag:\s+"manylinux_2_\d+_{platform.machine()}"', said), said


def test_it_has_code_for_what_it_says(build, library, site):
    tool = cuobjdump()
    if tool is None:
        pytest.skip("no cuobjdump is here: pip install nvidia-cuda-cuobjdump")
    found = output(tool, "--list-elf", library) + output(tool, "--list-ptx", library)
    said = run(site, "import tensor_ops_cuda as t; print(t._native.architectures)").split()
    in_it = set(re.findall(r"\.(sm_\d+)\.cubin", found))
    in_it |= {f"compute_{number}" for number in re.findall(r"\.sm_(\d+)\.ptx", found)}
    assert in_it == set(said)


@pytest.mark.skipif(not NO_DRIVER, reason="this machine has a driver")
def test_without_a_driver_it_says_so(site):
    text = run(site, "import tensor_ops_cuda as t; print(t.probe()); t.get_cuda_info()")
    assert "'available': False" in text
    assert "driver" in text


@pytest.mark.skipif(not NO_DRIVER, reason="this machine has a driver")
def test_without_a_driver_tensor_ops_says_so(site):
    """It finds the wheel, shows why it cannot run, and takes another backend."""
    pytest.importorskip("tensor_ops")
    code = (
        "import numpy as np, tensor_ops as t\n"
        "t.list_backends(verbose=True)\n"
        "print(t.silu(np.zeros(3, np.float32)))\n"
        "try: t.silu(np.zeros(3, np.float32), backend='cuda')\n"
        "except t.BackendUnavailableError as error: print(error)\n"
    )
    cuda, *_, result, error = run(site, code).splitlines()
    assert cuda.split()[:2] == ["cuda", "unavailable:"]
    assert "driver" in cuda
    assert result == "[0. 0. 0.]"
    assert "backend 'cuda' (named by backend= on the call) is unavailable: " in error
    assert "driver" in error


@pytest.mark.skipif(not NO_DRIVER, reason="this machine has a driver")
def test_without_a_driver_threads_are_told_so(site):
    """What of a call comes before the device, of many threads at once."""
    assert run(site, THREADS) == ""


@pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python is not free-threaded"
)
def test_import_leaves_the_gil_off(site, monkeypatch):
    monkeypatch.delenv("PYTHON_GIL", raising=False)  # which would keep it off
    code = "import tensor_ops_cuda; print(sys._is_gil_enabled())"
    assert run(site, code) == "False\n"


@pytest.mark.skipif(not NO_DRIVER, reason="this machine has a driver")
def test_without_a_driver_calls_are_errors(site):
    code = (
        "import numpy as np, tensor_ops_cuda as t\n"
        "for bad in (lambda: t.silu(np.ones(3, np.float32)), lambda: t.silu([1.0]),\n"
        "            lambda: t.silu(np.ones(3, np.int32))):\n"
        "    try: bad()\n"
        "    except Exception as error: print(type(error).__name__, error)\n"
    )
    missing, no_array, wrong_dtype = run(site, code).splitlines()
    assert "driver" in missing
    assert no_array.startswith("TypeError")
    assert wrong_dtype.startswith("TypeError")
    assert "float32, float16, bfloat16 and float64" in wrong_dtype


THREADS = """
import threading
import numpy as np, tensor_ops_cuda as t

sys.setswitchinterval(1e-5)
kinds = [type(f"Kind{i}", (np.ndarray,), {}) for i in range(300)]
start, wrong = threading.Barrier(8), []

def said(call):
    try: call()
    except Exception as error: return f"{type(error).__name__} {error}"

def work(k):
    start.wait()
    for i, kind in enumerate(kinds):
        x = np.ones(k + 1, np.float32).view(kind)
        errors = {
            "unavailable": said(lambda: t.silu(x)),
            "got list": said(lambda: t.silu([1.0])),
            f"({k + 1},)": said(lambda: t.rms_norm(x, np.ones(k + 2, np.float32))),
            "got type": said(lambda: t.silu(kind)),
        }
        wrong.extend((k, i, error) for part, error in errors.items() if part not in error)
        if i % 50 == 0 and (t.probe()["available"] or not t.info()["reason"]): wrong.append(k)

threads = [threading.Thread(target=work, args=[k]) for k in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not wrong, wrong[:5]
"""


def run(site, code):
    """Return what code prints in an empty directory, with what was in the wheel."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith("TENSOR_OPS_")}
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            "-c",
            f"import sys; sys.path.insert(0, {str(site)!r})\n{code}",
        ],
        cwd=site.parent,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def cuobjdump():
    """Return the tool of the toolkit, or that of PyPI's package."""
    scripts = Path(sysconfig.get_path("purelib"), "nvidia", "cu13", "bin", "cuobjdump")
    usual = Path("/usr/local/cuda/bin/cuobjdump")
    found = shutil.which("cuobjdump")
    return found or next((str(path) for path in (scripts, usual) if path.exists()), None)


def output(*command):
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=True
    ).stdout
