"""Prepare the check of tensor-ops-cuda on a machine with an NVIDIA GPU and without a network.

    python tools/gpu_prepare.py DIR --python python3.12 --architecture 90

It needs no GPU, but a network, a CUDA toolkit of 12.9 or newer, no newer than the other machine's
driver, and the Python of that machine. DIR then has the wheel, a probe of barriers and the commit;
beside it the checkout goes to the other machine, where tools/gpu_check.py takes DIR. What is known
to fail there is said here, and makes the exit status 1.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from gpu_checks.barriers import PROBE_NAME, compiler, probe_command
from gpu_checks.record import run_quietly

ROOT = Path(__file__).resolve().parents[1]
# Size of the checkout and what is prepared: more is tedious to carry.
MOST_MEGABYTES = 60
# The newest symbols of the system's libraries that Ubuntu 22.04 has.
NEWEST = "GLIBC_2.35,GLIBCXX_3.4.30,CXXABI_1.3.13"
SHOW = "import tensor_ops_cuda as t; print(t.get_cuda_info()['architectures'])"


def main(words: Sequence[str] | None = None) -> int:
    """Prepare the folder; return 1 if something is known to fail on the other machine."""
    parser = _parser()
    options = parser.parse_args(words)
    python, folder = shutil.which(options.python), options.folder
    if python is None:
        parser.error(f"no {options.python} is here; install it, or name another with --python")
    if compiler() is None:
        parser.error("no nvcc is here; put it on the PATH, or set CUDACXX to it")
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.whl"):
        old.unlink()
    with tempfile.TemporaryDirectory(prefix="gpu-prepare-") as scratch:
        wheel = _build(python, options.architecture, folder, Path(scratch))
        if (ROOT / "benchmarks/gpu" / f"{PROBE_NAME}.cu").exists():
            _run(probe_command(ROOT, folder / PROBE_NAME, f"sm_{options.architecture}") or [])
    git = ["git", "-C", str(ROOT)]
    (folder / "commit").write_text(f"{run_quietly([*git, 'rev-parse', 'HEAD'])}\n")
    problems = newer_symbols(wheel, options.newest.split(","))
    megabytes = round(_bytes_to_carry(folder) / 1e6)
    print(f"{wheel.name}; {megabytes} MB to carry, with the checkout")
    if megabytes > MOST_MEGABYTES:
        problems.append(f"more than {MOST_MEGABYTES} MB is to be carried: {megabytes} MB")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def newer_symbols(wheel: Path, newest: Sequence[str]) -> list[str]:
    """Return what is wrong with the versions of symbols that a wheel's libraries need."""
    with zipfile.ZipFile(wheel) as archive:
        binaries = b"".join(archive.read(n) for n in archive.namelist() if ".so" in n)
    problems = []
    for name, most in (each.split("_") for each in newest):
        found = re.findall(rf"\b{name}_([\d.]*\d)\0".encode(), binaries)
        needed = max((_numbers(each.decode()) for each in found), default=(0,))
        if needed > _numbers(most):
            version = ".".join(map(str, needed))
            problems.append(
                f"{wheel.name} needs {name}_{version}, newer than {name}_{most}: build it on an "
                "older system, or say with --newest what the other machine has"
            )
    return problems


def _build(python: str, architecture: str, folder: Path, scratch: Path) -> Path:
    """Build the wheel into a folder, and import it here."""
    _run([python, "-m", "venv", str(scratch / "venv")])
    own = str(scratch / "venv/bin/python")
    settings = {"TENSOR_OPS_CUDA_ARCHITECTURES": architecture}
    settings["CMAKE_BUILD_PARALLEL_LEVEL"] = str(len(os.sched_getaffinity(0)))
    words = ["-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", str(folder)]
    _run([own, *words, str(ROOT / "packages/tensor-ops-cuda")], **settings)
    (wheel,) = folder.glob("*.whl")
    _run([own, "-m", "pip", "install", "-q", str(ROOT / "packages/tensor-ops"), str(wheel)])
    _run([own, "-c", SHOW])
    return wheel


def _run(words: Sequence[str], **environment: str) -> None:
    print("$", *words, flush=True)
    # Packages on this PYTHONPATH are of another Python.
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if (status := subprocess.run(words, env=variables | environment, check=False).returncode) != 0:
        raise SystemExit(f"exit status {status} of: {' '.join(words)}")


def _bytes_to_carry(folder: Path) -> int:
    """Return the size of the files that git does not ignore, and of what was prepared."""
    git = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    own = {ROOT / name for name in run_quietly(git).split("\0")} | {*folder.resolve().rglob("*")}
    return sum(path.lstat().st_size for path in own if path.is_file() or path.is_symlink())


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _parser() -> argparse.ArgumentParser:
    summary, _, rest = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="what is carried")
    parser.add_argument(
        "--python", default=sys.executable, help="of the other machine's version; by default ours"
    )
    parser.add_argument(
        "--architecture", required=True, metavar="90", help="the GPU's compute capability, undotted"
    )
    parser.add_argument(
        "--newest", default=NEWEST, metavar="A,B", help=f"symbols of that system; default {NEWEST}"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
