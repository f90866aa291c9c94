"""The record of what was found, as JSON that is complete after every stage."""

import contextlib
import datetime
import json
import os
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

__all__ = ["FORMAT", "Record", "gpus", "run_quietly", "toolkit"]

FORMAT = 1
QUERY = {
    "name": "name",
    "driver": "driver_version",
    "compute_capability": "compute_cap",
    "memory": "memory.total",
    "power_limit": "power.limit",
    "clock_sm": "clocks.max.sm",
    "clock_memory": "clocks.max.memory",
}
PACKAGES = (
    *("numpy", "torch", "triton", "liger-kernel", "quack-kernels", "cupy-cuda12x", "cupy-cuda13x"),
    *(
        "jax",
        "jaxlib",
        "numba",
        "numba-cuda",
        "cuda-core",
        "cuda-bindings",
        "ml-dtypes",
        "pyopencl",
    ),
    *("scikit-build-core", "nanobind", "cmake", "ninja", "hypothesis", "pytest", "pytest-xdist"),
    *("transformers", "tokenizers", "jinja2"),
)


class Record:
    """Findings of runs of `gpu_check`; written to its file whenever it changes.

    What an earlier run has found, at the same commit on the same GPUs, is kept beside it.

    Attributes
    ----------
    content : dict
        All of it, as JSON.
    """

    def __init__(self, path: Path, root: Path, commit: str | None = None) -> None:
        self.path = path
        now = datetime.datetime.now(datetime.UTC)
        self.content: dict[str, Any] = {
            "format": FORMAT,
            "date": now.isoformat(timespec="seconds"),
            "commit": _commit(root, commit),
            "gpus": gpus(),
            "toolkit": toolkit(),
            "python": platform.python_version(),
            "system": platform.platform(),
            "cpus": len(os.sched_getaffinity(0)),
            "versions": _versions(),
            "libc": " ".join(platform.libc_ver()),
            "seconds": 0,
            "complete": False,
            "stages": {},
            "figures": [],
        }
        earlier = _read(path)
        if all(earlier.get(key) == self.content[key] for key in ("format", "commit", "gpus")):
            self.content |= {key: earlier[key] for key in ("seconds", "stages", "figures")}
        self.write()

    @property
    def passed(self) -> bool:
        """Whether no check failed and at least one passed."""
        statuses = {stage["status"] for stage in self.content["stages"].values()}
        return "passed" in statuses and statuses <= {"passed", "skipped"}

    def add(self, name: str, result: dict[str, Any]) -> None:
        """Keep what a stage found, in the place of what it found before.

        Its figures go to those of the others.
        """
        others = [each for each in self.content["figures"] if each.get("stage") != name]
        own = [figure | {"stage": name} for figure in result.pop("figures", [])]
        self.content["figures"] = others + own
        self.content["stages"][name] = result
        self.write()

    def write(self) -> None:
        """Write everything, in the place of an older file only when it is complete."""
        short = self.path.with_name(f"{self.path.name}.part")
        short.write_text(_text(self.content), encoding="utf-8")
        os.replace(short, self.path)

    def table(self) -> str:
        """Return a line for each stage, for the terminal."""
        lines = [
            f"{_device(self.content)}, commit {(self.content['commit']['id'] or 'unknown')[:12]}"
        ]
        for name, stage in self.content["stages"].items():
            said = stage.get("reason") or _short(stage.get("details", {}))
            lines.append(
                f"{stage['status']:9} {name:12} {stage['seconds']:5.0f} s  {said}".rstrip()
            )
        return "\n".join(lines)


def gpus() -> list[dict[str, str]]:
    """Return what nvidia-smi says of each GPU; nothing where there is none."""
    words = ["nvidia-smi", f"--query-gpu={','.join(QUERY.values())}", "--format=csv,noheader"]
    rows = [line.split(", ") for line in run_quietly(words).splitlines()]
    return [dict(zip(QUERY, row, strict=True)) for row in rows if len(row) == len(QUERY)]


def toolkit() -> str | None:
    """Return the version of nvcc, if there is one."""
    nvcc = os.environ.get("CUDACXX", "nvcc")
    found = re.search(r"release [\d.]+, V([\d.]+)", run_quietly([nvcc, "--version"]))
    return found[1] if found else None


def run_quietly(words: list[str]) -> str:
    """Return what a program prints; nothing where it is absent or fails."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=True)
        return done.stdout.strip()
    return ""


def _read(path: Path) -> dict[str, Any]:
    """Return what an earlier run has left; nothing where there is none, or it is not whole."""
    with contextlib.suppress(OSError, ValueError):
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found
    return {}


def _device(content: dict[str, Any]) -> str:
    names = [gpu["name"] for gpu in content["gpus"]]
    return ", ".join(names) if names else "no GPU"


def _short(details: dict[str, Any]) -> str:
    return ", ".join(
        f"{key} {value}" for key, value in details.items() if not isinstance(value, dict | list)
    )


def _commit(root: Path, given: str | None) -> dict[str, Any]:
    git = ["git", "-C", str(root)]
    head = run_quietly([*git, "rev-parse", "HEAD"])
    if not head:
        return {"id": given, "dirty": None}
    return {"id": head, "dirty": bool(run_quietly([*git, "status", "--porcelain"]))}


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _text(content: dict[str, Any]) -> str:
    """Return JSON with a line for each key, and for each entry of what is long."""
    lines = []
    for key, value in content.items():
        if key == "figures":
            inner = ",\n".join(json.dumps(each, separators=(",", ":")) for each in value)
            lines.append(f'"figures": [\n{inner}\n]')
        elif key == "stages":
            inner = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in value.items())
            lines.append(f'"stages": {{\n{inner}\n}}')
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"
