"""Building and installing the packages of the checkout, without a network."""

import importlib.util
import json
import os
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

from gpu_checks.record import gpus
from gpu_checks.workplace import FailedError, Workplace

__all__ = ["architecture", "install", "install_backend"]

CUDA = "tensor-ops-cuda"
# Build requirements: modules, and what brings them.
BUILD_REQUIREMENTS = {
    "pip": "pip",
    "scikit_build_core": "scikit-build-core",
    "nanobind": "nanobind",
}
PIP = ("-m", "pip", "install", "--no-deps", "--no-index", "--upgrade")


def install_backend(place: Workplace) -> dict[str, Any]:
    """Install tensor-ops, and the CUDA backend from the wheel that was brought along.

    Without a wheel, or where it cannot be imported, it is built from the checkout.

    Raises
    ------
    FailedError
        If something that it is built with is missing, or the build fails.
    """
    install(place, "tensor-ops")
    wheels = sorted(place.wheels.glob("tensor_ops_cuda-*.whl")) if place.wheels else []
    if place.wheels and not wheels:
        raise FailedError(f"no tensor_ops_cuda-*.whl is in {place.wheels}; prepare that folder")
    if not wheels:
        return _build(place)
    done = place.python(*PIP, "--no-compile", "--target", place.site, wheels[-1])
    if done.status == 0:
        done = place.python("-c", "import tensor_ops_cuda")
    if done.status == 0:
        return {"from": wheels[-1].name}
    place.details["wheel"] = done.output.strip().rpartition("\n")[2]
    shutil.rmtree(place.site / "tensor_ops_cuda", ignore_errors=True)
    return place.details | _build(place)


def install(place: Workplace, package: str) -> None:
    """Install a package of Python files alone, whose build backend need not be here."""
    folder = place.root / "packages" / package
    settings = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    project = settings["project"]
    version = _version(folder / settings["tool"]["hatch"]["version"]["path"])
    for source in (folder / "src").iterdir():
        shutil.copytree(source, place.site / source.name, dirs_exist_ok=True)
    name = re.sub("-", "_", project["name"])
    about = place.site / f"{name}-{version}.dist-info"
    about.mkdir(parents=True, exist_ok=True)
    metadata = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {version}\n"
    (about / "METADATA").write_text(metadata, encoding="utf-8")
    # As pip notes where a package of a folder is from (PEP 610), which messages go by.
    note = {"url": folder.resolve().as_uri(), "dir_info": {}}
    (about / "direct_url.json").write_text(json.dumps(note), encoding="utf-8")
    points = {"console_scripts": project.get("scripts", {})} | project.get("entry-points", {})
    text = "\n".join(
        f"[{group}]\n" + "\n".join(f"{name} = {value}" for name, value in entries.items())
        for group, entries in points.items()
    )
    (about / "entry_points.txt").write_text(f"{text}\n", encoding="utf-8")


def _version(source: Path) -> str:
    """Return the version that a source file of a package states for hatchling."""
    found = re.search('^__version__ = "(.*)"$', source.read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise FailedError(f"{source} has no line like '__version__ = \"1.2.3\"'")
    return found[1]


def _build(place: Workplace) -> dict[str, Any]:
    missing = [
        name for module, name in BUILD_REQUIREMENTS.items() if not importlib.util.find_spec(module)
    ]
    if shutil.which("cmake") is None and importlib.util.find_spec("cmake") is None:
        missing.append("cmake")
    if missing:
        raise FailedError(
            f"{CUDA} is built with {', '.join(BUILD_REQUIREMENTS.values())} and cmake; missing: "
            f"{', '.join(missing)}. Install them, or bring a wheel with --from-wheels."
        )
    words = [*PIP, "--no-build-isolation", "--target", str(place.site), f"packages/{CUDA}"]
    architectures = ",".join(
        dict.fromkeys(architecture(gpu["compute_capability"]) for gpu in gpus())
    )
    environment = {"CMAKE_BUILD_PARALLEL_LEVEL": str(len(os.sched_getaffinity(0)))}
    if place.emulate:
        words += ["--config-settings", "cmake.define.TENSOR_OPS_CUDA_EMULATION=ON"]
    elif architectures:
        environment["TENSOR_OPS_CUDA_ARCHITECTURES"] = architectures
    done = place.python(*words, **environment)
    if done.status is None:
        raise FailedError(f"the build was not done after {done.seconds:.0f} s")
    if done.status != 0:
        raise FailedError(f"the build of {CUDA} failed")
    return {"architectures": "emulation" if place.emulate else architectures or "all"}


def architecture(compute_capability: str) -> str:
    """Return what CMake calls machine code and PTX of a GPU: "90" for "9.0"."""
    return compute_capability.replace(".", "")
