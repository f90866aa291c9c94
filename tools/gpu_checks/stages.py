"""Stages of the check, in their order."""

import glob
import importlib.util
import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from gpu_checks.barriers import PROBE_NAME, probe_command
from gpu_checks.install import install, install_backend
from gpu_checks.workplace import (
    Done,
    FailedError,
    SkippedError,
    Stage,
    Workplace,
    json_lines,
)

__all__ = ["INSTALL", "PARTS", "STAGES"]

PACKAGE = Path("packages/tensor-ops-cuda")
RANDOM_CALLS = 5_000
# Where the device is emulated, one in so many tests of a suite runs, and of random calls.
SAMPLE = 200
FACTS = (
    ("nvidia-smi",),
    ("nvidia-smi", "-q", "-d", "CLOCK,POWER,TEMPERATURE,PERFORMANCE,ECC"),
    (sys.executable, "-m", "pip", "list", "--disable-pip-version-check"),
)
IMPORT = (
    "import json, tensor_ops_cuda as t\n"
    "print('info', json.dumps({**t.info(), 'probe': t.probe()}, default=str))\n"
)
# Packages that tensor_ops_decode imports.
DECODE_NEEDS = ("tokenizers", "jinja2")
# Hardly any weights; weights that fit the L2 cache; weights that take the time.
DECODE_SHAPES = "null,L2,8B"
DECODE_TESTS = f"{PACKAGE}/tests/test_decode*.py"
KINDS = ("q8_0", "q4_0", "bf16")
# Compilers need no GPU, and minutes.
ON_THE_GPU = ("-m", "not compiles", "--require-backend=cuda")
# For sanitizers: of every way to share out a row, for every dtype; more would take too long.
LENGTHS = ("30", "1026", "16384", "32768", "262146")
SANITIZERS = ("memcheck", "racecheck", "synccheck", "initcheck")


def facts(place: Workplace) -> dict[str, Any]:
    """Facts about the machine, whole, in the log; the record begins with them in short."""
    for words in FACTS:
        if shutil.which(words[0]):
            place.run(words)
    return {}


def imported(place: Workplace) -> dict[str, Any]:
    """Import what was installed, and look for the device."""
    done = place.python("-c", IMPORT)
    found = re.search(r"^info (.*)$", done.output, re.MULTILINE)
    if done.status != 0 or not found:
        raise FailedError("tensor_ops_cuda cannot be imported")
    probe = json.loads(found[1])["probe"]
    if not probe["available"]:
        raise FailedError(f"tensor_ops_cuda is unavailable: {probe['reason']}")
    return {}


def interop(place: Workplace) -> dict[str, Any]:
    """Streams, graphs, DLPack, threads, and the end of memory."""
    return _checks(place, ["interop.py"])


def c_interface(place: Workplace) -> dict[str, Any]:
    """Memory and streams of another runtime through the C interface."""
    return _checks(place, ["c_calls.py"])


def barriers(place: Workplace) -> dict[str, Any]:
    """Time of a barrier of all blocks, and bandwidth of copies, without any product."""
    if place.emulate:
        raise SkippedError("emulated: its times mean nothing")
    program = place.scratch / PROBE_NAME
    prepared = place.wheels / PROBE_NAME if place.wheels else None
    if prepared and prepared.exists():
        shutil.copyfile(prepared, program)
        program.chmod(0o755)  # which may be lost where files are copied
    elif command := probe_command(place.root, program, "native"):
        if place.run(command).status != 0:
            raise FailedError("the probe does not compile")
    else:
        raise SkippedError("no compiled probe was brought along, and no nvcc is here")
    done = place.run([str(program)])
    place.details["figures"] = json_lines(done.output)
    if done.status != 0:
        raise FailedError(_why(done, ""))
    return place.details


def smoke(place: Workplace) -> dict[str, Any]:
    """Decode steps beside the reference, and their bits; a process for each type of weights."""
    _install_decode(place)
    kinds = KINDS[:1] if place.emulate else KINDS
    small = ["--small"] if place.emulate else []
    return _checks(place, *(["smoke_decode.py", kind, *small] for kind in kinds))


def _checks(place: Workplace, *commands: list[str]) -> dict[str, Any]:
    """Run programs that print a line for each check, one after another."""
    all_done = [
        place.python(place.root / "tools/gpu_checks" / script, *words)
        for script, *words in place.in_turn(commands)
    ]
    output = "\n".join(done.output for done in all_done)
    lines = re.findall(r"^(passed|failed|skipped) (.*)$", output, re.MULTILINE)
    counted = {
        status: sum(s == status for s, _ in lines) for status in ("passed", "failed", "skipped")
    }
    place.details = counted | {"checks": {what: status for status, what in lines}}
    if bad := [done for done in all_done if done.status != 0]:
        failed = "; ".join(what for status, what in lines if status == "failed")
        raise FailedError(failed or _why(bad[0], ""))
    return place.details


def package_tests(place: Workplace) -> dict[str, Any]:
    """The package's own tests on the device, but those of decode steps."""
    tests = str(PACKAGE / "tests")
    ignored = [f"--ignore={tests}/wheel", f"--ignore-glob={DECODE_TESTS}"]
    return _pytest(place, tests, *ignored, *ON_THE_GPU)


def decode(place: Workplace) -> dict[str, Any]:
    """The tests of decode steps."""
    _install_decode(place)
    files = sorted(str(path) for path in place.root.glob(DECODE_TESTS))
    return _pytest(place, *files, *ON_THE_GPU)


def decode_sanitizers(place: Workplace) -> dict[str, Any]:
    """compute-sanitizer over the decode steps of small models, in each type of weights."""
    _install_decode(place)
    test = f"{PACKAGE}/tests/test_decode_llama.py::test_tokens_are_those_of_the_reference"
    script = ["-m", "pytest", "-q", "-W", "default", "-p", "no:cacheprovider", test]
    return _sanitized(place, [*script, "--require-backend=cuda"])


def decode_cases(place: Workplace) -> dict[str, Any]:
    """Decode steps of models that are small in one way or another, and of a large one."""
    _install_decode(place)
    return _measured(place, "gpu.decode", "--shapes", DECODE_SHAPES)


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
    return _conformance(place, "cuda")


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
    return _conformance(place, "opencl")


def _conformance(place: Workplace, backend: str) -> dict[str, Any]:
    suite = "tests/conformance"
    # Levels are those of the C++ backend.
    only = [f"--ignore={suite}/test_levels.py", f"--backend={backend}"]
    return _pytest(place, suite, *only, f"--require-backend={backend}")


def pytorch(place: Workplace) -> dict[str, Any]:
    """The PyTorch operators on CUDA tensors."""
    if place.emulate:
        raise SkippedError("emulated: PyTorch has no tensors there")
    if importlib.util.find_spec("torch") is None:
        raise SkippedError("torch is not installed")
    for package in ("tensor-ops-devices", "tensor-ops-torch"):
        install(place, package)
    tests = ("torch/tests/operators/test_cuda_tensors.py", "devices/tests/backends/test_on_gpu.py")
    found = _pytest(place, *(f"packages/tensor-ops-{each}" for each in tests))
    if not found.get("passed"):
        raise SkippedError("torch sees no CUDA device")
    return found


def random_calls(place: Workplace) -> dict[str, Any]:
    """Random calls against the NumPy backend in float64, by several processes at once."""
    processes = min(8, len(os.sched_getaffinity(0)))
    count = RANDOM_CALLS // SAMPLE if place.emulate else RANDOM_CALLS
    script = place.root / "tools/gpu_checks/random_calls.py"
    words = ["--count", str(count), "--processes", str(processes)]
    done = place.python(script, *words, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    end = re.search(r"^(\d+) calls, (\d+) wrong$", done.output, re.MULTILINE)
    if done.status != 0 or not end:
        raise FailedError(_why(done, end[0] if end else ""))
    return {"calls": int(end[1])}


def sanitizers(place: Workplace) -> dict[str, Any]:
    """compute-sanitizer over every kernel at small sizes."""
    return _sanitized(place, [str(place.root / PACKAGE / "tools/run_every_kernel.py"), *LENGTHS])


def _sanitized(place: Workplace, words: list[str]) -> dict[str, Any]:
    """Run Python under one tool of compute-sanitizer after another, in equal shares of the time."""
    if place.emulate:
        raise SkippedError("emulated")
    usual = sorted(glob.glob("/usr/local/cuda*/bin/compute-sanitizer"))
    command = shutil.which("compute-sanitizer") or (usual[-1] if usual else None)
    if command is None:
        raise SkippedError("no compute-sanitizer is here")
    for tool in place.in_turn(SANITIZERS):
        options = ["--tool", tool, "--error-exitcode", "9"]
        done = place.run([command, *options, sys.executable, *words])
        place.details[tool] = sanitizer_result(done)
    details = place.details
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


def _measured(place: Workplace, module: str, *words: str) -> dict[str, Any]:
    """Run a program that measures until its time is up, and leaves a line for each figure."""
    if place.emulate:
        raise SkippedError("emulated: its times mean nothing")
    seconds = str(int(place.left_of_stage) - 5)
    done = place.python(
        "-m", module, "--out", place.figures, "--seconds", seconds, *words,
        PYTHONPATH=os.pathsep.join([str(place.site), str(place.root / "benchmarks")]),
    )  # fmt: skip
    if done.status != 0 and not place.figures.exists():
        raise FailedError(_why(done, "nothing was measured"))
    problems = re.findall(r"^failed: (.*)$", done.output, re.MULTILINE)
    if problems:
        raise FailedError(problems[0])
    return {"ended": "whole" if done.status == 0 else _why(done, "early")}


def _pytest(place: Workplace, *words: str) -> dict[str, Any]:
    # The warnings of this machine's own plug-ins are no errors of ours.
    options = ["-q", "--tb=short", "-W", "default", "-p", "no:cacheprovider", "-p", "no:benchmark"]
    done = place.python("-m", "pytest", *options, *_spread(place), *words)
    place.details |= counts(done.output)
    if done.status != 0:
        found = ", ".join(f"{n} {what}" for what, n in place.details.items())
        raise FailedError(_why(done, found) + (f": {found}" if done.status is None else ""))
    return place.details


def counts(output: str) -> dict[str, int]:
    """Return what the last line of pytest's output counts."""
    lines = [line for line in output.splitlines() if re.search(r" in [\d.]+s", line)]
    pairs = re.findall(r"(\d+) (passed|failed|skipped|error|xfailed)", lines[-1]) if lines else []
    return {what: int(number) for number, what in pairs}


def _spread(place: Workplace) -> list[str]:
    """Return options of pytest: a sample where kernels are emulated, else all on many cores."""
    cores = len(os.sched_getaffinity(0))
    if place.emulate:
        return ["--every", str(SAMPLE)]
    if cores < 4 or importlib.util.find_spec("xdist") is None:
        return []
    return ["-n", str(min(cores, 12))]


def _why(done: Done, text: str) -> str:
    """Return why a program has not ended well: its time was up, or a text, or what it said last."""
    if done.status is None:
        return f"not done after {done.seconds:.0f} s"
    return text or done.output.strip().rpartition("\n")[2] or f"exit status {done.status}"


INSTALL = Stage(
    "install",
    "from a wheel, or built here",
    install_backend,
    180,
    needs_install=False,
    is_vital=True,
)
STAGES = (
    Stage("facts", "what the machine is", facts, 10, needs_install=False),
    INSTALL,
    Stage("import", "look for the device", imported, 20, is_vital=True),
    Stage("barriers", "what barriers cost and copies reach", barriers, 25),
    Stage("smoke", "decode steps, and their bits", smoke, 55),
    Stage("decode", "the tests of decode steps", decode, 60),
    Stage("interop", "streams, graphs, DLPack, threads, memory's end", interop, 45),
    Stage("interface", "another runtime's memory by the C interface", c_interface, 20),
    Stage("conformance", "every op against its error bounds", conformance, 70),
    Stage("benchmark", "times of ops", benchmark, 50, 2),
    Stage("decode_cases", "times that tell predictions apart", decode_cases, 40, 2),
    Stage("decode_times", "times of decode steps beside others", decode_benchmark, 50, 2),
    Stage("tests", "the package's other tests", package_tests, 30, 2),
    Stage("torch", "the operators of PyTorch on CUDA tensors", pytorch, 20, 2),
    Stage("random", "random calls against NumPy", random_calls, 20, 2),
    Stage("opencl", "conformance on OpenCL", opencl, 20, 2),
    Stage("decode_races", "compute-sanitizer over decode steps", decode_sanitizers, 40, 2),
    Stage("sanitizers", "compute-sanitizer over every kernel", sanitizers, 40, 2),
)
PARTS = sorted({stage.part for stage in STAGES})
