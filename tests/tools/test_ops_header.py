"""The header of the ops' methods is what their declarations say."""

import pytest

import ops_header
from ops_header import HEADER, Op, Parameter, declared_ops, header


def test_the_header_is_that_of_the_declarations():
    expected = header(declared_ops())
    assert HEADER.read_text(encoding="utf-8") == expected, "run python tools/ops_header.py"


DECLARATION = r"""
#include "declaration/declaration.h"
namespace tensor_ops::declarations {
const Declaration one{
    "one", Walk::kElements, "Summary; with a \"quote\" and " /* a comment */ "[brackets].",
    "y = f(x)\n    z = \\x",
    {rows("x", "Input."), optional_row("w", "Weight."), scalar("a", -0.5, "A number."),
     choice("way", "up", "down", "Where to.")},
    {{"y", "Result."}, {"z", "Another.", 1}}, "Notes.",
};
}
"""


def test_a_declaration_is_read_as_the_compiler_reads_it(tmp_path):
    (tmp_path / "one.h").write_text(DECLARATION, encoding="utf-8")
    assert declared_ops(tmp_path) == [
        Op(
            "one",
            'Summary; with a "quote" and [brackets].',
            "y = f(x)\n    z = \\x",
            [
                Parameter("x", "Input.", "rows"),
                Parameter("w", "Weight.", "optional_row"),
                Parameter("a", "A number.", "scalar", -0.5),
                Parameter("way", "Where to.", "choice", choices=("up", "down")),
            ],
            {"y": "Result.", "z": "Another."},
        )
    ]


def op(*parameters):
    x = Parameter("x", "Input.", "rows")
    return Op("one", "Summary.", "y = f(x)\n    z = g(x)", [x, *parameters], {"y": "Result."})


def test_a_method_has_the_texts_as_comments():
    row = Parameter("w", "Weight.", "optional_row")
    text = header([op(row, Parameter("flip", "Backwards.", "flag"))])
    assert (
        "  // Summary.\n  //\n  //     y = f(x)\n  //     z = g(x)\n  //\n  // x: Input.\n" in text
    )
    assert (
        "  // w: Weight. A row, or {} for none.\n  // y: Result.\n  // flip: Backwards.\n" in text
    )
    assert (
        "  void one(const ConstArray& x, const ConstArray& w, const Array& y, bool flip = false,\n"
        "      CallOptions options = {}) const {\n"
        '    self().run_op("one", {x.abi(), w.abi()}, {y.abi()}, {}, flip ? 1 : 0, options);\n'
        in text
    )


def test_the_interface_has_room_for_one_choice():
    choice = Parameter("way", "Where to.", "choice", choices=("up", "down"))
    with pytest.raises(ValueError, match="one has two choices or flags"):
        header([op(choice, Parameter("flip", "Backwards.", "flag"))])


def test_ops_share_the_words_of_a_choice():
    one, other = (
        op(Parameter("way", "Where to.", "choice", choices=("up", second)))
        for second in ("down", "away")
    )
    assert header([one, one]).count("enum class Way { kUp, kDown };") == 1
    with pytest.raises(ValueError, match="'way' has other words than in an op before"):
        header([one, other])


def test_every_file_declares_the_op_of_its_name():
    assert [each.name for each in declared_ops()] == sorted(
        path.stem for path in ops_header.OPS.glob("[!_]*.h")
    )
