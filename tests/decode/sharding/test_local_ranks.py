"""Models that the ranks of one process share, from the prompt to the text."""

import contextlib
import threading

import numpy as np
import pytest

import tensor_ops_decode
from greedy_models import BOUND, NEW_TOKENS, expected
from small_families import FAMILIES, PROMPT, model_of, save
from tensor_ops_decode import PersistentKernel, RankError

SETTINGS = {"temperature": 0.9, "top_k": 40, "seed": 3, "repetition_penalty": 1.2}
TEXTS = ["The first", "Another one", "And a third that is longer"]


@pytest.fixture
def models(runnable, backend):
    """The models of two ranks, of few requests, so that a prompt waits for another one."""
    arguments = {"max_seq_length": 96, "max_num_batched_requests": 2, "num_workers": 1}
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(
                tensor_ops_decode.load(runnable, backend, world_size=2, mpi_rank=rank, **arguments)
            )
            for rank in range(2)
        ]


def outcomes(completions):
    return [(each.text, each.tokens, each.finish_reason) for each in completions]


@pytest.mark.parametrize(
    "settings",
    [{}, SETTINGS, {"stop": ["e"]}, {"logprobs": 2}, {"regex": "ab{2}[c-z]+", "temperature": 0.9}],
)
def test_answers_are_the_same_on_all_ranks(models, settings):
    answers = [each.generate(TEXTS, max_new_tokens=12, **settings) for each in models]
    assert outcomes(answers[0]) == outcomes(answers[1])
    if "logprobs" in settings:
        assert [each.logprobs for each in answers[0]] == [each.logprobs for each in answers[1]]


def test_each_rank_may_have_a_thread(models):
    found = [None, None]

    def run(rank):
        found[rank] = outcomes(models[rank].generate(TEXTS, max_new_tokens=12))

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found[0] is not None
    assert found[0] == found[1]


def test_the_length_is_what_all_ranks_have_room_for(folder, monkeypatch):
    monkeypatch.setattr("tensor_ops.machine.usable_memory", lambda: 6 * 2**20)
    with contextlib.ExitStack() as stack:
        made = [
            stack.enter_context(
                PersistentKernel(model=folder, backend="python", world_size=3, mpi_rank=rank)
            )
            for rank in range(3)
        ]
        limits = [each.explain().limits for each in made]
    assert limits[0] == limits[1] == limits[2]


@pytest.mark.parametrize("name", ["max_seq_length", "max_num_pages"])
def test_ranks_that_are_given_other_limits_are_an_error(folder, name):
    """Even where all plan with the same, as the least of all: the model's own are given here."""
    with PersistentKernel(model=folder, backend="python") as alone:
        usual = alone.explain().as_dict()["limits"][name]
    ranks = {"model": folder, "backend": "python", "world_size": 2}
    with (
        PersistentKernel(mpi_rank=0, **ranks) as first,
        PersistentKernel(mpi_rank=1, **ranks, **{name: usual}) as second,
    ):
        assert first.explain().limits == second.explain().limits
        first.compile()
        with pytest.raises(RankError, match=f"rank 1 has another {name} than rank 0: {usual}, not"):
            second.compile()


@pytest.mark.nightly
@pytest.mark.parametrize("family", FAMILIES)
def test_kernels_say_what_transformers_says(family, backend, tmp_path):
    model = model_of(family)
    path = save(model, family, tmp_path)
    tokens, logits = expected(model, PROMPT, NEW_TOKENS)
    heads = model.config.num_attention_heads
    for world_size in (each for each in (2, 3, 4, 9) if each <= heads):
        with contextlib.ExitStack() as stack:
            made = [
                stack.enter_context(
                    PersistentKernel(
                        model=path,
                        backend=backend,
                        world_size=world_size,
                        mpi_rank=rank,
                        max_seq_length=len(PROMPT) + NEW_TOKENS,
                        cache_dtype="float32",
                        num_workers=1,
                    )
                )
                for rank in range(world_size)
            ]
            for each in made:
                each.compile()
                each.add_request(PROMPT, ignore_eos=True)
            for _ in range(NEW_TOKENS):
                for each in made:
                    each()
            assert {tuple(each.tokens(0)) for each in made} == {tuple(tokens)}
            of_ranks = [each.logits(0) for each in made]
            assert all(np.array_equal(each, of_ranks[0]) for each in of_ranks)
            assert np.abs(of_ranks[0] - logits).max() < BOUND
