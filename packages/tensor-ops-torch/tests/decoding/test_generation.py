"""`generate` of a decoder: prompts in, what transformers gives out."""

import gc
import threading
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from small_decoders import (
    BEGIN,
    END,
    NEW,
    PAD,
    PROMPTS,
    Stream,
    free_tokens,
    padded,
    small_model,
    tokenizer,
)
from transformers import (
    GenerationConfig,
)

import tensor_ops_torch
from tensor_ops import BackendFallbackWarning
from tensor_ops_torch.decoding.generation_settings import RefusedSettingError


@pytest.mark.parametrize("settings", [{}, {"no_repeat_ngram_size": 2}, {"repetition_penalty": 1.3}])
def test_a_padded_batch_gives_what_each_prompt_gives_alone_bit_for_bit(decoder, settings):
    settings = settings | {"max_new_tokens": NEW, "return_dict_in_generate": True}
    batch = decoder.generate(**padded(), **settings, output_scores=True, output_logits=True)
    plain = decoder.generate(**padded(), **settings)
    assert torch.equal(plain.sequences, batch.sequences)
    for row, prompt in enumerate(PROMPTS):
        alone = decoder.generate([prompt], **settings, output_scores=True, output_logits=True)
        new = alone.sequences[0, len(prompt) :]
        assert torch.equal(new, batch.sequences[row, -NEW:][: len(new)])
        assert len(new) > 4
        for name in ("scores", "logits"):
            for one, all_rows in zip(alone[name], batch[name], strict=False):
                assert torch.equal(one[0], all_rows[row])


@pytest.mark.parametrize("rows", [[[PAD, PAD, 5, 6], [7, 8, 9, 10]], [[PAD, 5, 6]], [[5, 6, 7]]])
@pytest.mark.parametrize(
    "how", [{}, {"pad_token_id": END}, {"eos_token_id": None}, {"eos_token_id": [5, PAD]}]
)
@pytest.mark.parametrize("kind", [list, torch.tensor, np.array])
@pytest.mark.filterwarnings("ignore")
def test_padding_shows_by_its_token_where_there_is_no_mask(decoder, model, rows, how, kind):
    expected = model.generate(torch.tensor(rows), max_new_tokens=NEW, **how)
    assert torch.equal(decoder.generate(kind(rows), max_new_tokens=NEW, **how), expected)


@pytest.mark.parametrize("kind", [list, torch.tensor])
def test_padding_within_a_prompt_is_an_error_unless_a_mask_says_that_it_is_none(
    decoder, model, kind
):
    rows, ones = [[5, PAD, 6]], torch.ones(1, 3, dtype=torch.int64)
    with pytest.raises(
        ValueError, match=r"\[1, 0, 1\]; .* tokens that are pad_token_id are padding"
    ):
        decoder.generate(kind(rows), max_new_tokens=NEW)
    expected = model.generate(torch.tensor(rows), attention_mask=ones, max_new_tokens=NEW)
    found = decoder.generate(kind(rows), attention_mask=ones.tolist(), max_new_tokens=NEW)
    assert torch.equal(found, expected)


def test_padding_of_lists_and_in_them_is_not_seen(decoder):
    expected = decoder.generate([[5, 6], [7, 8, 9, 10]], max_new_tokens=NEW)
    found = decoder.generate([[PAD, 5, 6], [7, 8, 9, 10]], max_new_tokens=NEW)
    assert torch.equal(found, expected)


def test_tensors_arrays_and_lists_are_prompts(decoder, model):
    expected = model.generate(**padded(), max_new_tokens=NEW)
    given = padded()
    ids, mask = given["inputs"], given["attention_mask"]
    for prompts in (
        {"inputs": PROMPTS},
        {"input_ids": ids, "attention_mask": mask},
        {"inputs": ids.int(), "attention_mask": mask.bool()},
        {"inputs": ids.numpy(), "attention_mask": mask.numpy()},
        {"input_ids": PROMPTS, "attention_mask": [[1] * len(each) for each in PROMPTS]},
        {"inputs": ids},  # the padding shows by its token, as in transformers
    ):
        assert torch.equal(decoder.generate(**prompts, max_new_tokens=NEW), expected)
    for one in (PROMPTS[0], np.array(PROMPTS[0]), torch.tensor(PROMPTS[0])):
        alone = decoder.generate(one, max_new_tokens=NEW)
        assert torch.equal(alone, model.generate(torch.tensor([PROMPTS[0]]), max_new_tokens=NEW))
    encoded = tokenizer()(["hello", "what else?"], padding=True, return_tensors="pt")
    words = {name: encoded[name] for name in ("input_ids", "attention_mask")}
    assert (words["attention_mask"] == 0).any()
    told = model.generate(**words, max_new_tokens=NEW)
    assert torch.equal(decoder.generate(**words, max_new_tokens=NEW), told)
    begun = decoder.generate(max_new_tokens=NEW)
    assert begun[0, 0] == BEGIN
    assert torch.equal(begun, model.generate(max_new_tokens=NEW))


def test_each_call_asks_whether_the_model_is_unchanged(decoder, model, monkeypatch):
    checks = []
    monkeypatch.setattr(decoder, "check_unchanged", lambda: checks.append(len(checks)))
    decoder.generate([[1]], max_new_tokens=1)
    model.generate(torch.tensor([[1]]), max_new_tokens=1, custom_generate=decoder)
    assert checks == [0, 1]


def test_config_and_keywords_have_the_order_of_transformers(decoder, model, monkeypatch):
    config = GenerationConfig(max_new_tokens=3, repetition_penalty=1.5)
    for how in (
        {"generation_config": config},
        {"generation_config": config, "max_new_tokens": 5},
        {"max_length": 14},
        {"max_length": 14, "min_new_tokens": 2, "pad_token_id": 7},
    ):
        expected = model.generate(**padded(), **how)
        assert torch.equal(decoder.generate(**padded(), **how), expected)
    assert config.max_length is None
    monkeypatch.setattr(decoder.generation_config, "max_new_tokens", 4)
    expected = model.generate(**padded(), max_new_tokens=4)
    assert torch.equal(decoder.generate(**padded()), expected)
    monkeypatch.undo()
    with pytest.warns(UserWarning, match="Using the model-agnostic default `max_length`"):
        assert decoder.generate([[1, 2]]).shape == (1, 22)


def test_stop_strings_need_the_tokenizer(decoder, model):
    words = tokenizer()
    strings = words.decode(free_tokens(model)[2][1:3])
    for how in (
        {"stop_strings": strings},
        {"generation_config": GenerationConfig(stop_strings=[strings], max_new_tokens=NEW)},
    ):
        how.setdefault("generation_config", None)
        how["max_new_tokens"] = NEW
        expected = model.generate(**padded(), **how, tokenizer=words)
        assert torch.equal(decoder.generate(**padded(), **how, tokenizer=words), expected)
        with pytest.raises(ValueError, match="stop_strings need the tokenizer"):
            decoder.generate(**padded(), **how)


def test_a_second_call_goes_on_from_the_cache(decoder, model):
    prompt = torch.tensor([list(range(30, 70))])
    how = {"max_new_tokens": 30, "eos_token_id": None}
    first = decoder.generate(prompt, **how, return_dict_in_generate=True)
    text = torch.cat([first.sequences, torch.tensor([[80, 81, 82]])], 1)
    decoder.kernel.shared = []
    # Code that was written for transformers passes None on here.
    how = {"max_new_tokens": NEW, "past_key_values": None, "cache": first.cache}
    second = decoder.generate(text, **how)
    assert decoder.kernel.shared == [64]  # of 73 tokens the full pages
    decoder.kernel.reset()
    assert torch.equal(second, decoder.generate(text, max_new_tokens=NEW))
    assert torch.equal(second, model.generate(text, max_new_tokens=NEW))


def test_calls_from_several_threads_give_what_they_give_alone(decoder):
    settings = [{"max_new_tokens": 12}, {"max_new_tokens": 12, "no_repeat_ngram_size": 2}] * 2
    expected = [decoder.generate(PROMPTS, **each) for each in settings]
    found = [None] * len(settings)

    def run(index):
        found[index] = decoder.generate(PROMPTS, **settings[index])

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(settings))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(map(torch.equal, found, expected))


def test_model_generate_takes_a_decoder_as_its_loop(decoder, model):
    for how in (
        {"max_new_tokens": NEW},
        {"max_new_tokens": NEW, "no_repeat_ngram_size": 2, "return_dict_in_generate": True},
        {"max_length": 12, "eos_token_id": free_tokens(model)[0][2]},
    ):
        expected = model.generate(**padded(), **how)
        found = model.generate(**padded(), **how, custom_generate=decoder)
        if "return_dict_in_generate" in how:
            expected, found = expected.sequences, found.sequences
        assert torch.equal(found, expected)
        assert decoder.kernel.added


def test_what_torch_compile_returns_takes_its_decoder_too(model):
    compiled = torch.compile(model, backend="eager")
    expected = model.generate(**padded(), max_new_tokens=NEW)
    with tensor_ops_torch.decoder(compiled, max_seq_length=64) as fast:
        found = compiled.generate(**padded(), max_new_tokens=NEW, custom_generate=fast)
    assert torch.equal(found, expected)


def test_model_generate_keeps_the_streamer_from_its_loop(decoder, model):
    stream = Stream()
    model.generate(**padded(), max_new_tokens=2, streamer=stream, custom_generate=decoder)
    assert (len(stream.values), stream.num_ends) == (1, 0)  # the prompt alone
    expected, found = Stream(), Stream()
    model.generate(**padded(), max_new_tokens=2, streamer=expected)
    loop = partial(decoder, streamer=found)
    model.generate(**padded(), max_new_tokens=2, streamer=found, custom_generate=loop)
    assert (found.values, found.num_ends) == (expected.values, 1)


def test_another_model_cannot_use_the_decoder(decoder, model):
    other = small_model()
    with pytest.raises(ValueError, match="the decoder was made of another model than this Llama"):
        other.generate(**padded(), max_new_tokens=2, custom_generate=decoder)
    with pytest.raises(RefusedSettingError, match="num_beams=2 is refused"):
        model.generate(**padded(), max_new_tokens=2, num_beams=2, custom_generate=decoder)
    cache = model(torch.tensor([[1, 2]]), use_cache=True).past_key_values
    with pytest.raises(RefusedSettingError, match="the kernel keeps its cache itself"):
        model.generate(**padded(), max_new_tokens=2, cache=cache, custom_generate=decoder)


def test_a_decoder_without_a_kernel_leaves_all_to_the_model(decoder, model, monkeypatch):
    monkeypatch.setattr(decoder, "kernel", None)
    expected = model.generate(**padded(), max_new_tokens=NEW, num_beams=2)
    assert torch.equal(decoder.generate(PROMPTS, max_new_tokens=NEW, num_beams=2), expected)
    monkeypatch.setattr(decoder, "generation_config", GenerationConfig(max_new_tokens=3))
    assert decoder.generate(PROMPTS).shape[1] == expected.shape[1] - NEW + 3
    with pytest.raises(ValueError, match="this decoder has no kernel to run"):
        model.generate(**padded(), max_new_tokens=2, custom_generate=decoder)


def test_what_is_refused_is_handed_back_where_the_caller_asked_for_it(decoder, model, monkeypatch):
    expected = model.generate(**padded(), max_new_tokens=NEW, num_beams=3)
    monkeypatch.setattr(decoder, "fallback", True)
    with pytest.warns(BackendFallbackWarning, match="num_beams=3 is refused.*own generate") as told:
        found = decoder.generate(**padded(), max_new_tokens=NEW, num_beams=3)
    assert torch.equal(found, expected)
    assert len(told) == 1
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        decoder.generate(**padded(), max_new_tokens=NEW)
    assert decoder.kernel.added


def test_a_model_that_is_gone_leaves_all_but_what_it_would_run(model):
    expected = model.generate(**padded(), max_new_tokens=NEW)
    with tensor_ops_torch.decoder(small_model(), max_seq_length=128) as decoder:
        gc.collect()
        assert decoder.model is None
        assert torch.equal(decoder.generate(**padded(), max_new_tokens=NEW), expected)
        with pytest.raises(RefusedSettingError, match="hold the model that the decoder was made"):
            decoder.generate(**padded(), max_new_tokens=NEW, guidance_scale=1.5)
