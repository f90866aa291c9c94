"""A sequence by itself has the bits that it has among others, in models whose modules are swapped.

PyTorch's own matrix products do depend on the batch, so those of a model are replaced here by
products of one row each, and its softmax, too, gets one row at a time. What is left of a model
then gives the same bits for a sequence by itself and for the same sequence among others.
"""

import itertools
import os

import pytest
import torch
from same_bits import MODES, assert_same
from torch import nn
from torch.nn import functional

import tensor_ops
from tensor_ops_torch import swap_modules

os.environ["HF_HUB_OFFLINE"] = "1"

import transformers
from transformers.models.bert import modeling_bert
from transformers.models.gpt2 import modeling_gpt2
from transformers.models.llama import modeling_llama
from transformers.pytorch_utils import Conv1D

pytest.importorskip("tensor_ops_cpp")
# Two threads where the kernels have two would wait for each other.
pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = {
    "hidden_size": 60,
    "intermediate_size": 100,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 99,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
    "attn_implementation": "eager",
}
GPT2 = {
    "n_embd": 60,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 32,
    "vocab_size": 99,
    "bos_token_id": 1,
    "eos_token_id": None,
    "attn_implementation": "eager",
}
# The model, its configuration, where its attention is, and how many modules each op computes.
MODELS = {
    "Llama": (
        ("LlamaForCausalLM", "LlamaConfig", SMALL | {"num_key_value_heads": 2, "head_dim": 14}),
        modeling_llama,
        {"rms_norm": 5, "silu_mul": 2, "silu": 2},
    ),
    "BERT": (
        ("BertForMaskedLM", "BertConfig", SMALL),
        modeling_bert,
        {"layer_norm": 6, "gelu": 3},
    ),
    "GPT-2": (
        ("GPT2LMHeadModel", "GPT2Config", GPT2),
        modeling_gpt2,
        {"layer_norm": 5, "gelu": 2},
    ),
}
LENGTH = 7


def product_by_rows(x, weight, bias=None):
    """Multiply each row by a matrix, by itself."""
    # Vectors of their own have one alignment, and float32 does not depend on what oneDNN has.
    wide = weight.float()
    rows = [wide @ row.float().clone() for row in x.reshape(-1, x.shape[-1])]
    y = torch.stack(rows).to(x.dtype).view(*x.shape[:-1], weight.shape[0])
    return y if bias is None else y + bias


def linear(self, x):
    return product_by_rows(x, self.weight, self.bias)


def conv1d(self, x):
    return product_by_rows(x, self.weight.t().contiguous(), self.bias)


def attention(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **kwargs):
    """Eager attention of one query at a time."""
    groups = query.shape[1] // key.shape[1]
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    rows = []
    for b, head in itertools.product(*map(range, query.shape[:2])):
        keys, values = key[b, head // groups], value[b, head // groups].t().contiguous()
        for i, row in enumerate(query[b, head]):
            scores = product_by_rows(row, keys.contiguous()) * scaling
            if attention_mask is not None:
                scores = scores + attention_mask[b, 0, i]
            weights = functional.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
            rows.append(product_by_rows(weights, values))
    return torch.stack(rows).view(query.shape).transpose(1, 2).contiguous(), None


@pytest.fixture
def products_by_rows(monkeypatch):
    monkeypatch.setattr(nn.Linear, "forward", linear)
    monkeypatch.setattr(Conv1D, "forward", conv1d)
    for _, where, _ in MODELS.values():
        monkeypatch.setattr(where, "eager_attention_forward", attention)


@pytest.mark.parametrize("backend", ["cpp", "python"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_a_sequence_by_itself(name, dtype, backend, products_by_rows):
    (kind, config, settings), _, counts = MODELS[name]
    torch.manual_seed(0)
    model = getattr(transformers, kind)(getattr(transformers, config)(**settings)).to(dtype).eval()
    assert swap_modules(model, strict=True).counts == counts
    tokens = torch.randint(3, 99, (8, LENGTH), generator=torch.Generator().manual_seed(1))
    with tensor_ops.use_backend(backend):
        with torch.no_grad():
            wanted = model(tokens).logits
        for (mode, grad), i in itertools.product(MODES.items(), (0, 5)):
            with grad():
                found = model(tokens[i : i + 1]).logits
            assert found.requires_grad == (mode == "grad")
            assert_same(found, wanted[i : i + 1], f"sequence {i}, {mode}")
        assert_same(model(tokens).logits, wanted, "all, grad")
