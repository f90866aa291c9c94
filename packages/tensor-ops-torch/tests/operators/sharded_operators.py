"""Run by every rank: each operator on DTensors, forward and backward, against one process."""

import os

import torch
from torch import distributed
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, init_device_mesh

import tensor_ops_torch


def draw(*shape):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator)


def calls():
    """Yield name, arguments, and a placement for each array."""
    x, vector, rows = (4, 6, 8), draw(8), [Shard(0), Shard(1), Replicate()]
    whole = Replicate()
    for rows_at in rows:
        yield "rms_norm", (draw(*x), vector), (rows_at, whole)
        yield "add_rms_norm", (draw(*x), draw(*x) / 2, vector), (rows_at, rows_at, whole)
        yield "layer_norm", (draw(*x), vector, -vector), (rows_at, whole, whole)
        yield "layer_norm", (draw(*x), vector), (rows_at, whole)
        yield "softmax", (draw(*x), 0.5), (rows_at,)
        yield "rope", (draw(*x), draw(6, 4), draw(6, 4)), (rows_at, whole, whole)
    for anywhere in [*rows, Shard(2)]:
        yield "silu", (draw(*x),), (anywhere,)
        yield "gelu", (draw(*x), "none"), (anywhere,)
        yield "silu_mul", (draw(*x), draw(*x) + 1), (anywhere, anywhere)
        yield "gelu_mul", (draw(*x), draw(*x) + 1), (anywhere, anywhere)
    half, other = draw(*x).bfloat16(), draw(*x) / 2
    for rows_at in rows:
        yield "rms_norm", (half, vector), (rows_at, whole)
        yield "add_rms_norm", (half, other, vector), (rows_at, rows_at, whole)
        yield "add_rms_norm", (half, other, vector.bfloat16()), (rows_at, rows_at, whole)
        yield "layer_norm", (half, vector, -vector), (rows_at, whole, whole)
        yield "rope", (half, draw(6, 4), draw(6, 4)), (rows_at, whole, whole)
    # What has to be brought together before rows are whole.
    yield "rms_norm", (draw(*x), vector), (Shard(2), Shard(0))


def results(function, arguments):
    arrays = [each for each in arguments if isinstance(each, torch.Tensor)]
    found = function(*arguments)
    found = found if isinstance(found, tuple) else (found,)
    loss = sum((each * (index + 2)).square().sum() for index, each in enumerate(found))
    return [*found, *torch.autograd.grad(loss, arrays)]


def main():
    distributed.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
    for name, arguments, placements in calls():
        function = getattr(tensor_ops_torch, name)
        arrays = [each for each in arguments if isinstance(each, torch.Tensor)]
        scalars = arguments[len(arrays) :]
        whole = [each.clone().requires_grad_() for each in arrays]
        sharded = [
            distribute_tensor(each, mesh, [placement]).requires_grad_()
            for each, placement in zip(arrays, placements, strict=True)
        ]
        expected = results(function, (*whole, *scalars))
        found = results(function, (*sharded, *scalars))
        assert all(isinstance(each, DTensor) for each in found), name
        if placements[0] == Shard(0):
            assert found[0].placements == (Shard(0),), (name, found[0].placements)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one.full_tensor(), other)
    distributed.destroy_process_group()
    print("every operator agrees", flush=True)


if __name__ == "__main__":
    main()
    # Threads of torch.distributed outlive the group, and may abort an interpreter that ends.
    os._exit(0)
