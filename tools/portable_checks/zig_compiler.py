"""Calls zig's compiler with options as GCC and clang spell them.

    python zig_compiler.py ZIG cc|c++ -target TARGET [OPTION ...]

zig has names of its own for processors, and takes none with a minus sign.
"""

import os
import sys

__all__ = ["as_zig_spells_it"]

# The instructions of an AArch64 processor, as -march lists them behind its version.
ARM = "-march=armv8.2-a"


def as_zig_spells_it(option: str) -> str:
    """Return an option of a compiler for zig."""
    if option.startswith(ARM):
        return "-mcpu=generic+v8_2a" + option.removeprefix(ARM)
    if option.startswith("-march=x86-64"):
        return "-mcpu=" + option.removeprefix("-march=").replace("-", "_")
    return option


if __name__ == "__main__":
    zig, *words = sys.argv[1:]
    os.execv(zig, [zig, *map(as_zig_spells_it, words)])
