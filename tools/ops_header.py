"""Write the methods of the ops for C++ programs: tensor_ops/backend/ops.h.

Run ``python tools/ops_header.py`` after a change of ``native/declaration/ops``, whose files a C++
compiler (``$CXX``, or ``c++``) reads for it. A test compares the header with what it would write.
"""

import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["HEADER", "OPS", "Op", "Parameter", "declared_ops", "header"]

NATIVE = Path(__file__).parents[1] / "native"
OPS = NATIVE / "declaration/ops"
WIDTH = 100
HEADER = NATIVE / "include/tensor_ops/backend/ops.h"
# In the order of the enumeration in declaration.h, with what the method says of such an array.
ARRAYS = {
    "rows": "",
    "row": " A row.",
    "optional_row": " A row, or {} for none.",
    "half_rows": " Half as long as x along the last axis.",
}
KINDS = (*ARRAYS, "scalar", "choice", "flag")
# Prints records, whose fields are separated by the character 31, and which end with 30.
PRINTER = """
int main() {
  using namespace tensor_ops;
  const auto print = [](const auto&... fields) {
    ((std::cout << fields << '\\x1f'), ...) << '\\x1e';
  };
  for (const Declaration& op : DECLARATIONS) {
    print("op", op.name, op.summary, op.formula);
    for (const Parameter& each : op.parameters) {
      const auto [first, second] = each.choices;
      print("parameter", each.name, each.description, static_cast<int>(each.kind),
            each.default_value, first ? first : "", second ? second : "");
    }
    for (const Output& each : op.outputs) print("output", each.name, each.description);
  }
}
"""
BEFORE = """\
// The methods of the ops. Written by tools/ops_header.py: change native/declaration/ops and run
// that instead of changing this file.
#pragma once

#include "tensor_ops/abi.h"
#include "tensor_ops/backend/array.h"
#include "tensor_ops/backend/call.h"

// clang-format off
namespace tensor_ops::backend {
"""
CLASS = """
// The ops as methods of a backend. Outputs come after the inputs, and have the shape of the first
// input; one may be exactly the array that an input of that shape is.
template <class Self>
class Ops {
 public:"""
AFTER = """
 protected:
  ~Ops() = default;

 private:
  const Self& self() const { return static_cast<const Self&>(*this); }
};

}  // namespace tensor_ops::backend"""
Lines = Iterator[str]


class Parameter(NamedTuple):
    name: str
    description: str
    kind: str
    default: float = 0.0  # of a scalar
    choices: tuple[str, str] = ("", "")  # of a choice; the first is the default

    @property
    def is_array(self) -> bool:
        return self.kind in ARRAYS


class Op(NamedTuple):
    name: str
    summary: str
    formula: str
    parameters: list[Parameter]
    outputs: dict[str, str]  # their descriptions, by their names


def main() -> None:
    HEADER.write_text(header(declared_ops()), encoding="utf-8")


def declared_ops(folder: Path = OPS) -> list[Op]:
    """Return what the files of a folder declare, as a C++ compiler reads it."""
    paths = sorted(folder.glob("[!_]*.h"))  # the others are for tests
    names = ", ".join(f"declarations::{path.stem}" for path in paths)
    lines = [f'#include "{path}"' for path in paths]
    program = PRINTER.replace("DECLARATIONS", f"{{{names}}}")
    ops: list[Op] = []
    with tempfile.TemporaryDirectory() as place:
        source, executable = Path(place, "printer.cpp"), Path(place, "printer")
        source.write_text("\n".join(["#include <iostream>", *lines, program]), encoding="utf-8")
        compiler = os.environ.get("CXX", "c++")
        options = ["-std=c++17", f"-I{NATIVE}", str(source), "-o", str(executable)]
        subprocess.run([compiler, *options], check=True)
        printed = subprocess.run([executable], check=True, capture_output=True, encoding="utf-8")
    for record in printed.stdout.split("\x1e")[:-1]:
        what, name, text, *others = record.split("\x1f")[:-1]
        if what == "op":
            ops.append(Op(name, text, others[0], [], {}))
        elif what == "output":
            ops[-1].outputs[name] = text
        else:
            kind, default, first, second = others
            parameter = Parameter(name, text, KINDS[int(kind)], float(default), (first, second))
            ops[-1].parameters.append(parameter)
    return ops


def header(ops: Iterable[Op]) -> str:
    """Return the text of ops.h."""
    return "".join(f"{line}\n" for line in lines_of(list(ops)))


def lines_of(ops: list[Op]) -> Lines:
    yield BEFORE.rstrip("\n")
    yield from enumerations(ops)
    yield CLASS
    for i, op in enumerate(ops):
        if i > 0:
            yield ""
        yield from method(op)
    yield AFTER


def enumerations(ops: Iterable[Op]) -> Lines:
    """Yield an enumeration for each parameter that is a choice, which ops share by its name."""
    seen: dict[str, tuple[str, str]] = {}
    for op in ops:
        for each in op.parameters:
            if each.kind != "choice":
                continue
            if seen.setdefault(each.name, each.choices) != each.choices:
                message = f"{op.name}: {each.name!r} has other words than in an op before"
                raise ValueError(f"{message}: give it a new name")
    for name, choices in seen.items():
        words = ", ".join(f"k{camel(choice)}" for choice in choices)
        yield f"\n// The words of the parameter `{name}`.\nenum class {camel(name)} {{ {words} }};"


def method(op: Op) -> Lines:
    inputs = [each for each in op.parameters if each.is_array]
    settings = [each for each in op.parameters if not each.is_array]
    scalars = [each.name for each in settings if each.kind == "scalar"]
    choice, *others = [chosen(each) for each in settings if each.kind != "scalar"] or ["0"]
    if others:
        raise ValueError(f"{op.name} has two choices or flags: the C interface has room for one")
    notes = [f"{each.name}: {each.description}{ARRAYS[each.kind]}" for each in inputs]
    notes += [f"{name}: {description}" for name, description in op.outputs.items()]
    notes += [f"{each.name}: {each.description}" for each in settings]
    formula = [f"    {line.strip()}" for line in op.formula.splitlines() if line]
    for line in (op.summary, "", *formula, "", *notes):
        yield f"  // {line}".rstrip()
    parameters = [f"const ConstArray& {each.name}" for each in inputs]
    parameters += [f"const Array& {name}" for name in op.outputs]
    parameters += [*map(setting, settings), "CallOptions options = {}"]
    lists = ([f"{each.name}.abi()" for each in inputs], [f"{n}.abi()" for n in op.outputs], scalars)
    arguments = [f'"{op.name}"', *(f"{{{', '.join(each)}}}" for each in lists), choice, "options"]
    yield from filled(f"  void {op.name}(", parameters, ") const {")
    yield from filled("    self().run_op(", arguments, ");")
    yield "  }"


def filled(opening: str, words: list[str], closing: str) -> Lines:
    """Yield words with commas between them, in as few lines as they fit into."""
    line, indent = opening, " " * (len(opening) - len(opening.lstrip()) + 4)
    *others, last = words
    for word in [*(f"{each}, " for each in others), f"{last}{closing}"]:
        if len(line) + len(word.rstrip()) > WIDTH:
            yield line.rstrip()
            line = indent
        line += word
    yield line


def setting(each: Parameter) -> str:
    if each.kind == "choice":
        return f"{camel(each.name)} {each.name} = {camel(each.name)}::k{camel(each.choices[0])}"
    return (
        f"bool {each.name} = false"
        if each.kind == "flag"
        else f"double {each.name} = {each.default}"
    )


def chosen(each: Parameter) -> str:
    """Return the number of a choice or flag in the C interface."""
    return f"static_cast<int>({each.name})" if each.kind == "choice" else f"{each.name} ? 1 : 0"


def camel(name: str) -> str:
    return "".join(word[:1].upper() + word[1:] for word in name.split("_"))


if __name__ == "__main__":
    main()
