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
CONFORMANCE = PACKAGE.parents[1] / "tests/conformance"
LARGEST = 30 * 10**6
# Libraries that every glibc system has; libcuda is opened at run time, where there is one.
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


def test_it_links_no_cuda(library, extension):
    needed = needed_by(library)
    assert needed
    assert all(SYSTEM_LIBRARIES.fullmatch(name) for name in needed), needed
    others = [name for name in needed_by(extension) if not SYSTEM_LIBRARIES.fullmatch(name)]
    assert others == [library.name]


def test_the_module_takes_the_library_beside_it(extension):
    """Also before one that LD_LIBRARY_PATH names, which would go before a RUNPATH."""
    dynamic = output(tool("readelf"), "-d", extension)
    assert re.findall(r"\((RPATH|RUNPATH)\).*\[(.*)\]", dynamic) == [("RPATH", "$ORIGIN")]


def test_exports(library, extension, site):
    """A function for everybody, and what only the module of the same release can link to."""
    assert exported_by(extension) == ["PyInit__native"]
    version = run(site, "import tensor_ops_cuda as t; print(t.__version__)").strip()
    by_version = {}
    for name, _, node in (each.partition("@@") for each in exported_by(library)):
        by_version.setdefault(node, []).append(name)
    # The names of the versions themselves are exported too.
    assert sorted(by_version.pop("", [])) in ([], sorted(by_version))
    assert by_version.pop("TENSOR_OPS_1") == ["tensor_ops_cuda_backend"]
    assert list(by_version) == [f"TENSOR_OPS_CUDA_{version}"]


def test_the_runtime_is_in_the_library_alone(library, extension):
    """CUDA's runtime has static variables, of which there must be one set."""
    word = b"cudaErrorInvalidResourceHandle"
    assert word in library.read_bytes()
    assert word not in extension.read_bytes()
    for file in (library, extension):
        names = output(tool("nm"), "-D", file).split()
        assert not [name for name in names if re.match(r"(__)?cuda?[A-Z]", name)]


def test_auditwheel_takes_it_as_it_is(build):
    if importlib.util.find_spec("auditwheel") is None:
        pytest.skip("no auditwheel is here: pip install auditwheel")
    said = output(sys.executable, "-m", "auditwheel", "show", build.wheel)
    assert re.search(rf'platform tag:\s+"manylinux_2_\d+_{platform.machine()}"', said), said


def test_it_has_code_for_what_it_says(build, library, site):
    dump = cuobjdump()
    if dump is None:
        pytest.skip("no cuobjdump is here: pip install nvidia-cuda-cuobjdump")
    found = output(dump, "--list-elf", library) + output(dump, "--list-ptx", library)
    said = run(site, "import tensor_ops_cuda as t; print(t._native.architectures)").split()
    in_it = set(re.findall(r"\.(sm_\d+)\.cubin", found))
    in_it |= {f"compute_{number}" for number in re.findall(r"\.sm_(\d+)\.ptx", found)}
    assert in_it == set(said)
    configuration = run(site, "import tensor_ops_cuda as t; print(t.configuration())")
    assert configuration == f"architectures={','.join(said)}\n"


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
    """Many threads at once run the part of a call that comes before the device."""
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


@pytest.mark.skipif(not NO_DRIVER, reason="this machine has a driver")
def test_without_a_driver_the_c_interface_says_so(site):
    """A program without Python sees why, and gets it as the message of a call."""
    reason, count, status, message, facts = run(site, INTERFACE).splitlines()
    assert "driver" in reason
    assert (count, status) == ("0", "4")
    assert message == f"silu: tensor_ops_cuda is unavailable: {reason}"
    assert facts.startswith("device: there are 0 devices")


INTERFACE = f"""
sys.path.append({str(CONFORMANCE)!r})
import numpy as np
from c_interface import Device, Error, Interface
interface = Interface("cuda")
table, x = interface.table, np.ones(3, np.float32)
print(table.unavailable_reason().decode())
print(table.device_count())
call = interface.make_call("silu", {{"x": x}}, [np.empty_like(x)])
print(*interface.call("silu", call), sep="\\n")
error = Error()
assert table.device(0, Device(1000), error)
print(error.text)
"""
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


def tool(name):
    """Return the path of a tool of binutils."""
    return shutil.which(name) or pytest.skip(f"no {name} is here; it is in binutils")


def needed_by(file):
    return re.findall(r"NEEDED.*\[(.*)\]", output(tool("readelf"), "-d", file))


def exported_by(file):
    lines = output(tool("nm"), "-D", "--defined-only", file).splitlines()
    return [line.split()[-1] for line in lines]


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
