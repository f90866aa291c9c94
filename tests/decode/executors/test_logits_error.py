"""Logits that choose no token are an error that says where NaN came from; other requests go on."""

import math
import pickle
import struct
import subprocess
import sys

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

import tensor_ops_decode
from byte_models import save_model
from exported_models import export, words
from tensor_ops_decode import LogitsError
from tensor_ops_decode.scheduling import requests

# A prompt with this byte has NaN as its embedding; one without never meets it.
BAD = 7
PROMPTS = [[1, 2], [1, BAD, 3], [4, 5, 6]]
NEW = {"max_new_tokens": 6, "ignore_eos": True}
LATER = "model.layers.1.mlp.down_proj.weight"


def damaged_model(folder, tensor="model.embed_tokens.weight", row=BAD, value=np.nan):
    save_model(folder)
    path = folder / "model.safetensors"
    tensors = load_file(path)
    tensors[tensor][row] = value
    save_file(tensors, path, metadata={"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    return damaged_model(tmp_path_factory.mktemp("damaged"))


@pytest.fixture
def model(damaged, backend):
    with tensor_ops_decode.load(damaged, backend, max_num_batched_requests=4) as model:
        yield model


def test_a_prompt_whose_logits_are_nan_is_an_error(model):
    assert len(model.logprobs([1, 2, 4])) == 2
    with pytest.raises(LogitsError, match=r"the logits after . tokens of the prompt are NaN"):
        model.logprobs([1, BAD, 3])
    assert len(model.logprobs([1, 2, 4])) == 2


def runs_to_the_error(kernel, run):
    def run_all():
        while kernel.requests:
            run(kernel)

    with pytest.raises(LogitsError) as caught:
        run_all()
    return caught.value


@pytest.mark.parametrize(
    "run",
    [lambda kernel: kernel(), lambda kernel: kernel.run(4), lambda kernel: kernel.profile()],
    ids=["call", "run", "profile"],
)
@pytest.mark.parametrize(
    "settings", [{}, {"temperature": 0.8, "seed": 3}, {"logprobs": 2}, {"repetition_penalty": 1.2}]
)
def test_the_error_names_request_step_and_node(model, run, settings):
    kernel = model.kernel
    kernel.add_request([1, 2], **NEW)
    request = kernel.add_request([1, BAD, 3], **NEW, **settings)
    error = runs_to_the_error(kernel, run)
    assert error.request == request
    assert f"request {request}, step 1: the logits after 3 tokens of the prompt" in str(error)
    assert "node 'embedding' (embed)" in str(error)
    assert kernel.finish_reason(request) == "error"
    assert kernel.error(request) is error
    assert kernel.tokens(request) == []
    assert np.isnan(kernel.logits(request)).any()


def test_an_interrupt_before_the_error_is_there_leaves_a_request_that_has_ended(model, monkeypatch):
    kernel, interrupts = model.kernel, [KeyboardInterrupt]

    def interrupted(*given):
        raise interrupts.pop()

    monkeypatch.setattr(requests, "logits_error", interrupted)
    request = kernel.add_request(PROMPTS[1], ignore_eos=True)
    with pytest.raises(KeyboardInterrupt):
        kernel()
    assert kernel.requests == ()
    assert kernel.finish_reason(request) == "error"


def test_the_other_requests_of_a_batch_go_on(model):
    kernel = model.kernel
    good, bad, late = (kernel.add_request(prompt, **NEW) for prompt in PROMPTS)
    assert runs_to_the_error(kernel, lambda kernel: kernel.run(4)).request == bad
    assert kernel.requests == (good, late)
    while kernel.requests:
        kernel.run(4)
    for request, prompt in ((good, PROMPTS[0]), (late, PROMPTS[2])):
        assert kernel.finish_reason(request) == "length"
        assert kernel.error(request) is None
        assert tuple(kernel.tokens(request)) == model.generate([prompt], **NEW)[0].tokens


@pytest.mark.parametrize("temperature", [0.0, 0.5])
def test_a_step_in_the_middle_of_several_is_found(model, temperature):
    """The bias has the first token be the one after which all is NaN."""
    kernel = model.kernel
    kernel.add_request([9], **NEW)
    bias = {BAD: 1e4}
    request = kernel.add_request([1, 2, 3], **NEW, logit_bias=bias, temperature=temperature)
    error = runs_to_the_error(kernel, lambda kernel: kernel.run(6))
    assert f"request {request}, step 2: the logits after 3 tokens of the prompt and 1" in str(error)
    assert kernel.tokens(request) == [BAD]


def test_guesses_before_the_error_keep_their_tokens(damaged, backend):
    with tensor_ops_decode.load(damaged, backend, num_speculative_tokens=4) as model:
        kernel = model.kernel
        # The tokens that the prompt repeats are guessed; the last one cannot be computed with.
        request = kernel.add_request([1, 2, 3, BAD], **NEW, logprobs=1)
        runs_to_the_error(kernel, lambda kernel: kernel())
        assert kernel.tokens(request) == []
        bias = {BAD: 1e4}
        request = kernel.add_request([1, 2, 3, 1, 2, 3, 1], **NEW, logit_bias=bias, logprobs=1)
        runs_to_the_error(kernel, lambda kernel: kernel())
        assert kernel.tokens(request) == [BAD]
        assert len(kernel.logprobs(request)) == 1


@pytest.mark.parametrize(
    ("tensor", "row", "node"),
    [
        (LATER, 3, "'layer.1.output.product'"),
        ("model.layers.0.self_attn.k_proj.weight", 2, "'layer.0.qkv'"),
        ("lm_head.weight", 200, "'logits'"),
    ],
)
def test_the_node_is_the_first_one_with_nan(tmp_path, backend, tensor, row, node):
    folder, words = damaged_model(tmp_path, tensor, row), "first result with NaN is that of node"
    with (
        tensor_ops_decode.load(folder, backend) as model,
        pytest.raises(LogitsError, match=f"{words} {node}"),
    ):
        model.generate("hm")


@pytest.mark.parametrize("temperature", [0.0, 0.5])
def test_minus_infinity_is_a_logit_unless_all_are(tmp_path, backend, temperature):
    save_model(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    for name, tensor in tensors.items():  # layers that change nothing, so that ones are multiplied
        tensor[:] = 0 if name.endswith(("o_proj.weight", "down_proj.weight")) else 1
    head = tensors["lm_head.weight"]
    head[:] = -np.inf
    save_file(tensors, path, metadata={"format": "pt"})
    settings = NEW | {"temperature": temperature}
    with (
        tensor_ops_decode.load(tmp_path, backend) as model,
        pytest.raises(LogitsError, match="choose no token: all are -inf"),
    ):
        model.generate("hm", **settings)
    head[5] = 0
    save_file(tensors, path, metadata={"format": "pt"})
    with tensor_ops_decode.load(tmp_path, backend) as model:
        assert model.generate("hm", **settings)[0].tokens == (5,) * 6
        with pytest.raises(LogitsError, match="choose no token: all are -inf"):
            model.generate("hm", **settings, logit_bias={5: -np.inf})


def test_generate_finishes_the_other_prompts_first(model):
    pieces = []
    with pytest.raises(LogitsError, match=r"^prompt 1: request \d+, step 1: ") as caught:
        model.generate(PROMPTS, **NEW, stream=lambda number, text: pieces.append((number, text)))
    answers = caught.value.completions
    assert [answer.finish_reason for answer in answers] == ["length", "error", "length"]
    assert [answer.tokens for answer in (answers[0], answers[2])] == [
        model.generate([prompt], **NEW)[0].tokens for prompt in (PROMPTS[0], PROMPTS[2])
    ]
    assert {number for number, _ in pieces} <= {0, 2}
    assert model.kernel.requests == ()
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.request) == (str(caught.value), caught.value.request)


def test_a_stream_has_the_pieces_before_its_error(tmp_path, backend):
    prompt = [1, 2]
    save_model(tmp_path)
    with tensor_ops_decode.load(tmp_path, backend) as model:
        (answer,) = model.generate([prompt], **NEW)
    bad = next(token for token in answer.tokens[2:] if token not in prompt)
    count = answer.tokens.index(bad) + 1
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    tensors["model.embed_tokens.weight"][bad] = np.nan
    save_file(tensors, path, metadata={"format": "pt"})
    pieces = []
    with tensor_ops_decode.load(tmp_path, backend) as model:
        stream = model.stream(prompt, **NEW)
        with pytest.raises(LogitsError) as caught:
            pieces.extend(stream)
        (found,) = caught.value.completions
        assert found.tokens == answer.tokens[:count]
        assert "".join(pieces) == found.text
        assert found.text
        assert (list(stream), stream.completion) == ([], None)
        assert model.kernel.requests == ()


def test_a_chat_and_a_command_say_it(damaged, model):
    with pytest.raises(LogitsError, match="node 'embedding'"):
        model.chat([{"role": "user", "content": chr(BAD)}])
    command = [sys.executable, "-m", "tensor_ops", "generate", damaged, chr(BAD), "--json"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "prompt 0: request 0, step 1: the logits after 1 tokens of the prompt" in done.stderr
    assert "Traceback" not in done.stderr


def test_exported_models_say_it_in_cpp(damaged, cpp, driver, tmp_path):
    folder = export(damaged, tmp_path / "exported")
    opened = [words("open", folder, 2), "sequence", "sequence"]
    filled = ["append 0 1 2", words("append 1 1", BAD, 3)]
    *_, error, again, alone, logits = driver(
        *opened, *filled, "generate 5 0 1", "generate 5 1", "generate 3 0", "logits 1"
    )
    message = "sequence 2: the step after its 3 tokens chose none, since logits are NaN"
    assert message in error
    assert "node 'embedding' (embed)" in error
    assert message in again
    assert len(alone.split()) == 3 + 1  # and the mark of the row's end
    assert all(math.isnan(struct.unpack(">f", bytes.fromhex(each))[0]) for each in logits.split())
    # After the error the sequence is what it was, and goes on once the token is away.
    *_, right = driver(*opened, *filled, "generate 1 1", "truncate 1 1", "generate 2 1")
    assert right == driver(*opened, "append 1 1", "generate 2 1")[-1]
