"""Shards of a program that exchange rows of tables, and steps of them."""

import numpy as np

from tensor_ops_decode import Builder, Limits, Tensor, reference

__all__ = ["COLUMNS", "LIMITS", "LOGITS", "WORDS", "compiled", "fill", "shard", "shards"]

WORDS, COLUMNS, LOGITS = 29, 40, 33
LIMITS = Limits(3, 12, 12, 64, 4, 48)


def columns_of(rank, world_size, columns=LOGITS):
    return columns * (rank + 1) // world_size - columns * rank // world_size


def shard(rank, world_size, *, num_sums=1, chooses=False):
    """Return a program of one rank and its tensors: sums, and columns side by side.

    A rank gives rows of tables, so that what all get is known bit for bit.
    """
    builder, tensors = Builder(LIMITS), {}

    def looked_up(name, columns):
        draw = np.random.default_rng([rank, *name.encode()])
        tensors[name] = draw.standard_normal((WORDS, columns)).astype(np.float32)
        tensor = builder.tensor(name, Tensor("f32", (WORDS, columns), {"attached": True}))
        return builder.add(
            "embed", {"tokens": "tokens"}, {"weight": tensor}, output=f"rows of {name}"
        )

    given = looked_up("given", COLUMNS)
    outputs = [builder.add("allreduce", {"x": given}, output=f"sum {i}") for i in range(num_sums)]
    rows = builder.add("select", {"x": given}, output="selected rows")
    outputs.append(builder.add("allreduce", {"x": rows}, output="selected sum"))
    part = looked_up("part", columns_of(rank, world_size))
    selected = builder.add("select", {"x": part}, output="selected part")
    attributes = {"num_columns": LOGITS}
    outputs.append(builder.add("allgather", {"x": selected}, None, attributes, output="logits"))
    if chooses:
        outputs.append(builder.add("argmax", {"x": "logits"}, output="next"))
    return builder.program(outputs), tensors


def shards(world_size, **given):
    return [shard(rank, world_size, **given) for rank in range(world_size)]


def compiled(executor, program, tensors, ranks, **given):
    if executor is reference:
        given.pop("num_workers", None)
    return executor.compile_program(program.to_json(), tensors, ranks=ranks, **given)


def fill(executable, tokens, selected=(), first=0):
    arrays, count = executable.arrays, len(tokens)
    arrays["tokens"][:count] = tokens
    arrays["positions"][:count] = np.arange(count) + first
    arrays["slots"][:count] = 0
    arrays["page_table"][:] = np.arange(arrays["page_table"].size).reshape(
        arrays["page_table"].shape
    )
    arrays["selected"][: len(selected)] = selected
