"""allgather: the columns of all ranks, side by side."""

import numpy as np

from tensor_ops_decode.kinds.kind import (
    Array,
    Attribute,
    Call,
    Input,
    Kind,
    Output,
    Relation,
    Sample,
)
from tensor_ops_decode.kinds.rounding import exact

__all__ = ["KIND"]


def gathered(call: Call) -> Array:
    x, columns, ranks = call.inputs["x"], call.attributes["num_columns"], call.num_ranks
    ends = [columns * rank // ranks for rank in range(ranks + 1)]
    most = -(-columns // ranks)
    parts = call.exchange(np.pad(x, (0, most - len(x))))
    sizes = np.diff(ends)
    return np.concatenate([part[:size] for part, size in zip(parts, sizes, strict=True)])


KIND = Kind(
    name="allgather",
    meaning="x of all ranks side by side; C*r//n up to C*(r+1)//n are the columns of rank r of n",
    compute=gathered,
    bound=exact,
    inputs=(Input("x", "K"),),
    outputs=(Output("output", "C"),),
    attributes=(Attribute("num_columns", int, 1, letter="C"),),
    relations=(Relation("K", "at most", "C"),),
    exchanges=True,
    samples=(Sample("one rank", {"x": 33}, attributes={"num_columns": 33}),),
)
