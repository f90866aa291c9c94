"""Puts the files that are shared with tensor-ops into wheels and sdists, as files of this package.

In a checkout they are symbolic links, which an sdist would keep and Git for Windows may not make.
"""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SHARED = ("arguments.py", "checks.py")


class SharedFilesHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        source = Path(self.root).parent / "tensor-ops" / "src" / "tensor_ops" / "op"
        if not source.exists():
            return  # in an unpacked sdist, whose files are those of this package
        package = "tensor_ops_opencl" if self.target_name == "wheel" else "src/tensor_ops_opencl"
        for name in SHARED:
            build_data["force_include"][str(source / name)] = f"{package}/{name}"
