"""Writes the wheel's stub of ``tensor_ops``, in which type checkers find the ops by name.

At run time the ops are found by walking ``tensor_ops/ops``, so no source file lists them.
"""

import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

RUN_TIME = "    def __getattr__(name: str) -> Any: ...\n"
# Without that package, type checkers take the name for Any.
ELSEWHERE = "    from tensor_ops_decode import PersistentKernel as PersistentKernel\n"


class StubBuildHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        package = Path(self.root, "src", "tensor_ops")
        stub = Path(tempfile.mkdtemp(), "__init__.pyi")
        stub.write_text(stub_of(package), encoding="utf-8")
        build_data["force_include"][str(stub)] = "tensor_ops/__init__.pyi"


def stub_of(package: Path) -> str:
    """Return the package's ``__init__.py`` with the ops imported by name."""
    source = (package / "__init__.py").read_text(encoding="utf-8")
    names = sorted(path.stem for path in package.glob("ops/*.py") if path.stem != "__init__")
    imports = "".join(f"    from tensor_ops.ops.{name} import {name} as {name}\n" for name in names)
    if RUN_TIME not in source:
        raise RuntimeError("tensor_ops/__init__.py has no __getattr__ for the stub to replace")
    return source.replace(RUN_TIME, imports + ELSEWHERE)
