"""The loop over tokens: streamers, processors and criteria in Python, ends and draws."""

import queue
import threading

import pytest
import torch
from small_decoders import (
    END,
    NEW,
    PAD,
    PROMPTS,
    Stream,
    free_tokens,
    padded,
    tokenizer,
)
from transformers import (
    LogitsProcessor,
    StoppingCriteria,
    TextIteratorStreamer,
    TextStreamer,
)

from tensor_ops_torch.decoding.generation_settings import RefusedSettingError


@pytest.mark.parametrize("in_python", [False, True])
def test_several_end_tokens_end_rows_one_by_one(decoder, model, in_python):
    free = free_tokens(model)
    ends = {"eos_token_id": [free[0][2], free[2][4], 999], "max_new_tokens": NEW}
    how = {"return_dict_in_generate": True, "output_logits": in_python}
    expected = model.generate(**padded(), **ends)
    found = decoder.generate(**padded(), **ends, **how)
    assert decoder.kernel.chose_in_python() == in_python
    assert torch.equal(found.sequences, expected)
    assert (expected == PAD).any()


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
    assert decoder.kernel.chose_in_python() == in_python
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
    assert decoder.kernel.chose_in_python() == scored
    assert torch.equal(own.sequences, tokens.sequences)
    kinds = [
        [None if each is None else len(each) for each in criterion.scores]
        for criterion in (expected, found)
    ]
    assert kinds[0] == kinds[1]


@pytest.mark.parametrize("wanted", ["output_scores", "output_logits"])
@pytest.mark.parametrize("how", [{}, {"pad_token_id": 7}, {"no_repeat_ngram_size": 2}])
def test_rows_that_have_ended_have_the_scores_of_their_padding(decoder, model, how, wanted):
    ends = [row[place] for row, place in zip(free_tokens(model), (1, 3, 6), strict=True)]
    how = {**how, "max_new_tokens": NEW, "eos_token_id": ends, wanted: True}
    how |= {"return_dict_in_generate": True}
    expected, found = model.generate(**padded(), **how), decoder.generate(**padded(), **how)
    assert torch.equal(found.sequences, expected.sequences)
    name = wanted.removeprefix("output_")
    for own, others in zip(found[name], expected[name], strict=True):
        torch.testing.assert_close(own, others, rtol=0, atol=1e-4)
    assert decoder.kernel.requests == ()


def test_all_rows_that_criteria_end_end_the_call(decoder, model):
    first = After(free_tokens(model)[0][1])
    for eos in (END, None):
        how = {"max_new_tokens": NEW, "eos_token_id": eos, "stopping_criteria": [first]}
        expected = model.generate(torch.tensor([PROMPTS[0]]), **how)
        assert torch.equal(decoder.generate([PROMPTS[0]], **how), expected)
        assert decoder.kernel.requests == ()


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
