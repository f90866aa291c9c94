"""Which tensors of a file are used: those that transformers' class of the family has."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file, save_model

import byte_models
from cached_models import answer
from family_logits import FAMILIES, SIZES, classes_of, of_the_engine, of_transformers
from gguf_models import write_gguf
from greedy_models import BOUND
from tensor_ops_decode import PersistentKernel

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
FLAGS = ("attention_bias", "mlp_bias")


def made(family, **changed):
    """Return a small model of random weights, norms and biases."""
    config, model_class = classes_of(family)
    torch.manual_seed(0)
    model = model_class(config(**(SIZES | FAMILIES[family] | changed))).eval()
    for name, parameter in model.named_parameters():
        if name.endswith(("norm.weight", "bias")):  # which begin as all ones or zeros
            parameter.data.add_(torch.randn_like(parameter), alpha=0.2)
    return model


@pytest.fixture(params=FAMILIES)
def family(request):
    return request.param


def saved(model, folder):
    """Write a model as a folder; return its settings and its tensors."""
    model.save_pretrained(folder)
    settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return settings, load_file(folder / "model.safetensors")


def rewrite(folder, settings, tensors):
    (folder / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def program_of(model):
    with PersistentKernel(model=model, backend="python", max_seq_length=32) as kernel:
        return kernel.program.to_json()


def test_a_tied_matrix_may_have_the_name_of_the_head(tmp_path, family):
    model = made(family)
    model.save_pretrained(tmp_path)
    usual = program_of(tmp_path)
    save_model(model, str(tmp_path / "model.safetensors"), {"format": "pt"})
    names = load_file(tmp_path / "model.safetensors")
    assert (HEAD in names, EMBEDDING in names) == (True, False)
    # Results that are made from programs, such as shards and exported models, are the same then.
    assert json.loads(program_of(tmp_path).replace(HEAD, EMBEDDING)) == json.loads(usual)
    right = of_transformers(tmp_path)
    assert np.abs(of_the_engine(tmp_path) - right).max() < BOUND


@pytest.mark.parametrize("family", ["Llama", "Qwen2"])
def test_a_tied_matrix_of_a_gguf_file_may_have_the_name_of_the_head(tmp_path, family):
    model = made(family)
    usual, other = tmp_path / "usual.gguf", tmp_path / "other.gguf"
    write_gguf(model, usual)
    write_gguf(model, other, tied=HEAD)
    program = program_of(other).replace('"output.weight"', '"token_embd.weight"')
    assert json.loads(program.replace("other.gguf", "usual.gguf")) == json.loads(program_of(usual))
    assert np.array_equal(of_the_engine(other), of_the_engine(usual))


def test_a_tied_matrix_under_the_name_of_the_head_is_packed_into_files(tmp_path, cpp, cache):
    byte_models.save_model(tmp_path, tied=True)
    usual = answer(tmp_path, cpp)[0]
    tensors = load_file(tmp_path / "model.safetensors")
    save_file(
        {HEAD if name == EMBEDDING else name: each for name, each in tensors.items()},
        tmp_path / "model.safetensors",
    )
    written, mapped = (answer(tmp_path, cpp, cache=cache) for _ in range(2))
    assert usual == written[0] == mapped[0]
    assert mapped[1].packed_file.startswith("mapped from")
    with PersistentKernel(model=tmp_path, backend=cpp, quantize_head="q4_0") as kernel:
        kernel.export(tmp_path / "exported")


@pytest.mark.parametrize(
    ("is_tied", "kept", "missing"),
    [(False, {HEAD}, EMBEDDING), (False, {EMBEDDING}, HEAD), (True, set(), EMBEDDING)],
)
def test_a_matrix_that_nothing_replaces_is_named(tmp_path, is_tied, kept, missing):
    model = made("Llama") if is_tied else made("Llama", tie_word_embeddings=False)
    settings, tensors = saved(model, tmp_path)
    left = {name: tensors[name] for name in tensors if name not in {HEAD, EMBEDDING} - kept}
    rewrite(tmp_path, settings, left)
    assert f"tensor '{missing}', shape (331, 48), is missing" in of_the_engine(tmp_path)


def test_two_matrices_of_a_model_that_says_it_has_one_are_both_used(tmp_path):
    settings, tensors = saved(made("Llama"), tmp_path)
    rewrite(tmp_path, settings, tensors | {HEAD: torch.flip(tensors[EMBEDDING], (0,))})
    right = of_transformers(tmp_path)
    assert np.abs(of_the_engine(tmp_path) - right).max() < BOUND


@pytest.mark.sampled(2, "family")
def test_biases_that_the_configuration_does_not_promise_are_not_used(tmp_path, family):
    settings, tensors = saved(made(family), tmp_path)
    draw = torch.Generator().manual_seed(0)
    for name in list(tensors):
        bias = name.removesuffix("weight") + "bias"
        if "layers." in name and name.endswith("weight") and bias not in tensors:
            tensors[bias] = torch.randn(tensors[name].shape[:1], generator=draw)
    for flag in FLAGS:
        for value in (None, False, True):
            given = {name: each for name, each in settings.items() if name not in FLAGS}
            rewrite(tmp_path, given if value is None else given | {flag: value}, tensors)
            right = of_transformers(tmp_path)
            assert np.abs(of_the_engine(tmp_path) - right).max() < BOUND, (flag, value)


@pytest.mark.parametrize(
    ("family", "flag", "which"),
    [
        ("Llama", "attention_bias", "self_attn.o_proj"),
        ("Llama", "mlp_bias", "mlp.up_proj"),
        ("Qwen3", "attention_bias", "self_attn.q_proj"),
        ("Gemma3Text", "attention_bias", "self_attn.v_proj"),
    ],
)
def test_a_bias_that_the_configuration_promises_must_be_there(tmp_path, family, flag, which):
    settings, tensors = saved(made(family, **{flag: True}), tmp_path)
    right = of_transformers(tmp_path)
    assert np.abs(of_the_engine(tmp_path) - right).max() < BOUND
    missing = f"model.layers.1.{which}.bias"
    del tensors[missing]
    rewrite(tmp_path, settings, tensors)
    words = f"{tmp_path}/config.json: {flag} is true, but tensor '{missing}' is missing"
    assert of_the_engine(tmp_path) == words


def test_a_flag_is_true_or_false(tmp_path):
    settings, tensors = saved(made("Llama"), tmp_path)
    for name in (*FLAGS, "tie_word_embeddings"):
        for value in (1, "true", None):
            rewrite(tmp_path, settings | {name: value}, tensors)
            assert of_transformers(tmp_path) is None
            assert name in of_the_engine(tmp_path)


def test_a_gguf_file_has_the_biases_that_are_there(tmp_path):
    model = made("Llama", attention_bias=True, mlp_bias=True)
    model.save_pretrained(tmp_path)
    write_gguf(model, tmp_path / "model.gguf")
    right = of_transformers(tmp_path)
    assert np.abs(of_the_engine(tmp_path / "model.gguf") - right).max() < BOUND
