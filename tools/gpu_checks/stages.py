"""What is done, in its order."""

import glob
import importlib.util
import os
import re
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gpu_checks.install import install
from gpu_checks.workplace import Done, FailedError, SkippedError, Stage, Workplace

__all__ = ["STAGES"]

PACKAGE = Path("packages/tensor-ops-cuda")
RANDOM_CALLS = 10_000
PROBE = (
    "import json, tensor_ops_cuda as t\n"
    "print('info', json.dumps({**t.info(), 'probe': t.probe()}, default=str))\n"
)
# What the package tensor_ops_decode imports.
DECODE_NEEDS = ("tokenizers", "jinja2")
DECODE_TESTS = f"{PACKAGE}/tests/test_decode*.py"
# For sanitizers: of every way to share out a row, for every dtype; more would take too long.
LENGTHS = ("30", "1026", "16384", "32768", "262146")
SANITIZERS = ("memcheck", "racecheck", "initcheck", "synccheck")


def probe(place: Workplace) -> dict[str, Any]:
    """Import what was installed, and say what it finds."""
    done = place.python("-c", PROBE)
    found = re.search(r"^info (.*)$", done.output, re.MULTILINE)
    if done.status != 0 or not found:
        raise FailedError("tensor_ops_cuda cannot be imported")
    if '"available": true' not in found[1]:
        raise FailedError(f"tensor_ops_cuda is unavailable: {found[1]}")
    return {}


def interop(place: Workplace) -> dict[str, Any]:
    """Streams, graphs, DLPack, threads, and the end of memory."""
    return _checks(place, "interop.py")


def c_interface(place: Workplace) -> dict[str, Any]:
    """Memory and streams of another runtime through the C interface."""
    return _checks(place, "c_calls.py")


def _checks(place: Workplace, script: str) -> dict[str, Any]:
    done = place.python(place.root / "tools/gpu_checks" / script)
    lines = re.findall(r"^(passed|failed|skipped) (.*)$", done.output, re.MULTILINE)
    counted = {
        status: sum(s == status for s, _ in lines) for status in ("passed", "failed", "skipped")
    }
    details = counted | {"checks": {what: status for status, what in lines}}
    if done.status != 0:
        raise FailedError(_why(done, f"failed: {'; '.join(w for s, w in lines if s == 'failed')}"))
    return details


def package_tests(place: Workplace) -> dict[str, Any]:
    """The package's own tests, but those about building."""
    tests = str(PACKAGE / "tests")
    # They build a wheel, for which there is no time here.
    ignored = [f"--ignore={tests}/wheel", f"--ignore-glob={DECODE_TESTS}"]
    return _pytest(place, tests, *ignored, "--require-backend=cuda")


def decode(place: Workplace) -> dict[str, Any]:
    """The tests of decode steps."""
    _install_decode(place)
    files = sorted(str(path) for path in place.root.glob(DECODE_TESTS))
    return _pytest(place, *files, "--require-backend=cuda", *_parallel(place))


def decode_sanitizers(place: Workplace) -> dict[str, Any]:
    """compute-sanitizer over the decode steps of small models, in each type of weights."""
    _install_decode(place)
    test = f"{PACKAGE}/tests/test_decode_llama.py::test_tokens_are_those_of_the_reference"
    script = ["-m", "pytest", "-q", "-W", "default", "-p", "no:cacheprovider", test]
    return _sanitized(place, [*script, "--require-backend=cuda"])


def decode_benchmark(place: Workplace) -> dict[str, Any]:
    """Tokens per second of a Llama of a billion random weights, beside other engines."""
    _install_decode(place)
    return _measured(place, "gpu.decode")


def _install_decode(place: Workplace) -> None:
    missing = [name for name in DECODE_NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        raise SkippedError(f"not installed: {', '.join(missing)}")
    install(place, "tensor-ops-decode")


def conformance(place: Workplace) -> dict[str, Any]:
    """Every op against its error bounds."""
    return _pytest(
        place, "tests/conformance", "--backend=cuda", "--require-backend=cuda", *_parallel(place)
    )


def opencl(place: Workplace) -> dict[str, Any]:
    """The same suite on the OpenCL backend, where there is a GPU for it."""
    if importlib.util.find_spec("pyopencl") is None:
        raise SkippedError("pyopencl is not installed")
    look = (
        "import pyopencl as cl\n"
        "print(any(p.get_devices(cl.device_type.GPU) for p in cl.get_platforms()))\n"
    )
    if "True" not in place.python("-c", look).output:
        raise SkippedError("no OpenCL platform has a GPU")
    install(place, "tensor-ops-opencl")
    return _pytest(
        place,
        "tests/conformance",
        "--backend=opencl",
        "--require-backend=opencl",
        *_parallel(place),
    )


def pytorch(place: Workplace) -> dict[str, Any]:
    """The PyTorch operators on CUDA tensors."""
    if place.emulate:
        raise SkippedError("emulated: PyTorch has no tensors there")
    if importlib.util.find_spec("torch") is None:
        raise SkippedError("torch is not installed")
    install(place, "tensor-ops-torch")
    tests = "packages/tensor-ops-torch/tests"
    found = _pytest(
        place, f"{tests}/operators/test_cuda_tensors.py", f"{tests}/backends/test_on_gpu.py"
    )
    if not found.get("passed"):
        raise SkippedError("torch sees no CUDA device")
    return found


def random_calls(place: Workplace) -> dict[str, Any]:
    """Random calls against the NumPy backend in float64, by several processes at once."""
    processes = min(8, len(os.sched_getaffinity(0)))
    each = (RANDOM_CALLS // 100 if place.emulate else RANDOM_CALLS) // processes
    script = place.root / "tools/gpu_checks/random_calls.py"

    def called(number: int) -> Done:
        words = ["--first", str(number * each), "--count", str(each)]
        return place.python(script, *words, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

    with ThreadPoolExecutor(processes) as pool:
        done = list(pool.map(called, range(processes)))
    ends = [re.search(r"^(\d+) calls, (\d+) wrong$", one.output, re.MULTILINE) for one in done]
    problems = [
        _why(one, end[0] if end else "it stopped")
        for one, end in zip(done, ends, strict=True)
        if one.status != 0 or not end
    ]
    if problems:
        raise FailedError("; ".join(problems))
    return {"calls": sum(int(end[1]) for end in ends if end)}


def sanitizers(place: Workplace) -> dict[str, Any]:
    """compute-sanitizer over every kernel at small sizes."""
    return _sanitized(place, [str(place.root / PACKAGE / "tools/run_every_kernel.py"), *LENGTHS])


def _sanitized(place: Workplace, words: list[str]) -> dict[str, Any]:
    """Run Python under all tools of compute-sanitizer at once."""
    if place.emulate:
        raise SkippedError("emulated")
    usual = sorted(glob.glob("/usr/local/cuda*/bin/compute-sanitizer"))
    command = shutil.which("compute-sanitizer") or (usual[-1] if usual else None)
    if command is None:
        raise SkippedError("no compute-sanitizer is here")

    def checked(tool: str) -> str:
        options = ["--tool", tool, "--error-exitcode", "9"]
        return sanitizer_result(place.run([command, *options, sys.executable, *words]))

    with ThreadPoolExecutor(len(SANITIZERS)) as pool:
        details = dict(zip(SANITIZERS, pool.map(checked, SANITIZERS), strict=True))
    problems = [f"{tool} {text}" for tool, text in details.items() if text.startswith("failed")]
    if problems:
        raise FailedError("; ".join(problems))
    if all(each.startswith("refused") for each in details.values()):
        raise SkippedError(details["memcheck"])
    return details


def sanitizer_result(done: Done) -> str:
    """Return in a few words what compute-sanitizer found."""
    if re.search(r"Device not supported|Unable to initialize|LibraryNotLoaded", done.output):
        return "refused: compute-sanitizer does not support this machine"
    if done.status is None:
        return f"failed: not done after {done.seconds:.0f} s"
    summaries = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: (.*)", done.output)
    if done.status != 0 or not summaries:
        return f"failed: {summaries[-1] if summaries else f'exit status {done.status}'}"
    ran = re.findall(r"^(\d+ calls)$", done.output, re.MULTILINE)
    return ", ".join([summaries[-1].strip(), *ran, f"{done.seconds:.0f} s"])


def benchmark(place: Workplace) -> dict[str, Any]:
    """Times beside the copy's and those of other libraries."""
    if importlib.util.find_spec("torch") is None:
        raise SkippedError("torch is not installed, whose events and streams it uses")
    return _measured(place, "gpu.measure")


def _measured(place: Workplace, module: str) -> dict[str, Any]:
    """Run a program that measures until its time is up, and leaves a line for each figure."""
    if place.emulate:
        raise SkippedError("emulated: its times mean nothing")
    figures = place.scratch / "figures.jsonl"
    seconds = str(int(place.left_of_stage) - 5)
    done = place.python(
        "-m", module, "--out", figures, "--seconds", seconds,
        PYTHONPATH=os.pathsep.join([str(place.site), str(place.root / "benchmarks")]),
    )  # fmt: skip
    if done.status != 0 and not figures.exists():
        raise FailedError(_why(done, "nothing was measured"))
    problems = re.findall(r"^failed: (.*)$", done.output, re.MULTILINE)
    if problems:
        raise FailedError(problems[0])
    return {"ended": "whole" if done.status == 0 else _why(done, "early")}


def _pytest(place: Workplace, *words: str) -> dict[str, Any]:
    # The warnings of this machine's own plug-ins are no errors of ours.
    done = place.python("-m", "pytest", "-q", "-W", "default", "-p", "no:cacheprovider", *words)
    found = counts(done.output)
    if done.status != 0:
        raise FailedError(_why(done, ", ".join(f"{n} {what}" for what, n in found.items())))
    return found


def counts(output: str) -> dict[str, int]:
    """Return what the last line of pytest's output counts."""
    lines = [line for line in output.splitlines() if re.search(r" in [\d.]+s", line)]
    pairs = re.findall(r"(\d+) (passed|failed|skipped|error|xfailed)", lines[-1]) if lines else []
    return {what: int(number) for number, what in pairs}


def _parallel(place: Workplace) -> list[str]:
    cores = len(os.sched_getaffinity(0))
    if place.emulate or cores < 4 or importlib.util.find_spec("xdist") is None:
        return []
    return ["-n", str(min(cores, 12))]


def _why(done: Done, text: str) -> str:
    return f"not done after {done.seconds:.0f} s" if done.status is None else text or "it stopped"


def _install(place: Workplace) -> dict[str, Any]:
    install(place, "tensor-ops")
    return install(place, "tensor-ops-cuda")


STAGES = (
    Stage("install", "build for this GPU, install beside tensor-ops", _install, 180, 60, False),
    Stage("probe", "import it, look for the device", probe, 30, 5),
    Stage("interop", "streams, graphs, DLPack, threads, memory's end", interop, 60, 20),
    Stage("interface", "another runtime's memory by the C interface", c_interface, 30, 10),
    Stage("tests", "the package's own tests", package_tests, 90, 30),
    Stage("conformance", "every op against its error bounds", conformance, 150, 40),
    Stage("opencl", "the same on OpenCL", opencl, 60),
    Stage("torch", "the operators of PyTorch on CUDA tensors", pytorch, 60, 20),
    Stage("random", "random calls against NumPy", random_calls, 100, 30),
    Stage("sanitizers", "compute-sanitizer over every kernel", sanitizers, 120, 40),
    Stage("decode", "the tests of decode steps", decode, 150, 40),
    Stage("decode_races", "compute-sanitizer over decode steps", decode_sanitizers, 200, 40),
    Stage("decode_times", "tokens per second of a model", decode_benchmark, 300, 150),
    Stage("benchmark", "times", benchmark, 500, 200),
)
