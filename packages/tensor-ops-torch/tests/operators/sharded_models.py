"""Run by every rank: models with swapped modules in shards, against one process without them."""

import copy
import os

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import LlamaConfig, LlamaForCausalLM

from tensor_ops_torch.modules import swap_modules, swap_report

SEED, BATCH, LENGTH = 0, 2, 8


class Block(nn.Module):
    """A norm, a gated MLP and what it is added to."""

    def __init__(self, n=16, inner=32):
        super().__init__()
        self.norm = nn.RMSNorm(n, eps=1e-6)
        self.mlp = Gated(n, inner)

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class Gated(nn.Module):
    def __init__(self, n, inner):
        super().__init__()
        self.gate_proj = nn.Linear(n, inner, bias=False)
        self.up_proj = nn.Linear(n, inner, bias=False)
        self.down_proj = nn.Linear(inner, n, bias=False)
        self.act_fn = nn.SiLU()

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class Seen(TorchDispatchMode):
    """Keeps the operators of ours that run."""

    def __init__(self):
        super().__init__()
        self.operators = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.namespace == "tensor_ops":
            self.operators.add(function.name().removeprefix("tensor_ops::"))
        return function(*args, **(kwargs or {}))


def llama():
    torch.manual_seed(SEED)
    config = LlamaConfig(
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=96,
        vocab_size=128,
    )
    return LlamaForCausalLM(config)


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def check(found, expected):
    torch.testing.assert_close(whole(found), expected, rtol=1e-4, atol=1e-6)


def check_step(model, reference, loss):
    """Compare loss and gradients."""
    with Seen() as seen:
        found = loss(model)
    assert seen.operators == {"rms_norm", "silu_mul"}
    expected = loss(reference)
    found.backward()
    expected.backward()
    check(found.detach(), expected.detach())
    gradients = {name: each.grad for name, each in reference.named_parameters()}
    for name, parameter in model.named_parameters():
        check(parameter.grad, gradients[name])


def language_loss(tokens):
    return lambda model: model(input_ids=tokens, labels=tokens).loss


def tensor_parallel_llama(mesh, swap_first):
    """The columns of what widens and the rows of what narrows are on different ranks."""
    reference = llama()
    model = copy.deepcopy(reference)
    plan = {}
    for name in ("q_proj", "k_proj", "v_proj"):
        plan[f"model.layers.*.self_attn.{name}"] = ColwiseParallel()
    plan["model.layers.*.self_attn.o_proj"] = RowwiseParallel()
    for name in ("gate_proj", "up_proj"):
        plan[f"model.layers.*.mlp.{name}"] = ColwiseParallel()
    plan["model.layers.*.mlp.down_proj"] = RowwiseParallel()
    if swap_first:
        swap_modules(model, strict=True)
    parallelize_module(model, mesh, plan)
    if not swap_first:
        swap_modules(model, strict=True)
    tokens = torch.randint(128, (BATCH, LENGTH), generator=torch.Generator().manual_seed(SEED))
    check_step(model, reference, language_loss(tokens))
    assert swap_report(model).counts == {"rms_norm": 5, "silu_mul": 2, "silu": 2}


def sequence_parallel_block(mesh):
    """The norm's rows are on different ranks too, and its weight is a DTensor."""
    torch.manual_seed(SEED)
    reference = Block()
    model = copy.deepcopy(reference)
    swap_modules(model, strict=True)
    plan = {
        "norm": SequenceParallel(),
        "mlp": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
        "mlp.gate_proj": ColwiseParallel(),
        "mlp.up_proj": ColwiseParallel(),
        "mlp.down_proj": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
    }
    parallelize_module(model, mesh, plan)
    x = torch.randn(BATCH, LENGTH, 16, generator=torch.Generator().manual_seed(SEED))
    own = x.chunk(mesh.size(), dim=1)[mesh.get_rank()].contiguous()
    sharded = DTensor.from_local(own, mesh, [Shard(1)])

    def loss(model):
        y = model(sharded if model is not reference else x)
        return whole(y.square().sum())

    check_step(model, reference, loss)
    assert isinstance(model.norm(sharded), DTensor)
    assert swap_report(model).counts == {"rms_norm": 1, "silu_mul": 1, "silu": 1}


def fully_sharded_llama(mesh):
    """Every parameter is in shards until its layer is computed."""
    reference = llama()
    model = copy.deepcopy(reference)
    swap_modules(model, strict=True)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    tokens = torch.randint(128, (BATCH, LENGTH), generator=torch.Generator().manual_seed(SEED))
    check_step(model, reference, language_loss(tokens))
    assert swap_report(model).counts == {"rms_norm": 5, "silu_mul": 2, "silu": 2}


def check_models(mesh):
    tensor_parallel_llama(mesh, swap_first=True)
    tensor_parallel_llama(mesh, swap_first=False)
    sequence_parallel_block(mesh)
    fully_sharded_llama(mesh)
    print("every model agrees", flush=True)
