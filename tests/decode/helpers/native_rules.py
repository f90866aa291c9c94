"""The rules of programs in C++, compiled with a table of the kinds that a test gives."""

import shutil
import subprocess
from pathlib import Path

import pytest

import node_kinds

ROOT = Path(__file__).parents[3]
CPP = ROOT / "packages/tensor-ops-cpp/native"
PROGRAM = ROOT / "native/decode/program"
MAIN = Path(__file__).with_name("cpp_rules") / "main.cpp"


class NativeRules:
    """The compiled program; its table is as `tools/node_kinds.py` would write it.

    Parameters
    ----------
    folder : Path
    kinds : iterable of Kind
    """

    def __init__(self, folder, kinds):
        compiler = shutil.which("c++") or pytest.skip("c++ is not installed")
        kinds = sorted(kinds, key=lambda kind: kind.name)
        table = folder / "decode/program"
        table.mkdir(parents=True)
        for name, lines in (
            ("node_kinds.cpp", node_kinds.node_kinds(kinds)),
            ("node_slots.h", node_kinds.node_slots(kinds)),
        ):
            (table / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        names = " ".join(f"X({kind.name})" for kind in kinds)
        (folder / "node_files.h").write_text(f"#define TENSOR_OPS_FOR_EACH_NODE(X) {names}\n")
        sources = [path for path in PROGRAM.glob("*.cpp") if path.name != "node_kinds.cpp"]
        sources += [table / "node_kinds.cpp", CPP / "decode/executor/node_kernels.cpp", MAIN]
        # Together they are compiled in a fraction of the time.
        whole = folder / "whole.cpp"
        whole.write_text("".join(f'#include "{path}"\n' for path in sources), encoding="utf-8")
        self._program = folder / "rules"
        folders = [f"-I{path}" for path in (folder, ROOT / "native", ROOT / "native/include", CPP)]
        checks = ["-std=c++17", "-Wall", "-Wextra", "-Werror"]
        command = [compiler, *checks, *folders, whole, "-o", self._program]
        subprocess.run(command, check=True)

    def __call__(self, *texts):
        """Return for each program what `main.cpp` says, in three parts."""
        lines = "".join(f"{text}\n" for text in texts)
        done = subprocess.run(
            [self._program], input=lines, capture_output=True, text=True, check=True
        )
        return [tuple(line.split("\t")) for line in done.stdout.splitlines()]
