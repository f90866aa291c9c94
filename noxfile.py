"""The one entry point: set-up, tests, benchmarks and builds. ``nox --list`` shows the sessions."""

import os
import shutil
import sys
from pathlib import Path

import nox

sys.path.insert(0, str(Path(__file__).parent / "ci"))
from environments import (
    BY_FILE,
    BY_GROUP,
    CONFORMANCE,
    CONTRACT_OF_EXECUTORS,
    CORE,
    CPP,
    CUDA,
    DECODE,
    DEVICES,
    OPENCL,
    PACKAGES,
    PARALLEL,
    ROOT,
    SAMPLE_OF_PROCESSORS,
    TORCH,
    WHEEL_TESTS,
    all_lesser_processors,
    build,
    cuda_compiler,
    emulated_cuda_wheel,
    install_group,
    install_language_model,
    install_llama_cpp,
    install_model,
    install_packages,
    install_vllm,
    intel_driver,
    lesser_processors,
    native_sources,
    nvcc,
    opencl_driver,
    pytorch,
    requirements,
    run_actionlint,
    run_at_once,
    run_in_queue,
    run_mypy,
    run_on_pythons,
    run_on_system,
    run_portable,
)
from instrumented import run_fuzzer, run_oclgrind, run_sanitized
from ranks import run_decode_ranks
from wheel_sessions import run_release, run_wheels, run_wheels_sample

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = ["checks"]
# Sessions that take long come first: the queue starts them in this order.
CHECKS = [
    "tests",
    "cuda",
    "decode",
    "torch",
    "opencl",
    "conformance",
    "docs",
    "wheels_sample",
    "lint",
    "workflows",
]

# The levels are those of the C++ backend, which the session `conformance` tests.
NO_LEVELS = f"--ignore={CONFORMANCE}/test_levels.py"
# The decode engine, what starts ranks of it, and what runs models.
OF_DECODING = (DECODE, "tests/decode", "tests/ranks", "tests/examples")
# The code blocks of the pages, of which --pages chooses those that need a package.
BLOCKS = "tests/docs/test_pages.py::test_blocks_run"
# The check of a machine with a GPU, on the emulated device.
GPU_CHECK = "tests/tools/test_gpu_check_emulated.py"
TENTH_OP = "tests/docs/test_tenth_op.py::test_a_backend_has_it"

# uv reads neither pip's settings nor takes a missing interpreter for an answer.
if "PIP_FIND_LINKS" in os.environ:
    os.environ.setdefault("UV_FIND_LINKS", os.environ["PIP_FIND_LINKS"])
os.environ.setdefault("UV_PYTHON_DOWNLOADS", "never")
# Where this is set, every process compiles all that it imports: half of the time of a short one.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@nox.session
def quickstart(session: nox.Session) -> None:
    """Embed sentences with a real model through tensor_ops, then time all ops."""
    install_packages(session, levels="native")
    install_model(session)
    session.run("python", "examples/quickstart.py", *session.posargs)


@nox.session
def generate(session: nox.Session) -> None:
    """Answer a chat prompt with SmolLM2, on the C++ backend and with NumPy; -- PROMPT is yours."""
    install_packages(session, levels="native")
    install_language_model(session)
    session.run("python", "examples/generate_text.py", *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """Run every test that no other session runs, documentation included."""
    install_packages(session)
    install_group(session, "test", "peers", "decode", "jax", "mpich")
    install_model(session)
    install_language_model(session)
    elsewhere = (
        CONFORMANCE,
        "tests/ci",
        "tests/platforms",
        "tests/wheels",
        OPENCL,
        CUDA,
        TORCH,
        DEVICES,
        *OF_DECODING,
    )
    everything = ["tests", "packages", *(f"--ignore={folder}" for folder in elsewhere)]
    session.run("pytest", *BY_FILE, *(session.posargs or everything))


@nox.session
def decode(session: nox.Session) -> None:
    """Run the tests of the decode engine, with models and on several ranks, and of the examples."""
    install_packages(session)
    install_group(session, "test", "peers", "decode", "mpich")
    install_model(session)
    install_language_model(session)
    session.run("pytest", *BY_FILE, *(session.posargs or OF_DECODING))


@nox.session
def serve(session: nox.Session) -> None:
    """Serve a model to a hundred clients for a minute, a third of which go away."""
    install_packages(session)
    install_group(session, "test", "peers", "decode")
    load = "tests/decode/serving/test_load.py"
    session.run("pytest", "-q", "--nightly", *(session.posargs or [load]))


@nox.session
def conformance(session: nox.Session) -> None:
    """Run every op against its stated error bounds, in NumPy and in C++.

    The sessions `opencl`, `cuda` and `torch` do so on the other backends.
    """
    install_packages(session)
    install_group(session, "test")
    required = [f"--require-backend={name}" for name in ("python", "cpp")]
    both = [f"--backend={name}" for name in ("python", "cpp")]
    session.run("pytest", *PARALLEL, CONFORMANCE, *required, *(session.posargs or both))


@nox.session
def opencl(session: nox.Session) -> None:
    """Run conformance suite, tests and page of the OpenCL backend, on the CPU.

    Its programs are compiled once: pyopencl keeps those of a virtual environment.
    """
    install_packages(session)
    install_group(session, "test")
    opencl_driver(session)
    only = ["--backend=opencl", "--require-backend=opencl", "--pages=opencl", NO_LEVELS]
    everything = [CONFORMANCE, TENTH_OP, BLOCKS, OPENCL]
    session.run("pytest", *BY_GROUP, *only, *(session.posargs or everything))


@nox.session
def opencl_races(session: nox.Session) -> None:
    """Run every OpenCL kernel under oclgrind, which finds data races and accesses out of bounds."""
    run_oclgrind(session)


@nox.session
def opencl_intel(session: nox.Session) -> None:
    """Run conformance suite and tests of the OpenCL backend on Intel's runtime for CPUs."""
    install_packages(session)
    install_group(session, "test")
    intel_driver(session)
    only = ["--backend=opencl", "--require-backend=opencl"]
    session.run("pytest", "-q", *only, *(session.posargs or [CONFORMANCE, OPENCL]))


@nox.session
def decode_ranks(session: nox.Session) -> None:
    """Run models on several processes, by MPICH, Open MPI and torchrun."""
    run_decode_ranks(session)


@nox.session
def cuda(session: nox.Session) -> None:
    """Check what of the CUDA backend needs no GPU: its wheel, and its kernels run on the CPU."""
    # Some of its tests exchange arrays with PyTorch, and some run models of its libraries.
    install_group(session, "test", "cuda-test", "peers", "decode")
    environment = cuda_compiler(session)
    session.install(f"./{CORE}", f"./{DECODE}", emulated_cuda_wheel(session))
    only = ["--backend=cuda", "--require-backend=cuda", "--pages=cuda", NO_LEVELS]
    # A wheel for GPUs takes a minute to compile.
    everything = [CONFORMANCE, BLOCKS, CUDA, f"--ignore={WHEEL_TESTS}"]
    session.run("pytest", *BY_GROUP, *only, *(session.posargs or everything), env=environment)
    if not session.posargs:
        session.run("pytest", *BY_GROUP, *only, *CONTRACT_OF_EXECUTORS, env=environment)


@nox.session
def torch(session: nox.Session) -> None:
    """Run the tests of the integration in PyTorch and ONNX Runtime, and its pages, on the CPU.

    A sample of them runs as on processors with fewer instructions, too.
    """
    install_packages(session)
    # At once, for the sake of PyTorch's version.
    session.install(f"./{TORCH}", *requirements("test", "peers", "onnx"))
    if session.posargs:
        session.run("pytest", "-q", "--pages=torch", *session.posargs)
        return
    fuzzed = "tests/fuzz/test_found.py::test_any[swapped_modules]"
    session.run("pytest", *PARALLEL, "--pages=torch", BLOCKS, TORCH, DEVICES, fuzzed)
    only = ["--backend=torch", "--require-backend=torch"]
    session.run("pytest", *PARALLEL, CONFORMANCE, *only, NO_LEVELS)
    run_at_once(session, "pytest", "-q", *SAMPLE_OF_PROCESSORS, envs=lesser_processors(session))
    # At last: these are other versions than those of the tests above.
    install_group(session, "kernels")
    session.run("pytest", "-q", "--pages=kernels", BLOCKS, f"{TORCH}/tests/test_kernel_layers.py")


@nox.session
def xla(session: nox.Session) -> None:
    """Run what is for TPUs on XLA's device for CPUs; its PyTorch brings gigabytes of CUDA."""
    session.install(f"./{CORE}", f"./{DEVICES}", *requirements("xla"))
    session.run("pytest", "-q", f"{DEVICES}/tests/backends/test_xla.py", *session.posargs)


@nox.session
def vllm(session: nox.Session) -> None:
    """Test the provider of vLLM's IR ops in vLLM, and its page; installs four gigabytes."""
    install_vllm(session)
    # The page imports distutils, which keeps vLLM from being configured in the same process.
    whole = [BLOCKS], [f"{TORCH}/tests/test_vllm_provider_in_vllm.py"]
    for chosen in [session.posargs] if session.posargs else whole:
        session.run("pytest", "-q", "--pages=vllm", *chosen)


@nox.session
def nightly(session: nox.Session) -> None:
    """Run 10,000 random calls of each op, every model in every format, and kernels of more GPUs.

    The GPUs, for which the CUDA kernels are compiled and checked, are from old to new. The tests of
    the integration in PyTorch run as on processors with fewer instructions, and those of the C++
    backend on emulated AArch64 processors.
    """
    install_packages(session, levels="runnable")
    install_group(session, "test", "cuda-test", "peers", "decode")
    install_language_model(session)
    required = ["--require-backend=cpp", "--require-backend=python"]
    more = ["tests/decode", "tests/native", "tests/fuzz", DECODE, CPP]
    builds = [f"tests/cpp_api/test_{name}.py" for name in ("build_options", "examples")]
    builds.append("tests/docs/test_contributing.py")
    session.run("pytest", *BY_FILE, *more, *builds, "--nightly", *required)
    both = [f"--backend={name}" for name in ("python", "cpp")]
    session.run("pytest", *PARALLEL, CONFORMANCE, *both, "--nightly", *required)
    session.install(f"./{TORCH}", *requirements("test", "peers", "onnx"))
    session.run("pytest", *PARALLEL, TORCH, DEVICES, "--nightly")
    only = ["--backend=torch", "--require-backend=torch"]
    session.run("pytest", *PARALLEL, CONFORMANCE, NO_LEVELS, *only, "--nightly")
    for processor in all_lesser_processors():
        session.run("pytest", *PARALLEL, TORCH, DEVICES, env=processor)
    properties = f"{CONFORMANCE}/test_properties.py"
    session.run("pytest", *PARALLEL, properties, "--hypothesis-profile=nightly", *session.posargs)
    gpus = {"CUDA_WHEEL_ARCHITECTURES": "75-real,90-real,120-real,120-virtual"}
    compiled = [WHEEL_TESTS, f"{CUDA}/tests/test_decode_machine_code.py"]
    session.run("pytest", "-q", *compiled, "--nightly", env=cuda_compiler(session) | gpus)
    session.install(emulated_cuda_wheel(session))
    on_cuda = [TENTH_OP, CONFORMANCE, GPU_CHECK, CUDA, NO_LEVELS, f"--ignore={WHEEL_TESTS}"]
    only = ["--nightly", "--backend=cuda", "--require-backend=cuda"]
    session.run("pytest", *BY_GROUP, *on_cuda, *only, env=cuda_compiler(session))
    opencl_driver(session)
    only = ["--nightly", "--backend=opencl", "--require-backend=opencl"]
    session.run("pytest", *BY_GROUP, CONFORMANCE, OPENCL, NO_LEVELS, *only)
    run_portable(session, "aarch64")


@nox.session
def sanitize(session: nox.Session) -> None:
    """Run C++ and emulated CUDA with ASan and UBSan, and what C++'s threads share with TSan."""
    run_sanitized(session)


@nox.session
def fuzz(session: nox.Session) -> None:
    """Fuzz native code, backend.json, the choice of backends, the command line and files of models.

    -- --runs N says how often.
    """
    run_fuzzer(session)


@nox.session
def portable(session: nox.Session) -> None:
    """Check the C++ backend on emulated x86-64 and aarch64 processors, and with clang's compilers.

    What is missing here is said and left out; -- aarch64 runs that check only.
    """
    run_portable(session, *session.posargs)


@nox.session
def windows(session: nox.Session) -> None:
    """Build the C++ library with MinGW, and run it, the registry and a model under Wine."""
    run_on_system(session, "windows")


@nox.session
def musl(session: nox.Session) -> None:
    """Build the C++ library for musl, and run it, the registry and a model with Debian's musl."""
    run_on_system(session, "musl")


@nox.session
def macos(session: nox.Session) -> None:
    """Compile and link the C++ library and its examples for both kinds of Macs; nothing is run."""
    run_on_system(session, "macos")


@nox.session
def pythons(session: nox.Session) -> None:
    """Test core, cpp, opencl and decode on Python 3.14 and 3.15, and threads without the GIL."""
    run_on_pythons(session)


@nox.session(venv_backend="none")
def checks(session: nox.Session) -> None:
    """Run all that CI runs, one session more at a time than there are processors."""
    run_in_queue(session, CHECKS)


@nox.session
def lint(session: nox.Session) -> None:
    """Check formatting, style and types."""
    install_group(session, "lint")
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")
    session.run("clang-format", "--dry-run", "--Werror", *native_sources())
    run_mypy(session)


@nox.session
def workflows(session: nox.Session) -> None:
    """Check the workflows, the settings of cibuildwheel and the scripts that a release runs."""
    install_group(session, "workflows")
    files = sorted(map(str, ROOT.glob(".github/workflows/*.yml")))
    session.run("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *files)
    session.run("zizmor", "--offline", "--quiet", ".github")
    projects = [f"{package}/pyproject.toml" for package in PACKAGES]
    session.run("validate-pyproject", *projects, silent=True)
    session.run("pytest", "-q", "tests/ci", "tests/docker", *session.posargs)
    run_actionlint(session, files)


@nox.session
def bench(session: nox.Session) -> None:
    """Run the benchmark suites."""
    install_packages(session)
    install_group(session, "test")
    session.run("pytest", "-q", "benchmarks", *session.posargs)


@nox.session
def bench_torch(session: nox.Session) -> None:
    """Time models with and without swapped modules on the CPU; -- torch_training times training."""
    install_packages(session)
    session.install(f"./{TORCH}", *requirements("peers"))
    script, *options = session.posargs or ["torch_models"]
    session.run("python", f"benchmarks/{script}.py", *options, env={"HF_HUB_OFFLINE": "1"})


@nox.session
def peers(session: nox.Session) -> None:
    """Time every op side by side with other libraries; -- --help lists what can be chosen."""
    install_packages(session)
    install_group(session, "bench")
    session.run("python", "benchmarks/compare_peers.py", *session.posargs)


@nox.session
def peers_decode(session: nox.Session) -> None:
    """Time text generation beside other engines; -- --help lists what can be chosen.

    llama.cpp and ik_llama.cpp are built from source, for this processor.
    """
    install_packages(session)
    install_language_model(session)
    install_group(session, "peers", "decode", "decode-bench")
    install_llama_cpp(session)
    session.run("python", "benchmarks/decode_models.py", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site of the documentation; -- linkcheck looks at links that lead elsewhere."""
    session.install(pytorch(), *requirements("docs"))
    # The site needs only the docstrings of native packages: wheels of other sessions have them.
    install_packages(session)
    session.install(f"./{TORCH}", emulated_cuda_wheel(session), pytorch())
    builder = session.posargs[0] if session.posargs else "html"
    strict = ["-W", "--keep-going", "-n", "-E", "-q", "-j", "2"]
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
    build(session, CPP)


@nox.session
def build_opencl(session: nox.Session) -> None:
    """Build the wheel of the OpenCL backend into dist/."""
    build(session, OPENCL)


@nox.session
def build_cuda(session: nox.Session) -> None:
    """Build the wheel of the CUDA backend into dist/; without nvcc, with that of PyPI."""
    build(session, CUDA)
    wheel = max(ROOT.glob("dist/tensor_ops_cuda-*.whl"), key=lambda path: path.stat().st_mtime)
    install_group(session, "test", "cuda-test")
    session.install("./packages/tensor-ops", str(wheel))
    session.run("pytest", "-q", WHEEL_TESTS, env={"CUDA_WHEEL": str(wheel)})


@nox.session
def wheels(session: nox.Session) -> None:
    """Build sdist and wheel of every package into dist/, and install and test them as a user would.

    On the oldest releases of Python 3.11, 3.12 and 3.13 that this machine has.
    """
    run_wheels(session)


@nox.session
def wheels_sample(session: nox.Session) -> None:
    """Build sdist and wheel of two packages, and check, install, run and upgrade them.

    The session `wheels` does so with every package, on several Pythons.
    """
    run_wheels_sample(session)


@nox.session
def release(session: nox.Session) -> None:
    """Do all of a release but push it: build, check, upload to an index here, install from it."""
    run_release(session)


@nox.session
def raise_version(session: nox.Session) -> None:
    """Raise the version of a package: -- PACKAGE VERSION."""
    session.install("packaging>=25")
    session.run("python", "ci/raise_version.py", *session.posargs)


@nox.session
def detect_and_benchmark(session: nox.Session) -> None:
    """Show what the machine has, build what can be built, test it and time it."""
    install_packages(session)
    if nvcc() is not None and shutil.which("nvidia-smi") is not None:
        session.install(f"./{CUDA}", env={"TENSOR_OPS_CUDA_ARCHITECTURES": "native"})
    install_group(session, "test")
    session.run("tensor-ops", "test_capabilities")
    session.run("pytest", "-q", f"{CONFORMANCE}/test_samples.py")
    session.run("tensor-ops", "bench", *session.posargs)
