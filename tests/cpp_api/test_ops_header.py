"""The header of the ops' methods is made of the declarations, and of nothing else."""

import inspect
import re

import pytest
from cpp_programs import OPS, make_ops_header

import tensor_ops

KINDS = {"const ConstArray&": "array", "const Array&": "output", "double": "number", "bool": "flag"}


@pytest.fixture(scope="module")
def methods(generated):
    """By its name, the parameters of each method as pairs of type and name, with the defaults."""
    text = (generated / "tensor_ops/backend/ops.h").read_text(encoding="utf-8")
    assert max(map(len, text.splitlines())) <= 100
    found = {}
    for name, written in re.findall(r"\n  void (\w+)\(([^)]*)\) const", text):
        parameters = [" ".join(each.split()) for each in written.split(",")]
        assert parameters.pop() == "CallOptions options = {}"
        pattern = r"(const \w+&|\w+) (\w+)(?: = (.*))?"
        found[name] = [re.fullmatch(pattern, each).groups() for each in parameters]
    return found


def test_every_op_of_the_backend_has_a_method(methods):
    assert sorted(methods) == sorted(path.stem for path in OPS.glob("[!_]*.cpp"))
    assert {*methods} <= {*tensor_ops.list_ops()}


@pytest.mark.parametrize("name", sorted(path.stem for path in OPS.glob("[!_]*.cpp")))
def test_methods_take_what_the_ops_of_python_take(methods, name):
    signature = inspect.signature(getattr(tensor_ops, name)).parameters
    settings = [name for name in signature if name not in ("out", "backend")]
    types = [KINDS.get(kind, "choice") for kind, _, _ in methods[name]]
    given = [each for each in methods[name] if each[0] != "const Array&"]
    assert [each for _, each, _ in given] == settings
    # Outputs come after the inputs and before what has a default value.
    order = ["array", "output", "number", "choice", "flag"]
    assert types == sorted(types, key=order.index)
    for kind, parameter, default in given:
        of_python = signature[parameter].default
        if kind == "double":
            assert float(default) == of_python
        elif kind == "bool":
            assert (default, of_python) == ("false", False)
        elif default is not None:
            assert default == f"{kind}::k{of_python.capitalize()}"


def declaration(parameters='rows("x", "Input.")', name="one", outputs='{"y", "Result."}', end=""):
    return f"""\
namespace tensor_ops {{
// A comment with DECLARE_OP without a bracket.
DECLARE_OP(one, nanoseconds(0.1, 0.2, 0.3, 0.4),
           {{
               "{name}", Walk::kElements,
               "Summary; with a \\"quote\\" and " // a comment
               "[brackets].", "y = f(x)\\n    z = \\\\x",
               {{{parameters}}}, {{{outputs}}}, "Notes.",
           }}){end}
}}
"""


def made(folder, *texts):
    for index, text in enumerate(texts):
        (folder / f"{index}.cpp").write_text(text, encoding="utf-8")
    header = folder / "include/ops.h"
    return make_ops_header(header, folder), header


def test_texts_become_comments(tmp_path):
    result, header = made(tmp_path, declaration())
    assert result.returncode == 0, result.stderr
    text = header.read_text(encoding="utf-8")
    assert (
        '  // Summary; with a "quote" and [brackets].\n  //\n  //     y = f(x)\n  //     z = '
        in text
    )
    assert "void one(\n      const ConstArray& x,\n      const Array& y,\n" in text


def test_a_header_that_is_up_to_date_is_left_alone(tmp_path):
    _, header = made(tmp_path, declaration())
    before = header.stat().st_mtime_ns
    made(tmp_path, declaration())
    assert header.stat().st_mtime_ns == before
    made(tmp_path, declaration(outputs='{"z", "Result."}'))
    assert "const Array& z" in header.read_text(encoding="utf-8")


WRONG = {
    "a parameter of an unknown kind": (
        declaration('columns("x", "Input.")'),
        "a parameter is declared with 'columns', which is unknown here",
    ),
    "more arguments": (declaration('rows("x", "Input.", 3)'), 'rows("x", ...) has more arguments'),
    "fewer arguments": (declaration('scalar("x", "Input.")'), "expected a name or a number"),
    "another name": (declaration(name="two"), "its declaration is of 'two'"),
    "no name of an output": (declaration(outputs="{y}"), "expected a string, got 'y'"),
    "two choices": (
        declaration('choice("a", "b", "c", ""), keyword_flag("d", "")'),
        "it has two choices or flags",
    ),
    "an operator": (declaration('rows("x", 1 ? "a" : "b")'), "expected a string"),
    "an end that is missing": ('DECLARE_OP(one, 1, {"one", kRows', "cannot read what begins with"),
    "no declaration": ("int main() {}", "has no DECLARE_OP("),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_not_understood_stops_the_build(tmp_path, what):
    text, words = WRONG[what]
    result, header = made(tmp_path, text)
    assert result.returncode != 0
    said = " ".join(result.stderr.split())
    assert words in said
    assert "0.cpp: " in said
    assert not header.exists()


def test_one_name_of_a_choice_with_other_words_stops_the_build(tmp_path):
    first, second = (declaration(f'choice("a", "b", "{word}", "")') for word in ("c", "d"))
    result, _ = made(tmp_path, first, second)
    assert "'a' has other words than in an op before" in " ".join(result.stderr.split())


def test_a_folder_without_ops_stops_the_build(tmp_path):
    result, _ = made(tmp_path)
    assert "has no op: set DECLARATIONS" in " ".join(result.stderr.split())
    assert OPS.is_dir()
