"""Guessed tokens: they save steps, and leave every token and probability as it is without them."""

import pytest

import tensor_ops_decode

PROMPTS = ["one two one two one", "a rose is a rose is", "tell me", "hm"]
OPTIONS = {"max_num_batched_requests": 4, "max_num_batched_tokens": 32, "page_size": 8}
GREEDY = {"max_new_tokens": 40, "ignore_eos": True, "logprobs": 2}
SAMPLED = GREEDY | {"temperature": 0.7, "top_k": 3, "seed": 5}
# Three tokens out of two have soon been there.
TWO_TOKENS = {"logit_bias": dict.fromkeys(range(2, 260), -1e6)}


@pytest.fixture
def load(folder, backend):
    models = []

    def load(num_speculative_tokens, **options):
        options = OPTIONS | options | {"num_speculative_tokens": num_speculative_tokens}
        models.append(tensor_ops_decode.load(folder, backend, **options))
        return models[-1]

    yield load
    for model in models:
        model.close()


@pytest.mark.parametrize("settings", [GREEDY, SAMPLED, GREEDY | TWO_TOKENS, SAMPLED | TWO_TOKENS])
@pytest.mark.sampled(2, "backend", "settings")
def test_answers_are_those_without_guesses(load, settings):
    expected = load(0).generate(PROMPTS, **settings)
    guessing = load(4)
    together = guessing.generate(PROMPTS, **settings)
    assert together == expected  # with the bits of the log-probabilities
    assert [guessing.generate(prompt, **settings)[0] for prompt in PROMPTS[:1]] == expected[:1]
    if "logit_bias" in settings:
        assert sum(answer.accepted_tokens for answer in together) > 0
    assert all(answer.accepted_tokens == 0 for answer in expected)


def test_guesses_save_steps(load):
    model = load(4)
    request = model.kernel.add_request([1, 2] * 5, max_new_tokens=30, ignore_eos=True, **TWO_TOKENS)
    steps = 0
    while model.kernel.finish_reason(request) is None:
        assert model.kernel()[request] == model.kernel.tokens(request)[-1]
        steps += 1
    accepted = model.kernel.num_accepted(request)
    assert accepted > 10
    assert steps == 30 - accepted


def test_an_end_token_among_guesses_ends_the_answer(load):
    (answer,) = load(0).generate("tell me", max_new_tokens=40, ignore_eos=True)
    for end in list(dict.fromkeys(answer.tokens))[::5]:
        length = answer.tokens.index(end) + 1
        model = load(4, eos_token_id=end)
        (ended,) = model.generate("tell me", max_new_tokens=40)
        assert ended.finish_reason == "stop"
        assert ended.tokens == answer.tokens[:length]


@pytest.mark.parametrize("count", [1, 2, 3, 17])
def test_no_answer_is_longer_than_asked_for(load, count):
    (answer,) = load(4).generate("one two one two", max_new_tokens=count, ignore_eos=True)
    assert len(answer.tokens) == count


def test_logits_are_those_of_the_last_token(load):
    plain, guessing = load(0).kernel, load(4).kernel
    request, other = (kernel.add_request([1, 2] * 5, **TWO_TOKENS) for kernel in (plain, guessing))
    for _ in range(6):
        guessing()
        while len(plain.tokens(request)) < len(guessing.tokens(other)):
            plain()
        assert plain.tokens(request) == guessing.tokens(other)
        assert plain.logits(request).tobytes() == guessing.logits(other).tobytes()


def test_pages_and_steps_that_are_too_small_for_guesses_do_without(load):
    expected = load(0).generate(PROMPTS, max_new_tokens=30)
    few = load(7, max_num_pages=16, max_seq_length=64)
    assert few.generate(PROMPTS, max_new_tokens=30) == expected
    exact = load(4, max_seq_length=24)
    request = exact.kernel.add_request([1, 2] * 5, ignore_eos=True)
    while len(exact.kernel.tokens(request)) < 15:
        exact.kernel()
    with pytest.raises(tensor_ops_decode.CapacityError, match="max_seq_length, 24"):
        exact.kernel()


def test_prompts_share_pages_beside_guesses(load):
    prompts = ["one two three one two three " + end for end in ("one", "two", "three")]
    expected = [load(0).generate(prompt, max_new_tokens=12)[0] for prompt in prompts]
    model = load(4)
    assert [model.generate(prompt, max_new_tokens=12)[0] for prompt in prompts] == expected


def test_a_penalty_of_repetitions_has_no_guesses(load):
    settings = {"max_new_tokens": 30, "repetition_penalty": 1.2}
    expected = load(0).generate(PROMPTS, **settings)
    answers = load(4).generate(PROMPTS, **settings)
    assert answers == expected
    assert all(answer.accepted_tokens == 0 for answer in answers)


def test_guesses_need_room_in_a_step_and_a_model(folder):
    with pytest.raises(ValueError, match=r"must be at least 44, got 32"):
        tensor_ops_decode.load(folder, "python", num_speculative_tokens=10, **OPTIONS)
    with pytest.raises(ValueError, match="num_speculative_tokens needs model="):
        tensor_ops_decode.PersistentKernel(num_speculative_tokens=1)
    with pytest.raises(ValueError, match="num_speculative_tokens must be an integer, 0 or larger"):
        tensor_ops_decode.load(folder, "python", num_speculative_tokens=-1)
