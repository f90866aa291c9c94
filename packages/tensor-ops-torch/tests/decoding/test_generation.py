"""`generate` of a decoder: prompts in, what transformers gives out."""

import queue
import threading
import warnings

import numpy as np
import pytest
import torch
from small_decoders import BEGIN, END, PAD, PROMPTS, Stream, small_model, tokenizer
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    StoppingCriteria,
    TextIteratorStreamer,
    TextStreamer,
)

from tensor_ops import BackendFallbackWarning
from tensor_ops_decode import LogitsError
from tensor_ops_torch.decoding.generation_settings import RefusedSettingError

NEW = 8


def padded(prompts=PROMPTS):
    """Return prompts as a tensor with padding at the left, and its mask."""
    longest = max(map(len, prompts))
    rows = [[PAD] * (longest - len(row)) + row for row in prompts]
    masks = [[0] * (longest - len(row)) + [1] * len(row) for row in prompts]
    return {"inputs": torch.tensor(rows), "attention_mask": torch.tensor(masks)}


def free_tokens(model):
    """Return what the model writes after each prompt, as it has no end token."""
    return model.generate(**padded(), max_new_tokens=NEW, eos_token_id=None)[:, -NEW:].tolist()


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
    begun = decoder.generate(max_new_tokens=NEW)
    assert begun[0, 0] == BEGIN
    assert torch.equal(begun, model.generate(max_new_tokens=NEW))


def test_each_call_asks_whether_the_model_is_unchanged(decoder, model):
    decoder.generate([[1]], max_new_tokens=1)
    model.generate(torch.tensor([[1]]), max_new_tokens=1, custom_generate=decoder)
    assert decoder.num_checks == 2


@pytest.mark.parametrize("in_python", [False, True])
def test_several_end_tokens_end_rows_one_by_one(decoder, model, in_python):
    free = free_tokens(model)
    ends = {"eos_token_id": [free[0][2], free[2][4], 999], "max_new_tokens": NEW}
    how = {"return_dict_in_generate": True, "output_logits": in_python}
    expected = model.generate(**padded(), **ends)
    found = decoder.generate(**padded(), **ends, **how)
    assert decoder.chose_in_python() == in_python
    assert torch.equal(found.sequences, expected)
    assert (expected == PAD).any()


def test_config_and_keywords_have_the_order_of_transformers(decoder, model):
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
    with pytest.warns(UserWarning, match="Using the model-agnostic default `max_length`"):
        assert decoder.generate([[1, 2]]).shape == (1, 22)


@pytest.mark.parametrize("in_python", [False, True])
@pytest.mark.parametrize("rows", [1, 3])
def test_a_streamer_gets_every_token_once(decoder, model, rows, in_python):
    end = free_tokens(model)[0][3]
    how = {
        "max_new_tokens": NEW,
        "eos_token_id": end,
        "suppress_tokens": [0] if in_python else None,
    }
    prompts = padded(PROMPTS[:rows])
    expected, found = Stream(), Stream()
    model.generate(**prompts, **how, streamer=expected)
    tokens = decoder.generate(**prompts, **how, streamer=found)
    assert decoder.chose_in_python() == in_python
    assert (found.values, found.num_ends) == (expected.values, 1)
    columns = torch.tensor(found.values[1:]).T
    assert torch.equal(torch.cat([torch.tensor(found.values[0]), columns], 1), tokens)


def test_text_streamers_of_transformers_work(decoder, model, capsys):
    words, prompt = tokenizer(), torch.tensor([PROMPTS[0]])
    for generate in (model.generate, decoder.generate):
        generate(prompt, max_new_tokens=NEW, streamer=TextStreamer(words, skip_prompt=True))
    first, second = capsys.readouterr().out.rstrip("\n"), None
    assert len(first) % 2 == 1
    first, second = first[: len(first) // 2], first[len(first) // 2 + 1 :]
    assert first == second
    streamer = TextIteratorStreamer(words, skip_prompt=True, timeout=60)
    pieces = queue.Queue()
    thread = threading.Thread(
        target=lambda: pieces.put(decoder.generate(prompt, max_new_tokens=NEW, streamer=streamer))
    )
    thread.start()
    text = "".join(streamer)
    thread.join()
    assert text == words.decode(pieces.get()[0, -NEW:])


class Doubled(LogitsProcessor):
    """Makes one token likelier at odd lengths, and notes what it has seen."""

    def __init__(self):
        self.seen = []

    def __call__(self, input_ids, scores):
        self.seen.append((input_ids.clone(), scores.clone()))
        scores[:, 65] += 9.0 * (input_ids.shape[1] % 2)
        return scores


class After(StoppingCriteria):
    """Ends a row after a token, and notes the scores that it gets."""

    def __init__(self, token):
        self.token, self.scores = token, []

    def __call__(self, input_ids, scores, **kwargs):
        self.scores.append(scores)
        return input_ids[:, -1] == self.token


def test_processors_in_python_see_and_do_the_same(decoder, model):
    seen = []
    for generate in (model.generate, decoder.generate):
        processor = Doubled()
        tokens = generate(**padded(), max_new_tokens=NEW, logits_processor=[processor])
        seen.append((tokens, processor.seen))
    assert torch.equal(seen[0][0], seen[1][0])
    for (ids, scores), (own_ids, own_scores) in zip(seen[0][1], seen[1][1], strict=True):
        assert torch.equal(ids, own_ids)
        torch.testing.assert_close(own_scores, scores, rtol=0, atol=1e-4)
    allowed = {"prefix_allowed_tokens_fn": lambda row, tokens: [row + 60, len(tokens)]}
    expected = model.generate(**padded(), max_new_tokens=NEW, **allowed)
    assert torch.equal(decoder.generate(**padded(), max_new_tokens=NEW, **allowed), expected)


@pytest.mark.parametrize("end", [END, None])
@pytest.mark.parametrize("scored", [False, True])
def test_criteria_in_python_end_the_same(decoder, model, end, scored):
    free = free_tokens(model)
    how = {"max_new_tokens": NEW, "eos_token_id": end, "output_scores": scored}
    how["return_dict_in_generate"] = True
    expected, found = After(free[1][2]), After(free[1][2])
    tokens = model.generate(**padded(), **how, stopping_criteria=[expected])
    own = decoder.generate(**padded(), **how, stopping_criteria=[found])
    assert decoder.chose_in_python() == scored
    assert torch.equal(own.sequences, tokens.sequences)
    kinds = [
        [None if each is None else len(each) for each in criterion.scores]
        for criterion in (expected, found)
    ]
    assert kinds[0] == kinds[1]


def test_all_rows_that_criteria_end_end_the_call(decoder, model):
    first = After(free_tokens(model)[0][1])
    for eos in (END, None):
        how = {"max_new_tokens": NEW, "eos_token_id": eos, "stopping_criteria": [first]}
        expected = model.generate(torch.tensor([PROMPTS[0]]), **how)
        assert torch.equal(decoder.generate([PROMPTS[0]], **how), expected)
        assert decoder.kernel.requests == ()


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
    # What code that was written for transformers passes on is None here.
    how = {"max_new_tokens": NEW, "past_key_values": None, "cache": first.cache}
    second = decoder.generate(text, **how)
    assert decoder.kernel.shared == [64]  # of 73 tokens the full pages
    decoder.kernel.reset()
    assert torch.equal(second, decoder.generate(text, max_new_tokens=NEW))
    assert torch.equal(second, model.generate(text, max_new_tokens=NEW))


def test_rows_that_there_is_no_room_for_wait_for_others(make, model):
    small = make(max_num_batched_requests=2, max_num_pages=3)
    how = {"max_new_tokens": NEW, "eos_token_id": free_tokens(model)[0][2]}
    assert torch.equal(small.generate(**padded(), **how), model.generate(**padded(), **how))
    for more, words in (
        ({"streamer": Stream()}, "3 rows go on in step .* more than max_num_batched_requests, 2"),
        ({"suppress_tokens": [1]}, "3 rows go on in step .* more than max_num_batched_requests, 2"),
        ({"max_time": 60.0}, "3 rows go on in step .* more than max_num_batched_requests, 2"),
    ):
        with pytest.raises(ValueError, match=words):
            small.generate(**padded(), **how, **more)
    with pytest.raises(ValueError, match="2 rows of up to 25 tokens need 4 pages of 16 where"):
        small.generate(PROMPTS[:2], max_new_tokens=20, suppress_tokens=[1])
    assert small.kernel.requests == ()


def test_guesses_change_nothing(make, model):
    guessing = make(num_speculative_tokens=3)
    how = {"max_new_tokens": 30, "eos_token_id": None}
    expected = model.generate(**padded(), **how)
    for more in ({}, {"renormalize_logits": True}, {"streamer": Stream()}):
        assert torch.equal(guessing.generate(**padded(), **how, **more), expected)


def test_too_long_an_answer_is_an_error_before_any_step(decoder):
    for more in ({}, {"suppress_tokens": [1]}):
        with pytest.raises(ValueError, match="a prompt of 2 tokens and 200 new ones are more than"):
            decoder.generate([[1, 2]], max_new_tokens=200, **more)
    assert decoder.kernel.requests == ()


def test_an_error_in_the_callers_code_leaves_no_request(decoder):
    def fail(*args):
        raise ZeroDivisionError

    for more in ({"logits_processor": [fail]}, {"stopping_criteria": [fail]}):
        with pytest.raises(ZeroDivisionError):
            decoder.generate(PROMPTS, max_new_tokens=4, **more)
        assert decoder.kernel.requests == ()


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


@pytest.mark.parametrize("how", [{}, {"top_k": 5}, {"num_return_sequences": 2}])
def test_the_generator_of_torch_decides_what_is_drawn(decoder, how):
    for more in ({}, {"typical_p": 0.9}):
        first, second, third = (
            (
                torch.manual_seed(seed),
                decoder.generate(PROMPTS, do_sample=True, max_new_tokens=NEW, **how, **more),
            )[1]
            for seed in (5, 5, 6)
        )
        assert torch.equal(first, second)
        assert not torch.equal(first, third)
        assert len(first) == 3 * how.get("num_return_sequences", 1)


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


def test_model_generate_keeps_the_streamer_from_its_loop(decoder, model):
    stream = Stream()
    model.generate(**padded(), max_new_tokens=2, streamer=stream, custom_generate=decoder)
    assert (len(stream.values), stream.num_ends) == (1, 0)  # the prompt alone


def test_another_model_cannot_use_the_decoder(decoder, model):
    other = small_model()
    with pytest.raises(ValueError, match="the decoder was made of another model than this Llama"):
        other.generate(**padded(), max_new_tokens=2, custom_generate=decoder)
    with pytest.raises(RefusedSettingError, match="num_beams=2 is refused"):
        model.generate(**padded(), max_new_tokens=2, num_beams=2, custom_generate=decoder)
    cache = model(torch.tensor([[1, 2]]), use_cache=True).past_key_values
    with pytest.raises(RefusedSettingError, match="the kernel keeps its cache itself"):
        model.generate(**padded(), max_new_tokens=2, cache=cache, custom_generate=decoder)


def test_what_is_refused_is_handed_back_where_the_caller_asked_for_it(decoder, model):
    expected = model.generate(**padded(), max_new_tokens=NEW, num_beams=3)
    decoder.fallback = True
    with pytest.warns(BackendFallbackWarning, match="num_beams=3 is refused.*own generate") as told:
        found = decoder.generate(**padded(), max_new_tokens=NEW, num_beams=3)
    assert torch.equal(found, expected)
    assert len(told) == 1
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        decoder.generate(**padded(), max_new_tokens=NEW)
    assert decoder.kernel.added


def test_a_model_that_is_gone_leaves_all_but_what_it_would_run(decoder, model, monkeypatch):
    expected = model.generate(**padded(), max_new_tokens=NEW)
    monkeypatch.setattr(decoder, "model", None)
    assert torch.equal(decoder.generate(**padded(), max_new_tokens=NEW), expected)
    with pytest.raises(RefusedSettingError, match="hold the model that the decoder was made of"):
        decoder.generate(**padded(), max_new_tokens=NEW, guidance_scale=1.5)


def test_positions_and_holes_that_the_kernel_does_not_have_are_refused(decoder, model):
    given = padded()
    mask = given["attention_mask"]
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    expected = model.generate(**given, max_new_tokens=NEW)
    found = decoder.generate(**given, position_ids=positions, max_new_tokens=NEW)
    assert torch.equal(found, expected)
    with pytest.raises(RefusedSettingError, match="position_ids= is refused"):
        decoder.generate(**given, position_ids=positions + 1, max_new_tokens=NEW)
    for wrong in ([[1, 1, 0]], [[1, 0, 1]], [[0, 0, 0]]):
        with pytest.raises(ValueError, match=r"row 0 of attention_mask is .*zeros for padding"):
            decoder.generate([[5, 6, 7]], attention_mask=wrong, max_new_tokens=NEW)


def test_logits_that_are_nan_are_an_error_that_names_the_row(make, model, tmp_path):
    broken = small_model()
    with torch.no_grad():
        broken.model.embed_tokens.weight[97] = torch.nan
        broken.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone())
    broken.save_pretrained(tmp_path)
    from small_decoders import SmallDecoder

    decoder = SmallDecoder(broken, tmp_path)
    for more in ({}, {"suppress_tokens": [1]}):
        with pytest.raises(LogitsError, match="NaN") as raised:
            decoder.generate(PROMPTS, max_new_tokens=4, **more)
        assert raised.value.__notes__ == ["It is row 1 of the batch."]
        assert decoder.kernel.requests == ()
    decoder.kernel.close()
