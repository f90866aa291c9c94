"""Ctrl-C anywhere in `Model.generate`: nothing of the requests stays in the kernel."""

import pytest

import tensor_ops_decode
from byte_models import save_model

# Where a request is added, ends or is removed.
FUNCTIONS = {
    *("Model.generate", "RunningAnswers.advance", "RunningAnswers._step", "RunningAnswers._end"),
    *("RunningAnswers.close", "Session._held", "PageTable.release"),
    *("Session.add_request", "Session.remove"),
    *("Requests.add", "Requests.remove", "Requests.retire"),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    save_model(folder)
    limits = {"max_seq_length": 16, "max_num_pages": 4, "page_size": 4}
    with tensor_ops_decode.load(folder, "python", max_num_batched_requests=1, **limits) as opened:
        yield opened


def test_nothing_stays_in_the_kernel(model, interrupt_everywhere):
    def generate():
        return model.generate([[1, 2, 3, 4, 5], [6]], max_new_tokens=1, ignore_eos=True)

    expected = generate()
    for _ in interrupt_everywhere(generate, FUNCTIONS):
        assert model.kernel.requests == ()
        assert model.kernel.has_room(16)
    assert generate() == expected
