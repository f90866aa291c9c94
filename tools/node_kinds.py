"""Write what the kinds of nodes and the types of tensors declare, for the executors in C++.

Run ``python tools/node_kinds.py`` after a change of ``tensor_ops_decode/nodes`` or of
``tensor_ops_decode/weights/formats``, which it reads. A test compares the files with what this
script would write.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tensor_ops_decode.kinds.kind import Attribute, KeysAndValues, Kind
from tensor_ops_decode.nodes import KINDS
from tensor_ops_decode.weights.formats import FORMATS
from tensor_ops_decode.weights.formats.codebooks import CODEBOOKS

__all__ = ["files", "node_kinds", "node_slots"]

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "native/decode/program"
CODEBOOKS_IN_CPP = ROOT / "packages/tensor-ops-cpp/native/decode/products/codebooks.cpp"
INTRODUCTION = """\
// {what} Written by tools/node_kinds.py:
// change {source} and run that instead of changing this file.
"""
NODES = "tensor_ops_decode/nodes"
C_TYPES = {int: "std::int64_t", float: "double"}
HOW = {"at least": "kAtLeast", "at most": "kAtMost", "a multiple of": "kMultipleOf"}
ATTRIBUTE_TYPES = {int: "kInteger", float: "kNumber", str: "kChoice"}
Lines = Iterator[str]


def main() -> None:
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")


def files() -> dict[Path, str]:
    """Return the text of each file by its path."""
    kinds = sorted(KINDS.values(), key=lambda kind: kind.name)
    texts = {
        "node_kinds.cpp": node_kinds(kinds),
        "node_slots.h": node_slots(kinds),
        "tensor_types.cpp": tensor_types(),
        str(CODEBOOKS_IN_CPP): codebooks(),
    }
    return {FOLDER / name: "".join(f"{line}\n" for line in lines) for name, lines in texts.items()}


def node_kinds(kinds: Iterable[Kind]) -> Lines:
    """Yield the table of all kinds, sorted by name."""
    yield INTRODUCTION.format(what="The kinds of nodes.", source=NODES)
    yield '#include "decode/program/node_kind.h"'
    yield '#include "decode/program/node_slots.h"\n'
    yield "// clang-format off\nnamespace tensor_ops::decode {\n"
    for kind in kinds:
        size = f"{len(kind.attributes)} * sizeof(std::int64_t)"
        if kind.attributes:
            yield f"static_assert(sizeof({camel(kind.name)}Node::Attributes) == {size});"
    yield "\nconst std::vector<NodeKind>& node_kinds() {"
    yield "  static const std::vector<NodeKind> kinds{"
    for kind in kinds:
        yield from entry(kind)
    yield "  };\n  return kinds;\n}\n\n}  // namespace tensor_ops::decode"


def entry(kind: Kind) -> Lines:
    """Yield the entry of one kind, without members at the end that have their default."""
    known = ("selects", "draws", "exchanges")
    roles = [kind.role] if kind.role else []
    traits = [f"k{camel(what)}" for what in [*(w for w in known if getattr(kind, w)), *roles]]
    members = [
        rows(row(each.name, each.columns, element(each.dtype), each.below) for each in kind.inputs),
        rows(
            row(each.name, each.columns, element(each.dtype), each.below) for each in kind.outputs
        ),
        rows(
            row(
                each.name,
                Word(f"WeightForm::k{camel(each.form)}"),
                need(each.optional),
                each.of or each.chosen_by,
                each.rows,
                each.columns,
                each.planes,
                keep=5,
            )
            for each in kind.weights
        ),
        rows(map(attribute, kind.attributes)),
        cache(kind),
        rows(
            row(each.left, Word(f"Relation::{HOW[each.how]}"), each.right, keep=3)
            for each in kind.relations
        ),
        rows(row(*names, keep=len(names)) for names in kind.together),
    ]
    while members[-1] == ["{}"]:
        members.pop()
    lines = [f'{{"{kind.name}", {" | ".join(traits) or "kNoTraits"}']
    for member in members:
        lines[-1] += ","
        lines += [f" {line}" for line in member]
    lines[-1] += "},"
    yield from (f"    {line}" for line in lines)


class Word(str):
    """A name in C++, which is not quoted."""


def element(dtype: str) -> Word:
    return Word(f"Element::k{dtype.capitalize()}")


def need(optional: bool) -> Word:
    return Word("Need::kOptional" if optional else "Need::kRequired")


def attribute(each: Attribute) -> str:
    least = Word("kNoLeast" if each.least is None else repr(float(each.least)))
    choices = Word(row(*each.choices, keep=len(each.choices)))
    type_ = Word(f"AttributeType::{ATTRIBUTE_TYPES[each.type]}")
    return row(each.name, type_, each.letter, least, choices)


def cache(kind: Kind) -> list[str]:
    if kind.cache is None:
        return ["{}"]
    form = "kKeysAndValues" if isinstance(kind.cache, KeysAndValues) else "kState"
    sizes = [size for size, _ in kind.cache.sizes]
    written = [] if kind.writes_cache else [Word("true")]
    sizes_of_all = Word(row(*sizes, keep=len(sizes)))
    return [row(Word(f"CacheForm::{form}"), sizes_of_all, kind.window, *written)]


DEFAULTS = {"", "Element::kFloat32", "Need::kRequired", "kNoLeast", "{}"}


def row(*members: str, keep: int = 2) -> str:
    """Return members in braces, without those behind `keep` that are defaults up to the end."""
    while len(members) > keep and members[-1] in DEFAULTS:
        members = members[:-1]
    words = [each if isinstance(each, Word) else f'"{each}"' for each in members]
    return f"{{{', '.join(words)}}}"


def rows(each: Iterable[str]) -> list[str]:
    """Return the lines of a list of rows."""
    first, *others = list(each) or [""]
    lines = [f"{{{first}", *(f" {line}" for line in others)]
    return [f"{line}," for line in lines[:-1]] + [f"{lines[-1]}}}"]


def node_slots(kinds: Iterable[Kind]) -> Lines:
    """Yield a struct for each kind: the numbers of its slots, and its attributes."""
    what = "The slots of each kind of node, and its attributes."
    yield INTRODUCTION.format(what=what, source=NODES) + "#pragma once\n"
    yield "#include <cstddef>\n#include <cstdint>\n"
    yield "// clang-format off\nnamespace tensor_ops::decode {"
    for kind in kinds:
        yield f"\nstruct {camel(kind.name)}Node {{"
        for what, slots in (("Input", kind.inputs), ("Output", kind.outputs)):
            yield numbers(what, slots)
        if kind.weights:
            yield numbers("Weight", kind.weights)
        if kind.attributes:
            yield from attributes(kind)
        yield "};"
    yield "\n}  // namespace tensor_ops::decode"


def numbers(what: str, slots: Iterable[Any]) -> str:
    names = ", ".join(f"k{camel(slot.name)}" for slot in slots)
    return f"  enum {what} : std::size_t {{ {names} }};"


def attributes(kind: Kind) -> Lines:
    for each in kind.attributes:
        if each.type is str:
            names = ", ".join(f"k{camel(choice)}" for choice in each.choices)
            yield f"  enum class {camel(each.name)} : std::int64_t {{ {names} }};"
    yield "  struct Attributes {"
    for each in kind.attributes:
        yield f"    {C_TYPES.get(each.type, camel(each.name))} {each.name};"
    yield "  };"


def tensor_types() -> Lines:
    yield INTRODUCTION.format(
        what="How the rows of tensors are stored.", source="tensor_ops_decode/weights/formats/"
    )
    yield '#include "decode/program/tensor_type.h"\n'
    yield "// clang-format off\nnamespace tensor_ops::decode {\n"
    yield "const std::vector<TensorType>& tensor_types() {"
    yield "  static const std::vector<TensorType> types{"
    for name, form in sorted(FORMATS.items()):
        yield f'    {{"{name}", {form.block_size}, {form.block_bytes}}},'
    yield "  };\n  return types;\n}\n\n}  // namespace tensor_ops::decode"


def codebooks() -> Lines:
    yield INTRODUCTION.format(
        what="The codebooks of GGML.", source="tensor_ops_decode/weights/formats/codebooks.py"
    )
    yield '#include "decode/products/codebooks.h"\n'
    yield "// clang-format off\nnamespace tensor_ops {\n"
    for name, entries in CODEBOOKS.items():
        yield f"const std::uint16_t {name}_codebook[{len(entries)}] = {{"
        for start in range(0, len(entries), 16):
            yield "  " + " ".join(f"{each}," for each in entries[start : start + 16])
        yield "};\n"
    yield "}  // namespace tensor_ops"


def camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.replace(" ", "_").split("_"))


if __name__ == "__main__":
    main()
