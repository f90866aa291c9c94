"""Runs of instrumented code: tests under sanitizers, kernels under oclgrind, and the fuzzer."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import nox

from environments import (
    BY_FILE,
    CONFORMANCE,
    CPP,
    CUDA,
    EMULATED,
    OPENCL,
    ROOT,
    SANITIZED,
    THREAD_SANITIZED,
    TORCH,
    WHEEL_TESTS,
    cpp_wheel,
    cpu_levels,
    install_group,
    install_packages,
    install_sanitized,
    pytorch,
    sanitizer_environment,
)

__all__ = ["run_fuzzer", "run_oclgrind", "run_sanitized"]

# Targets whose branches are the native code's, and targets whose branches are Python's.
FUZZED_NATIVE = ("binding", "interface", "decode_programs", "exported_folders", "packed_files")
FUZZED_MODELS = (
    "model_files",
    "model_settings",
    "model_tokenizers",
    "chat_templates",
    "model_commands",
)
FUZZED = (
    "configuration",
    "selections",
    "command",
    "swapped_modules",
    *FUZZED_MODELS,
    *FUZZED_NATIVE,
)
# Programs without Python that hammer what threads share, and the sources that they are about.
NATIVE = f"{CPP}/native"
STRESSED = {
    f"{CPP}/tests/native/stress_pools.cpp": (f"{NATIVE}/threads/*.cpp", f"{NATIVE}/memory/*.cpp"),
    f"{CPP}/tests/native/stress_team.cpp": (
        f"{NATIVE}/threads/*.cpp",
        f"{NATIVE}/decode/executor/team.cpp",
    ),
    "tests/native/units/window_exchange.cpp": (
        "native/decode/ranks/exchange.cpp",
        "native/decode/ranks/*_exchange.cpp",
    ),
}
# Steps of several threads and of several executables, where a barrier that is missing is a race.
THREADS_OF_STEPS = [f"{CPP}/tests/test_decode_{each}.py" for each in ("model", "run", "steps")]
THREADS_OF_STEPS += ["tests/decode/sharding/test_exchange.py"]
THREADS_OF_STEPS += ["-k", "same_bits or bits_of_single or two_threads or close_waits or of_ranks"]
# Every node with its smallest weights: what sanitizers make slow is the rest.
SAMPLE_OF_NODES = ["tests/decode/programs/test_nodes.py", "-k", "not bf16 and not f16 and not q4_1"]
# Tests of what executors must refuse, and what they must take.
WRONG_PROGRAMS = ["tests/decode/programs/test_wrong_programs.py"]
WRONG_PROGRAMS += [f"tests/decode/executors/test_wrong_{each}.py" for each in ("steps", "tensors")]


def run_sanitized(session: nox.Session) -> None:
    """Run C++ and emulated CUDA with ASan and UBSan, and what C++'s threads share with TSan."""
    install_group(session, "test", "decode")
    install_sanitized(session, {})
    run = ["pytest", *BY_FILE, "-m", "not unsanitized"]
    only = ["--backend=cpp", "--require-backend=cpp"]
    environment = sanitizer_environment()
    session.run(*run, *only, *(session.posargs or [CONFORMANCE, CPP]), env=environment)
    if session.posargs:
        return
    session.run(*run, *only, *WRONG_PROGRAMS, env=environment)
    for level in cpu_levels(session, environment):
        at_level = environment | {"TENSOR_OPS_CPP_ISA": level}
        session.run(*run, *only, *SAMPLE_OF_NODES, env=at_level)
    found = ["tests/fuzz/test_found.py", "--nightly", "-k", " or ".join(FUZZED_NATIVE[1:])]
    session.run(*run, *found, env=environment)
    for program, patterns in STRESSED.items():
        stress(session, program, patterns)
    session.install("--no-cache", *THREAD_SANITIZED, f"./{CPP}")
    session.run(*run, *THREADS_OF_STEPS, env=sanitizer_environment("libtsan.so"))
    session.install("--no-cache", *EMULATED, *SANITIZED, f"./{CUDA}")
    where = [f"{CUDA}/tests", f"--ignore={WHEEL_TESTS}"]
    where += [f"{CONFORMANCE}/test_{each}.py" for each in ("samples", "c_interface")]
    only = ["--backend=cuda", "--require-backend=cuda"]
    session.run(*run, *only, *where, env=environment)
    found = ["tests/fuzz/test_found.py", "--nightly", "-k", "interface"]
    session.run(*run, *found, env=environment | {"FUZZED_BACKEND": "cuda"})


def run_fuzzer(session: nox.Session) -> None:
    """Fuzz the targets that are named after ``--``, or all of them."""
    session.install("atheris>=3", "./packages/tensor-ops", "./packages/tensor-ops-decode")
    temporary = Path(session.create_tmp()).resolve()  # where the corpora are kept
    chosen = [each for each in session.posargs if each in FUZZED] or FUZZED
    options = [each for each in session.posargs if each not in FUZZED]
    if "swapped_modules" in chosen:
        session.install(f"./{TORCH}", cpp_wheel(session), pytorch())
    script = f"{ROOT}/tests/fuzz/run.py"
    with session.chdir(temporary):
        for target in (each for each in chosen if each not in FUZZED_NATIVE):
            session.run("python", script, target, *options)
    native = [each for each in chosen if each in FUZZED_NATIVE]
    if not native:
        return
    # Only now: the runtime of the sanitizers keeps libFuzzer from seeing the branches of Python.
    coverage = str(temporary / "native_coverage.o")
    compiled = ["-O2", "-fPIC", "-c", "tests/fuzz/native_coverage.c", "-o", coverage]
    session.run("gcc", *compiled, external=True)
    flags = {"CXXFLAGS": "-fsanitize-coverage=trace-pc", "LDFLAGS": coverage}
    install_sanitized(session, flags)
    with session.chdir(temporary):
        for target in native:
            session.run("python", script, target, *options, env=sanitizer_environment())


def run_oclgrind(session: nox.Session) -> None:
    """Run every OpenCL kernel under oclgrind; what it finds is an error."""
    if shutil.which("oclgrind") is None:
        session.error("oclgrind is not installed; on Debian and Ubuntu: apt-get install oclgrind")
    install_packages(session)
    session.install("ml_dtypes")
    log = Path(session.create_tmp(), "oclgrind.log")
    log.write_text("", encoding="utf-8")
    checks = ["--data-races", "--uniform-writes", "--log", str(log)]
    script = f"{ROOT}/{OPENCL}/tools/run_every_kernel.py"
    session.run("oclgrind", *checks, "python", script, external=True)
    findings = log.read_text(encoding="utf-8").strip()
    if findings:
        session.error(f"oclgrind found:\n{findings}")


def stress(session: nox.Session, program: str, patterns: Sequence[str]) -> None:
    """Build and run a program of native code with TSan, then with ASan and UBSan."""
    sources = [program]
    for pattern in patterns:
        sources += map(str, sorted(Path().glob(pattern)))
    options = ["-std=c++17", "-O1", "-g", "-fno-sanitize-recover=all", "-pthread"]
    options += ["-Wall", "-Wextra", "-Werror", f"-I{CPP}/native", "-Inative"]
    for sanitizer in ("thread", "address,undefined"):
        driver = str(Path(session.create_tmp(), Path(program).stem).resolve())
        checks = f"-fsanitize={sanitizer}"
        session.run("g++", *options, checks, "-o", driver, *sources, external=True)
        suppressed = {"TSAN_OPTIONS": "halt_on_error=1:die_after_fork=0"}
        session.run(driver, "2000", "20", env=suppressed, external=True)
