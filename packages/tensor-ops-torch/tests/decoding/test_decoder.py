"""`decoder`: models of every family, in memory, write what transformers has them write."""

import gc
import inspect
import sys
import weakref

import pytest
import torch
from model_families import FAMILIES, greedy, prompt, small_model

import tensor_ops_decode
import tensor_ops_torch
from tensor_ops import BackendFallbackWarning, BackendUnavailableError
from tensor_ops.extension import load_backend
from tensor_ops_torch import Decoder, UnsupportedModelError, WeightsChangedError, decoder

NEW_TOKENS = 64
# Logits of two implementations in float32 differ by less, those of bfloat16 weights among them.
BOUND = 2e-4
# How far logits of transformers in bfloat16 are from those of a kernel with the same weights, as a
# part of the largest logit: whether the kernel rounds activations to bfloat16 too or not at all.
BFLOAT16_BOUND = 0.12
# How far those of a kernel that rounds are from those in float64: 0.044 at most in any family.
ROUNDED_BOUND = 0.06
# The root of the mean square of that distance, as a part of what it is for transformers, which also
# rounds the results of layers, and residuals: 0.33 to 0.51 in these families.
ROUNDED_PART = 0.7


def logits_of(model, sequence):
    """Return the logits of a model, from which it has chosen what follows the prompt."""
    with torch.no_grad():
        logits = model(sequence[:, :-1]).logits[0, prompt()["inputs"].shape[1] - 1 :]
    return logits if logits.dtype == torch.float64 else logits.float()


def assert_same(model, fast, bound):
    """Assert that logits are within a bound, and tokens equal up to the first near tie of two.

    Returns how many tokens that are.
    """
    how = {"return_dict_in_generate": True, "output_logits": True}
    found = greedy(fast, NEW_TOKENS, **prompt(), **how)
    logits = logits_of(model, found.sequences)
    allowed = bound * logits.abs().max() if bound > BOUND else bound
    assert (torch.cat(found.logits) - logits).abs().max() < allowed
    expected = greedy(model, NEW_TOKENS)
    best = logits_of(model, expected).topk(2).values
    near = torch.nonzero(best[:, 0] - best[:, 1] <= 2 * allowed)
    count = int(near[0]) if len(near) else NEW_TOKENS
    end = prompt()["inputs"].shape[1] + count
    assert torch.equal(found.sequences[:, :end], expected[:, :end])
    return count


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.sampled(2, "family", "tied")
def test_greedy_tokens_are_those_of_transformers(family, tied):
    model = small_model(family, tied=tied, seed=1)
    with decoder(model, max_seq_length=128) as fast:
        assert assert_same(model, fast, BOUND) == NEW_TOKENS, "choose another seed"
        assert torch.equal(greedy(fast, NEW_TOKENS), greedy(model, NEW_TOKENS))
        assert ("lm_head.weight" in fast.kernel.program.tensors) != tied


a_family_in_bfloat16 = pytest.mark.parametrize(
    "family",
    [
        pytest.param(name, marks=[] if name in ("Llama", "Gemma 2") else [pytest.mark.nightly])
        for name in FAMILIES
        if "MoE" not in name  # whose choice of experts depends on what is rounded
    ],
)


def in_bfloat16(family="Llama"):
    """Return a model in bfloat16, and one of the same weights in float32."""
    model, exact = small_model(family, dtype=torch.bfloat16), small_model(family)
    exact.load_state_dict(model.state_dict())
    return model, exact


@a_family_in_bfloat16
def test_bfloat16_weights_are_multiplied_by_activations_in_float32_if_asked_to(family):
    model, in_float32 = in_bfloat16(family)
    how = {"activations": "float32", "cache_dtype": "float32", "backend": "cpp"}
    with decoder(model, max_seq_length=128, **how) as fast:
        assert {tensor.type for tensor in fast.kernel.program.tensors.values()} == {"f32", "bf16"}
        assert assert_same(in_float32, fast, BOUND) == NEW_TOKENS, "choose another seed"
        assert_same(model, fast, BFLOAT16_BOUND)
        assert fast.explain().kernel.options["activations"] == "float32"


@a_family_in_bfloat16
def test_activations_in_bfloat16_take_less_accuracy_than_transformers_does(family):
    model, exact = in_bfloat16(family)
    with decoder(model, max_seq_length=128, activations="bfloat16", backend="cpp") as fast:
        assert_same(model, fast, BFLOAT16_BOUND)
        how = {"return_dict_in_generate": True, "output_logits": True}
        found = greedy(fast, NEW_TOKENS, **prompt(), **how)
    right, in_transformers = (logits_of(each, found.sequences) for each in (exact.double(), model))
    ours, theirs = (each - right for each in (torch.cat(found.logits), in_transformers))
    assert ours.abs().max() < ROUNDED_BOUND * right.abs().max()
    assert ours.square().mean().sqrt() < ROUNDED_PART * theirs.square().mean().sqrt()


@pytest.mark.parametrize("are_faster", [True, False])
def test_activations_follow_the_model_where_products_are_faster_with_them(are_faster, monkeypatch):
    """The executor computes both either way, so that this test runs on any processor."""
    cpp = load_backend("cpp").module
    monkeypatch.setattr(cpp, "has_bfloat16_products", lambda: are_faster)
    model, in_float32 = in_bfloat16()

    def activations(model, **how):
        with decoder(model, backend="cpp", max_seq_length=64, **how) as fast:
            found, tokens = fast.explain(), greedy(fast, 8)
            logits = fast.generate(
                **prompt(), max_new_tokens=1, output_logits=True, return_dict_in_generate=True
            ).logits[0]
        assert f"activations {found.kernel.options['activations']}" in str(found)
        assert f"activations decided by {found.kernel.activations_by}" in str(found)
        return found.kernel.options["activations"], found.kernel.activations_by, tokens, logits

    rounded, exact = (activations(model, activations=each) for each in ("bfloat16", "float32"))
    assert not torch.equal(rounded[-1], exact[-1])
    chosen, decided_by, _, logits = activations(model)
    assert chosen == ("bfloat16" if are_faster else "float32")
    reason = "the model, since cpp" if are_faster else "the default, since cpp"
    assert decided_by.startswith(f"{reason} multiplies")
    assert torch.equal(logits, (rounded if are_faster else exact)[-1])
    assert exact[:2] == ("float32", "activations=")
    # A model that is quantised, or not in bfloat16 as a whole, is as it was.
    mixed = in_bfloat16()[0]
    mixed.model.norm.float()
    for other, how, expected in (
        (model, {"quantize": "q8_0"}, "int8x2"),
        (in_float32, {}, "float32"),
        (mixed, {}, "float32"),
    ):
        assert activations(other, **how)[:2] == (expected, "the default")


def test_custom_generate_runs_the_kernel():
    model = small_model()
    with decoder(model) as fast:
        found = model.generate(
            **prompt(), max_new_tokens=8, do_sample=False, pad_token_id=0, custom_generate=fast
        )
        assert torch.equal(found, greedy(model, 8))


def test_weights_are_quantized_as_those_of_a_file(tmp_path):
    model = small_model()
    model.save_pretrained(tmp_path)
    how = {"quantize": "q4_0", "quantize_head": "q8_0", "max_seq_length": 64}
    with (
        decoder(model, **how) as fast,
        tensor_ops_decode.PersistentKernel(model=tmp_path, **how) as kernel,
    ):
        kernel.compile()
        types = [
            {name: tensor.type for name, tensor in each.program.tensors.items()}
            for each in (fast.kernel, kernel)
        ]
        assert types[0] == types[1]
        request = kernel.add_request(prompt()["inputs"][0].tolist(), max_new_tokens=16)
        while kernel.requests:
            kernel()
        assert greedy(fast, 16)[0, -16:].tolist() == kernel.tokens(request)


def test_it_holds_no_model_but_with_fallback():
    for fallback in (False, True):
        model = small_model()
        expected, gone = greedy(model, 8), weakref.ref(model)
        weight = weakref.ref(model.model.layers[1].mlp.up_proj.weight)
        with decoder(model, fallback=fallback) as fast:
            assert fast.model is model
            del model
            gc.collect()
            assert (gone() is None) == (fast.model is None) == (not fallback)
            assert (weight() is None) == (not fallback)
            assert torch.equal(greedy(fast, 8), expected)


def test_changed_weights_are_an_error_before_anything_is_generated():
    model = small_model()
    with decoder(model) as fast:
        greedy(fast, 1)
        with torch.no_grad():
            model.model.layers[1].mlp.up_proj.weight.mul_(3)
        with pytest.raises(WeightsChangedError, match=r"layers\.1\.mlp\.up_proj\.weight was writt"):
            greedy(fast, 1)
    with decoder(model) as again:
        assert torch.equal(greedy(again, 8), greedy(model, 8))


def test_released_weights_are_the_kernels_alone():
    model = small_model(tied=False)
    expected, number = greedy(model, 8), sum(each.numel() for each in model.parameters())
    held = weakref.ref(model.model.layers[0].mlp.up_proj.weight)
    with decoder(model, release=True) as fast:
        assert held() is None
        assert {each.device.type for each in model.parameters()} == {"meta"}
        assert sum(each.numel() for each in model.parameters()) == number
        assert torch.equal(greedy(fast, 8), expected)
        assert "given up" in str(fast.explain())
        with pytest.raises(UnsupportedModelError, match="load the model again"):
            decoder(model)


@pytest.mark.parametrize("quantize", [None, "q8_0"])
@pytest.mark.parametrize("backend", ["cpp", "python"])
def test_a_tied_head_is_released_under_both_names(backend, quantize):
    model = small_model()
    how = {"backend": backend, "quantize": quantize, "quantize_head": quantize}
    with decoder(model, **how) as fast:
        expected = greedy(fast, 8)
    with decoder(model, release=True, **how) as fast:
        assert {each.device.type for each in model.parameters()} == {"meta"}
        assert model.lm_head.weight is model.model.embed_tokens.weight
        assert torch.equal(greedy(fast, 8), expected)


def test_what_the_engine_does_not_run_is_refused_or_left_to_the_model():
    model = small_model()
    model.model.layers[0].mlp.act_fn = torch.nn.Tanh()
    with pytest.raises(UnsupportedModelError, match=r"act_fn is a torch.*Tanh, expected"):
        decoder(model)
    with pytest.warns(BackendFallbackWarning, match="own generate") as warned:
        slow = decoder(model, fallback=True)
    assert len(warned) == 1
    assert slow.kernel is None
    assert torch.equal(greedy(slow, 8), greedy(model, 8))
    found = slow.explain()
    assert (found.runs, found.kernel) == ("transformers", None)
    assert "act_fn" in found.reason
    slow.close()


def test_a_backend_without_an_executor_is_refused_or_left_to_the_model():
    model = small_model()
    with pytest.raises(tensor_ops_decode.NoExecutorError, match="runs no programs"):
        decoder(model, backend="torch")
    with pytest.warns(BackendFallbackWarning, match="runs no programs"):
        assert decoder(model, backend="torch", fallback=True).kernel is None


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"quantize": "q9"}, ValueError, "quantize must be one of"),
        ({"release": True, "fallback": True}, ValueError, "leave one of them out"),
        ({"max_seq_length": 0}, ValueError, "max_seq_length"),
        ({"backend": "nonsense"}, ValueError, "nonsense"),
        ({"progress": 3}, TypeError, "progress"),
        ({"cache": "/tmp"}, TypeError, "cache"),
    ],
)
def test_wrong_arguments_are_errors_and_leave_the_model_as_it_is(given, error, words):
    model = small_model()
    with pytest.raises(error, match=words):
        decoder(model, **given)
    assert {each.device.type for each in model.parameters()} == {"cpu"}


@pytest.mark.parametrize("given", ["gpt2", None, torch.nn.Linear(2, 2), small_model().model])
def test_what_is_no_model_of_transformers_is_a_type_error(given):
    with pytest.raises(TypeError, match=r"takes a model of transformers that generates.*got"):
        decoder(given)
    with pytest.raises(TypeError, match="takes a model of transformers"):
        decoder(given, fallback=True)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ArithmeticError])
def test_packing_can_be_interrupted(error):
    def interrupt(done, size):
        raise error

    model = small_model()
    with pytest.raises(error):
        decoder(model, progress=interrupt)
    with decoder(model) as fast:
        assert torch.equal(greedy(fast, 8), greedy(model, 8))


def test_progress_is_told_as_weights_are_packed():
    told = []
    with decoder(small_model(), progress=lambda done, size: told.append((done, size))):
        assert told[-1][0] == told[-1][1] > 0


def test_arguments_are_those_of_the_kernel():
    kernel = inspect.signature(tensor_ops_decode.PersistentKernel).parameters
    own = inspect.signature(decoder).parameters
    only_here = {"model", "merge", "release", "fallback", "progress"}
    for name, parameter in own.items():
        assert name in only_here or parameter.default == kernel[name].default
    # One machine, one mode; the model says what ends an answer, and gives its states by itself; no
    # file has its weights.
    left_out = {"mode", "world_size", "mpi_rank", "communicator"}
    left_out |= {"cache", "eos_token_id", "unknown", "embeddings", "adapter"}
    assert kernel.keys() - own.keys() == left_out


def test_without_the_engine_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensor_ops_decode", None)
    with pytest.raises(BackendUnavailableError, match=r"pip install 'tensor-ops-torch\[decode\]'"):
        decoder(small_model())


def test_it_is_closed_once_and_not_copied():
    fast = decoder(small_model())
    with pytest.raises(TypeError, match="make a new one"):
        fast.__reduce__()
    fast.close()
    fast.close()
    with pytest.raises(ValueError, match="closed"):
        greedy(fast, 1)
    assert isinstance(fast, Decoder)


def test_it_is_a_public_name():
    assert tensor_ops_torch.decoder is decoder
    assert {"decoder", "Decoder", "DecoderExplanation"} <= set(tensor_ops_torch.__all__)
