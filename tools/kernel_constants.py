"""Write the constants of the kernels as a header for C++, for CUDA and for OpenCL.

Run ``python tools/kernel_constants.py`` after a change of ``kernel_constants.toml``. A test
compares the headers with what this script would write.
"""

import textwrap
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

__all__ = ["headers"]

ROOT = Path(__file__).parents[1]
TABLE = Path(__file__).with_suffix(".toml")
INTRODUCTION = """\
// Constants of exp and of the normal distribution. Written by tools/kernel_constants.py: change
// tools/kernel_constants.toml and run that instead of changing this file.
"""
C_TYPES = {"float32": "float", "float64": "double"}
Header = Iterator[str]
Group = dict[str, Any]


def main() -> None:
    for path, text in headers().items():
        path.write_text(text, encoding="utf-8")


def headers() -> dict[Path, str]:
    """Return the text of each header by its path."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"), parse_float=str)
    return {
        ROOT / path: "".join(f"{line}\n" for line in spelled(language_of(table, language)))
        for path, language, spelled in SPELLINGS
    }


def language_of(table: dict[str, Group], language: str) -> dict[str, Group]:
    """Return the groups, and of each the constants, that a language uses."""
    groups = {}
    for name, group in table.items():
        if group.get("only", language) != language:
            continue
        omitted = group.get("omit", {}).get(language, ())
        used = {
            dtype: {key: value for key, value in group[dtype].items() if key not in omitted}
            for dtype in C_TYPES
            if dtype in group
        }
        groups[name] = {key: group[key] for key in group if key not in C_TYPES} | used
    return groups


def cpp(groups: dict[str, Group]) -> Header:
    yield from (INTRODUCTION + "#pragma once\n", '#include "kernels/arithmetic.h"\n')
    yield "// clang-format off\nnamespace tensor_ops::TENSOR_OPS_LEVEL {\nnamespace {"
    declared = set()
    for group in groups.values():
        struct = group["struct"]
        if struct not in declared:
            entries = ", std::size_t entries" if "entries" in group else ""
            yield f"\ntemplate <class C{entries}>\nstruct {struct};"
            declared.add(struct)
        yield "\n" + comment(group)
        arguments = f", {group['entries']}" if "entries" in group else ""
        yield from structs(group, arguments, cpp_member)
    yield "\n}  // namespace\n}  // namespace tensor_ops::TENSOR_OPS_LEVEL"


def cpp_member(c_type: str, name: str, value: Any) -> Header:
    start = f"  static constexpr {c_type} {name}"
    if isinstance(value, dict):
        pair = f"{number(value['hi'], c_type)}, {number(value['lo'], c_type)}"
        yield f"  static constexpr Pair<{c_type}> {name}{{{pair}}};"
    elif not isinstance(value, list):
        yield f"{start} = {number(value, c_type)};"
    elif isinstance(value[0], list):
        yield f"{start}[][{len(value[0])}] = {{"
        yield from (wrapped(f"      {{{numbers(row, c_type)}}},") for row in value)
        yield "  };"
    else:
        yield wrapped(f"{start}[] = {{{numbers(value, c_type)}}};")


def cuda(groups: dict[str, Group]) -> Header:
    yield INTRODUCTION + '#pragma once\n\n#include "kernels/arithmetic.cuh"\n'
    yield "// clang-format off\nnamespace tensor_ops {"
    for group in groups.values():
        yield f"\n{comment(group)}\ntemplate <class R>\nstruct {group['struct']};"
        yield from structs(group, "", cuda_member)
    yield "\n}  // namespace tensor_ops"


def cuda_member(c_type: str, name: str, value: Any) -> Header:
    # Device code may read static numbers, but no static arrays or structs.
    if isinstance(value, list):
        yield f"  static __device__ __forceinline__ {c_type} {name}({c_type} x) {{"
        yield wrapped(f"    constexpr {c_type} c[] = {{{numbers(value, c_type)}}};")
        yield "    return polynomial(x, c);\n  }"
    else:
        camel = "k" + name.title().replace("_", "")
        pair = (f"{camel}{suffix} = {number(part, c_type)}" for suffix, part in parts(value))
        yield f"  static constexpr {c_type} {', '.join(pair)};"


def opencl(groups: dict[str, Group]) -> Header:
    yield INTRODUCTION
    yield "// clang-format off"
    for prefix, group in groups.items():
        yield "\n" + comment(group)
        for directive, dtype in (("#ifdef ELEMENT_float64", "float64"), ("#else", "float32")):
            yield directive
            for name, value in group[dtype].items():
                yield from opencl_constant(C_TYPES[dtype], f"{prefix}_{name}", value)
        yield "#endif"


def opencl_constant(c_type: str, name: str, value: Any) -> Header:
    if isinstance(value, list):
        yield wrapped(f"constant {c_type} {name}[] = {{{numbers(value, c_type)}}};")
    else:
        for suffix, part in parts(value):
            macro = f"{name}_{suffix}" if suffix else name
            yield f"#define {macro.upper()} ({number(part, c_type)})"


SPELLINGS: tuple[tuple[str, str, Callable[[dict[str, Group]], Header]], ...] = (
    ("packages/tensor-ops-cpp/native/kernels/constants.h", "cpp", cpp),
    ("packages/tensor-ops-cuda/native/kernels/constants.cuh", "cuda", cuda),
    ("packages/tensor-ops-opencl/src/tensor_ops_opencl/ops/constants.clh", "opencl", opencl),
)


def structs(group: Group, arguments: str, member: Callable[[str, str, Any], Header]) -> Header:
    """Yield a specialization for each type that has the constants of a group."""
    for dtype, c_type in C_TYPES.items():
        if dtype in group:
            yield f"template <>\nstruct {group['struct']}<{c_type}{arguments}> {{"
            for name, value in group[dtype].items():
                yield from member(c_type, name, value)
            yield "};"


def comment(group: Group) -> str:
    return textwrap.indent(textwrap.fill(group["comment"].strip(), 97), "// ")


def wrapped(line: str) -> str:
    indent = " " * (len(line) - len(line.lstrip()))
    return textwrap.fill(line, 100, subsequent_indent=indent + "    ")


def parts(value: Any) -> list[tuple[str, Any]]:
    """Return the numbers of a constant, each with what is added to the constant's name."""
    return [("Hi", value["hi"]), ("Lo", value["lo"])] if isinstance(value, dict) else [("", value)]


def numbers(values: list[Any], c_type: str) -> str:
    return ", ".join(number(value, c_type) for value in values)


def number(value: str | int, c_type: str) -> str:
    """Return a literal: the table's own text of it, of a floating-point type."""
    text = f"{value}.0" if isinstance(value, int) else value
    return text + ("f" if c_type == "float" else "")


if __name__ == "__main__":
    main()
