"""Building and installing the packages of the checkout, without a network."""

import importlib.util
import os
import re
import shutil
import tomllib
from typing import Any

from gpu_checks.record import gpus
from gpu_checks.workplace import FailedError, Workplace

__all__ = ["install", "architecture"]

BUILD_REQUIREMENTS = {
    "tensor-ops-cuda": {
        "pip": "pip",
        "scikit_build_core": "scikit-build-core",
        "pybind11": "pybind11",
    },
}


def install(place: Workplace, package: str) -> dict[str, Any]:
    """Install a package of the checkout into the site.

    Raises
    ------
    FailedError
        If something that it is built with is missing, or the build fails.
    """
    if package not in BUILD_REQUIREMENTS:
        _copy(place, package)
        return {}
    needed = BUILD_REQUIREMENTS[package]
    missing = [name for module, name in needed.items() if importlib.util.find_spec(module) is None]
    if shutil.which("cmake") is None and importlib.util.find_spec("cmake") is None:
        missing.append("cmake")
    if missing:
        raise FailedError(
            f"{package} is built with {', '.join(needed.values())} and cmake; missing: "
            f"{', '.join(missing)}. Install them, or bring a site with --site."
        )
    words = ["-m", "pip", "install", "--no-build-isolation", "--no-deps", "--no-index", "--upgrade"]
    words += ["--target", str(place.site), f"packages/{package}"]
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
        raise FailedError(f"the build of {package} failed")
    return {"architectures": "emulation" if place.emulate else architectures or "all"}


def _copy(place: Workplace, package: str) -> None:
    """Install a package of Python files alone, whose build backend need not be here."""
    folder = place.root / "packages" / package
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for source in (folder / "src").iterdir():
        shutil.copytree(source, place.site / source.name, dirs_exist_ok=True)
    name = re.sub("-", "_", project["name"])
    about = place.site / f"{name}-{project['version']}.dist-info"
    about.mkdir(parents=True, exist_ok=True)
    metadata = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (about / "METADATA").write_text(metadata, encoding="utf-8")
    points = {"console_scripts": project.get("scripts", {})} | project.get("entry-points", {})
    text = "\n".join(
        f"[{group}]\n" + "\n".join(f"{name} = {value}" for name, value in entries.items())
        for group, entries in points.items()
    )
    (about / "entry_points.txt").write_text(f"{text}\n", encoding="utf-8")


def architecture(compute_capability: str) -> str:
    """Return what CMake calls the code of a GPU: "90-real" for "9.0"."""
    return compute_capability.replace(".", "") + "-real"
