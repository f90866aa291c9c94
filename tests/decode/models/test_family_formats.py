"""Models of every family in every format of weights: the tokens of transformers with the same ones.

A model is compared up to the first step whose two best logits are as good as equal.
"""

from itertools import cycle, islice

import numpy as np
import pytest
import torch

from gguf_models import write_gguf
from greedy_models import greedy, open_kernel
from node_programs import TYPES, holds, stored
from small_families import MODELS, ONLY_SAFETENSORS, small_model
from tensor_ops_decode.weights.formats import FORMATS

PROMPTS = [[3, 200, 17], list(range(40, 60))]
MORE_PROMPTS = [*PROMPTS, [7, 300]]
NEW_TOKENS = 16
# By what the activations are rounded to; as in test_llama_smollm2.py.
TIES = {"float32": 2e-3, "int8x2": 5e-2}
FAMILIES = [name for name in MODELS if name not in ONLY_SAFETENSORS]
GGML_TYPES = [name for name in TYPES if FORMATS[name].ggml_type is not None]
# Rows are whole blocks of every format, as are heads of values of linear attention, whose columns
# a GGUF file has in another order; and logits are so far below the cap that they stay apart.
SIZES = {
    "head_dim": 64,
    "query_pre_attn_scalar": 64,
    "final_logit_softcapping": 60.0,
    "linear_value_head_dim": 256,
}
# Every family and every format once.
PAIRS = zip(cycle(FAMILIES), cycle(GGML_TYPES), strict=True)
SAMPLE = list(islice(PAIRS, max(len(FAMILIES), len(GGML_TYPES))))


def quantized(model, kinds):
    """Store the matrices of a model in formats, which changes them; return their bytes."""
    found, kinds = {}, cycle(kinds)
    for name, parameter in model.named_parameters():
        matrix = parameter.detach()
        is_transposed = model.config.model_type == "gpt_oss" and matrix.ndim == 3
        if is_transposed:
            matrix = matrix.swapaxes(1, 2).contiguous()
        # No file has a quantized router, whose choices would be others.
        if matrix.ndim < 2 or ".gate." in name or ".router." in name or name.endswith("bias"):
            continue
        if holds(kind := next(kinds), matrix.shape[-1]):
            data = stored(matrix.numpy(), kind)
            rows = data.view(np.uint8).reshape(*matrix.shape[:-1], -1)
            values = torch.from_numpy(FORMATS[kind].dequantize(rows, matrix.shape[-1]))
            parameter.data = values.swapaxes(1, 2) if is_transposed else values
            found[name] = data, kind
    return found


@torch.no_grad()
def said(model, prompt):
    """Return the tokens of transformers, and how far ahead each was."""
    ids = torch.tensor([prompt])
    ids = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=NEW_TOKENS,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    first, second = model(ids[:, :-1]).logits[0, len(prompt) - 1 :].topk(2).values.T
    return ids[0, len(prompt) :].tolist(), (first - second).numpy()


def check(tmp_path, family, kinds, backend, activations, prompts=PROMPTS, *, in_float64=False):
    """Write a model to a GGUF file, and compare what is generated from that."""
    settings = MODELS[family][2]
    sizes = {name: value for name, value in SIZES.items() if name in settings}
    sizes |= {"hidden_size": 256, "intermediate_size": 256, "initializer_range": 0.15}
    if "moe_intermediate_size" in settings:
        sizes["moe_intermediate_size"] = 256
    model = small_model(family, **sizes)
    matrices = quantized(model, kinds)
    assert len(matrices) > 7
    write_gguf(model, tmp_path / "model.gguf", matrices)
    options = {"activations": activations, "num_workers": 1} if backend == "cpp" else {}
    with open_kernel(
        tmp_path / "model.gguf", backend=backend, cache_dtype="float32", **options
    ) as kernel:
        kernel.compile()
        found = greedy(kernel, prompts, NEW_TOKENS)
    if in_float64 and "num_experts_per_tok" in settings:
        # What float32 rounds chooses other experts where two are as good as equal.
        model.set_experts_implementation("eager")
        model.double()
    compared = 0
    for (tokens, _), prompt in zip(found, prompts, strict=True):
        right, margins = said(model, prompt)
        same = int(np.argmax(np.append(margins, 0) < TIES[activations]))
        assert tokens[:same] == right[:same]
        compared += same
    assert compared > 1, "the model ties at once: take another seed"


@pytest.mark.parametrize(("family", "kind"), SAMPLE)
def test_a_family_in_a_format_says_what_transformers_says(tmp_path, cpp, family, kind):
    check(tmp_path, family, [kind], cpp, "float32")


def test_a_file_may_have_every_type(tmp_path, backend):
    """Each of its matrices is of another type, those of one product too."""
    check(tmp_path, "Qwen 3", GGML_TYPES[::-1], backend, "float32")


@pytest.mark.nightly
@pytest.mark.parametrize("activations", TIES)
@pytest.mark.parametrize("kind", GGML_TYPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_in_every_format(tmp_path, backend, family, kind, activations):
    if backend == "python" and activations != "float32":
        pytest.skip("the meaning of a program rounds no activations")
    if activations != "float32" and "num_experts_per_tok" in MODELS[family][2]:
        pytest.skip("what is rounded chooses other experts where two are as good as equal")
    check(tmp_path, family, [kind], backend, activations, MORE_PROMPTS, in_float64=True)
