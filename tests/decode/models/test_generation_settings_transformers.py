"""generation_config.json with odd values: what transformers means, or an error when asked for.

Whatever it says of sampling, the model opens, and greedy decoding is none of its business.
"""

import json
import math

import pytest
import torch
from transformers import GenerationConfig, LlamaForCausalLM, LogitsProcessorList

import tensor_ops_decode
from tensor_ops_decode import FileFormatError, open_weights
from tensor_ops_decode.models.generation_settings import end_tokens_of, generation_defaults

PROMPT = [72, 105, 33]
ENDLESS = {"eos_token_id": None, "pad_token_id": 0}
NUMBERS = [0, 0.0, 1, 1.0, -1, -0.5, 0.7, 1.5, 2.0, 16.0, True, False, math.nan, math.inf, 2**70]
VALUES = [*NUMBERS, None, "0.7", "", [], [1], {}]
# transformers tells 2 from 2.0, which JSON does not.
SAME_NUMBERS = [("top_k", 1.0), ("top_k", 2.0), ("top_k", 16.0)]
# Values beyond those of the arguments.
BEYOND = [("temperature", math.inf), ("repetition_penalty", math.inf), ("top_k", 2**70)]
BEYOND += [("top_k", False)]
BEYOND += [("do_sample", each) for each in ("0.7", "", [], [1], {})]


@pytest.fixture(scope="module")
def theirs(folder):
    return LlamaForCausalLM.from_pretrained(folder).eval()


@pytest.fixture
def write(folder):
    path = folder / "generation_config.json"
    yield lambda settings: path.write_text(json.dumps(settings), encoding="utf-8")
    path.unlink()


def read_by_transformers(theirs, folder):
    """Return what transformers draws from as the file says, None if it raises an error."""
    try:
        theirs.generation_config = GenerationConfig.from_pretrained(folder)
        return drawn_from(theirs)
    except Exception:  # of any kind, by the value
        return None
    finally:
        theirs.generation_config = GenerationConfig()


def read_by_us(theirs, folder):
    """Return what transformers draws from as the arguments of our `generate` say."""
    defaults = generation_defaults(open_weights(folder))
    samples = defaults.get("temperature", 0) > 0
    usual = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "repetition_penalty": 1.0}
    given = {
        name: int(each) if name == "top_k" else float(each)
        for name, each in (usual | defaults).items()
    }
    return drawn_from(theirs, do_sample=samples, **given)


def drawn_from(theirs, **given):
    """Return whether tokens are drawn, and the edited logits of a step."""
    tokens, logits = torch.tensor([PROMPT]), torch.linspace(-3, 4, 100).sin()[None] * 4
    settings, _ = theirs._prepare_generation_config(None, **given)
    processors = theirs._get_logits_processor(
        settings, input_ids_seq_length=3, logits_processor=LogitsProcessorList()
    )
    edited = processors(tokens, logits)
    return bool(settings.do_sample), edited.log_softmax(-1)


KEYS = ["temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty", "do_sample"]


@pytest.mark.parametrize("value", VALUES, ids=repr)
@pytest.mark.parametrize("key", KEYS)
def test_settings_mean_what_they_mean_to_transformers(folder, theirs, write, key, value):
    for samples in (True, False):
        write({"do_sample": samples, key: value})
        expected = read_by_transformers(theirs, folder)
        try:
            found = read_by_us(theirs, folder)
        except FileFormatError:
            assert expected is None or (key, value) in BEYOND
            continue
        if expected is None:
            assert type(value) is int or (key, value) in SAME_NUMBERS
            continue
        assert found[0] == expected[0]
        torch.testing.assert_close(found[1], expected[1])


@pytest.mark.parametrize("value", [1, 3, 3.0, True, 0, -1, 0.5, "3", [], {}], ids=repr)
def test_the_length_of_answers_is_that_of_transformers(folder, theirs, write, value):
    write({"max_new_tokens": value})
    try:
        theirs.generation_config = GenerationConfig.from_pretrained(folder)
        expected = theirs.generate(torch.tensor([PROMPT]), **ENDLESS).shape[1] - len(PROMPT)
    except Exception:
        expected = None
    theirs.generation_config = GenerationConfig()
    try:
        assert generation_defaults(open_weights(folder))["max_new_tokens"] == expected
    except FileFormatError:
        assert expected is None or value in (True, 0.5)


@pytest.mark.parametrize("value", [-1, [-1, 7], 7, 7.0, 7.5, True, [7.0, 9], 1000, []], ids=repr)
def test_end_tokens_are_those_of_transformers(folder, theirs, write, value):
    write({"eos_token_id": value})
    settings = GenerationConfig.from_pretrained(folder)
    expected = set()
    if value:
        theirs._prepare_special_tokens(settings, device="cpu")
        expected = {each for each in settings._eos_token_tensor.tolist() if each >= 0}
    assert end_tokens_of(open_weights(folder)) == expected | {256}  # which config.json has


ODD = {"top_p": 0, "top_k": -1, "temperature": "0.7", "min_p": 7, "max_new_tokens": 16.0}


@pytest.mark.parametrize("more", [{}, {"eos_token_id": -1}, {"repetition_penalty": "no"}])
def test_a_model_opens_and_is_greedy_whatever_its_files_say_of_sampling(
    folder, theirs, write, more
):
    write({"do_sample": 1} | ODD | more)
    tokens = torch.tensor([PROMPT])
    expected = theirs.generate(tokens, do_sample=False, max_new_tokens=8, **ENDLESS)
    with tensor_ops_decode.load(folder, "python") as model:
        (found,) = model.generate([PROMPT], max_new_tokens=8, ignore_eos=True)
        assert list(found.tokens) == expected[0, len(PROMPT) :].tolist()
        with pytest.raises(FileFormatError, match=r"generation_config\.json: key 'temperature'"):
            _ = model.defaults


def test_end_tokens_that_are_none_are_an_error_where_they_are_asked_for(folder, write):
    write({"eos_token_id": "256"})
    message = r"generation_config\.json: eos_token_id: '256'; expected tokens"
    with tensor_ops_decode.load(folder, "python") as model:
        (found,) = model.generate([PROMPT], max_new_tokens=3, ignore_eos=True)
        assert len(found.tokens) == 3
        with pytest.raises(FileFormatError, match=message):
            model.generate([PROMPT], max_new_tokens=3)
    with tensor_ops_decode.load(folder, "python", eos_token_id=found.tokens[1]) as model:
        (shorter,) = model.generate([PROMPT], max_new_tokens=3)
        assert shorter.tokens == found.tokens[: found.tokens.index(found.tokens[1]) + 1]
    with pytest.raises(FileFormatError, match=message):
        tensor_ops_decode.PersistentKernel(model=folder, backend="python")
