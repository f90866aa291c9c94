"""Run by every rank: each operator on DTensors, forward and backward, against one process."""

import torch
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import tensor_ops_torch
from tensor_ops.ops import OPS


def draw(*shape):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator)


def calls():
    """Yield an operator, its arrays and a placement for each: rows are whole, elements anywhere."""
    x, rows = (4, 6, 8), [Shard(0), Shard(1), Replicate()]
    shapes = {"rows": x, "elements": x, "row_vector": x[2:], "half_rows": (x[1], x[2] // 2)}
    for name, op in OPS.items():
        names = [argument for argument, kind in op.kinds.items() if kind.is_array]
        kinds = [op.kinds[argument] for argument in names]
        arrays = [draw(*shapes[kind.role]) / (k + 1) for k, kind in enumerate(kinds)]
        is_elementwise = kinds[0].role == "elements"
        for place in [*rows, Shard(2)] if is_elementwise else rows:
            placements = [place if kind.is_full else Replicate() for kind in kinds]
            yield name, arrays, placements
            required = sum(not kind.optional for kind in kinds)
            if required < len(kinds):
                yield name, arrays[:required], placements[:required]
            for wide in op.mixtures:
                halves = zip(names, arrays, strict=True)
                mixed = [each if argument in wide else each.bfloat16() for argument, each in halves]
                yield name, mixed, placements
    # Such shards have to be brought together before rows are whole.
    yield "rms_norm", (draw(*x), draw(8)), (Shard(2), Shard(0))


def results(function, arrays):
    found = function(*arrays)
    found = found if isinstance(found, tuple) else (found,)
    loss = sum((each * (index + 2)).square().sum() for index, each in enumerate(found))
    return [*found, *torch.autograd.grad(loss, arrays)]


def bounds_of_sums(name, arrays, expected):
    """Return how far results may be apart where there are sums over the rows of each rank.

    They are rounded, to half types too, before they are added up; terms of what follows may cancel.
    """
    op = OPS[name]
    if all(op.kinds[like].is_full for like in op.results_like):
        return {}
    relative = 4e-2 if any(each.dtype is torch.bfloat16 for each in arrays) else 2e-6
    return {"rtol": relative, "atol": relative * expected.abs().max().item()}


def check_operators(mesh):
    for name, arrays, placements in calls():
        function = getattr(tensor_ops_torch, name)
        whole = [each.clone().requires_grad_() for each in arrays]
        sharded = [
            distribute_tensor(each, mesh, [placement]).requires_grad_()
            for each, placement in zip(arrays, placements, strict=True)
        ]
        expected = results(function, whole)
        found = results(function, sharded)
        assert all(isinstance(each, DTensor) for each in found), name
        if placements[0] == Shard(0):
            assert found[0].placements == (Shard(0),), (name, found[0].placements)
        for one, other in zip(found, expected, strict=True):
            bounds = bounds_of_sums(name, arrays, other)
            torch.testing.assert_close(one.full_tensor(), other, **bounds)
    print("every operator agrees", flush=True)
