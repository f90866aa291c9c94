"""Declarations of kinds of nodes are checked when they are made; sizes are read as written."""

import pytest

from tensor_ops_decode.errors import ProgramError
from tensor_ops_decode.kinds.kind import (
    Attribute,
    Input,
    KeysAndValues,
    Kind,
    Output,
    Relation,
    Weight,
)
from tensor_ops_decode.kinds.sizes import DimensionVariables


def kind(**given):
    settings = {"inputs": (Input("x", "K"),), "outputs": (Output("output", "K"),)}
    return Kind("kind", "", lambda call: None, lambda *of: None, **{**settings, **given})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"outputs": (Output("output", "N"),)}, "N"),
        ({"outputs": (Output("output", ""),)}, "no columns"),
        ({"outputs": (Output("x", "K"),)}, "same name"),
        ({"inputs": (Input("x", "2k"),)}, "2k"),
        ({"inputs": (Input("x", "K+"),)}, r"K\+"),
        ({"inputs": (Input("x", "HD"),)}, "HD"),
        ({"inputs": ()}, "there must be an input"),
        ({"inputs": (Input("x", "K", "int32", below="V"),)}, "V"),
        ({"relations": (Relation("A", "at most", "K"),)}, "A"),
        ({"attributes": (Attribute("size", int, least=0, letter="S"),)}, "at least 1"),
        ({"attributes": (Attribute("rotation", str),)}, "rotation must have choices"),
        ({"weights": (Weight("weight", "lookup", "V", "K"),)}, "int32 input"),
        ({"weights": (Weight("weight", "lookup", "V", "K", chosen_by="x"),)}, "int32 input"),
        ({"weights": (Weight("bias", "biases", "N"),)}, "no matrices"),
        ({"weights": (Weight("norm", "vector", "K"),), "together": (("norm",),)}, "optional"),
        ({"cache": KeysAndValues("G", "D", "D", window="window")}, "window"),
        # The size of the output is decided by a slot that may be missing.
        (
            {
                "weights": (Weight("norm", "vector", "N", optional=True),),
                "outputs": (Output("output", "N"),),
            },
            "N",
        ),
    ],
)
def test_a_wrong_declaration_is_an_error(given, words):
    with pytest.raises(ValueError, match=words):
        kind(**given)


def test_the_first_slot_decides_what_a_letter_is():
    letters = DimensionVariables("node", 64)
    letters.match("2F", 10, "columns of x")
    letters.match("", 7, "columns of any")
    letters.match("D", 3, "head_size")
    assert letters.value("FD+2D+1") == 22
    with pytest.raises(ProgramError, match="node: the columns of y must be 16, got 15"):
        letters.match("FD+1", 15, "columns of y")
    with pytest.raises(ProgramError, match="the columns of z must be a multiple of 2, got 9"):
        letters.match("2G", 9, "columns of z")


def test_relations_are_told_in_words():
    letters = DimensionVariables("node", 64)
    letters.match("A", 5, "columns of cos")
    letters.require(Relation("2A", "at most", "D"))  # which nothing has decided
    letters.match("D", 8, "head_size")
    message = r"2 \* columns of cos must be at most head_size, got 10 and 8"
    with pytest.raises(ProgramError, match=message):
        letters.require(Relation("2A", "at most", "D"))
    message = r"head_size must be at least limits.max_seq_length, got 8 and 64"
    with pytest.raises(ProgramError, match=message):
        letters.require(Relation("D", "at least", "P"))
