"""`PersistentKernel.profile` and `read_bandwidth`, on every backend that runs programs."""

import numpy as np
import pytest

from tensor_ops import BackendError, PersistentKernel
from tensor_ops_decode import CapacityError, reference

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


@pytest.fixture
def kernel(stand_in):
    return stand_in(
        max_seq_length=16, max_num_batched_tokens=4, max_num_batched_requests=2, num_workers=2
    )


def greedy(kernel, step):
    """Return what five steps write: two that read the prompt, and three more."""
    kernel.reset()
    request = kernel.add_request(PROMPT, ignore_eos=True)
    steps = [step() for _ in range(5)]
    return [tokens.get(request) for tokens in steps], kernel.logits(request)


def test_a_profiled_step_is_a_step(kernel):
    tokens, logits = greedy(kernel, kernel)
    found, found_logits = greedy(kernel, lambda: kernel.profile().tokens)
    assert found == tokens
    np.testing.assert_array_equal(found_logits, logits)


def test_every_thread_works_or_waits(kernel):
    kernel.add_request(PROMPT)
    times = kernel.profile()
    # Fewer threads may take part where other processes take the processors.
    assert 1 <= len(times.work) <= kernel.explain().num_workers
    assert times.work.shape == times.wait.shape == (len(times.work), len(kernel.program.nodes))
    assert times.work.min() >= 0 <= times.wait.min()
    assert np.all((times.work + times.wait).sum(axis=1) <= times.seconds * (1 + 1e-9))
    assert np.all(times.work.sum(axis=1) > 0)


def test_steps_before_have_no_part_in_a_profile(kernel):
    request = kernel.add_request(PROMPT, ignore_eos=True)
    for step in (kernel, kernel.profile, kernel):
        step()
    assert len(kernel.tokens(request)) == 2
    kernel.remove(request)
    kernel.add_request(PROMPT[::-1])
    times = kernel.profile()  # of half of the prompt, so that no token is chosen
    assert times.tokens == {}
    names = [node.kind for node in kernel.program.nodes]
    assert np.all(times.work[:, names.index("argmax")] == 0)


def test_without_a_request_the_default_one_is_profiled(kernel):
    assert list(kernel.profile().tokens) == list(kernel.requests)


def test_errors_are_those_of_a_call(kernel):
    request = kernel.add_request(PROMPT, ignore_eos=True)
    while len(kernel.tokens(request)) < 9:
        kernel.profile()
    with pytest.raises(CapacityError, match="has come to max_seq_length, 16"):
        kernel.profile()
    kernel.reset()
    kernel.remove(kernel.add_request([1]))
    with pytest.raises(RuntimeError, match="no request is active"):
        kernel.profile()
    kernel.close()
    for measure in (kernel.profile, kernel.read_bandwidth):
        with pytest.raises(ValueError, match="the kernel is closed"):
            measure()


def test_a_kernel_that_is_not_compiled_measures_nothing(runner):
    kernel = PersistentKernel(backend=runner)
    for measure in (kernel.profile, kernel.read_bandwidth):
        with pytest.raises(RuntimeError, match=r"call compile\(\) first"):
            measure()


def test_weights_are_read_at_some_speed(kernel):
    assert 0 < kernel.read_bandwidth() < 1e15


def test_an_executor_that_cannot_measure_is_an_error_and_runs_on(monkeypatch):
    monkeypatch.delattr(reference.ReferenceExecutable, "profile")
    monkeypatch.delattr(reference.ReferenceExecutable, "read_bandwidth")
    with PersistentKernel(backend="python", max_seq_length=64) as kernel:
        kernel.compile()
        for name in ("profile", "read_bandwidth"):
            with pytest.raises(BackendError, match=rf"backend 'python' has no {name}\(\); measure"):
                getattr(kernel, name)()
        assert kernel.requests == ()
        assert kernel()
