"""The registry in several threads, and called by what it calls itself.

A program that waits for a lock that it has itself does not end: `run` gives it a minute.
"""

import pytest


def test_threads_register_choose_and_read_again_at_once(ask, fake, tmp_path):
    path = fake(tmp_path / "one")
    assert ask("handler=prints", f"in_threads={path}") == ["handler set", "0 wrong"]


@pytest.mark.parametrize("repetition", range(3))
def test_one_of_many_threads_loads_and_warns(ask, fake, libraries, repetition):
    fake(libraries)
    *lines, warning = ask("first_use_in_threads", "default", TENSOR_OPS_BACKEND="cuda")
    assert lines == ["cpp 1.2.3 available"] * 2
    assert warning.startswith("tensor_ops: warning: backend 'cuda', preferred by")


def test_a_forked_child_chooses_anew_and_warns(ask, fake, libraries):
    fake(libraries)
    fake(libraries, "cuda", LOST_BY_FORK="", DEVICE_KIND="TENSOR_OPS_CUDA")
    assert ask("fork") == [
        "cuda 1.2.3 available",
        *["cpp 1.2.3 available"] * 2,
        "cuda 1.2.3 available 0",
        "tensor_ops: warning: backend 'cuda' is installed but cannot be used: its device does not "
        "survive a fork. Running on 'cpp' instead",
    ]


@pytest.mark.parametrize("macro", ["INITIALISER", "ENTRY_ASKS"])
def test_a_library_may_ask_the_registry_while_it_is_loaded(ask, fake, libraries, macro):
    fake(libraries, **{macro: ""})
    loading, refused, first, *others = ask("get=cpp", "get=cpp", "default", "available")
    assert loading == "while loading: cuda null"
    assert refused == (
        "while loading: backend 'cpp' cannot be used yet: its library is still being loaded, and "
        "what it does then asks for it"
    )
    assert [first, *others] == [
        *["cpp 1.2.3 available"] * 3,
        "cpp",
    ]


def test_a_warning_handler_may_ask_the_registry(ask, fake, libraries):
    fake(libraries)
    handler, warning, inside, default = ask("handler=asks", "default", TENSOR_OPS_BACKEND="cuda")
    assert handler == "handler set"
    assert warning.startswith(
        "handler: backend 'cuda', preferred by TENSOR_OPS_BACKEND, is unavail"
    )
    assert inside == "in the handler: cpp 1.2.3 available, cpp 1.2.3 available, cpp"
    assert default == "cpp 1.2.3 available"


def test_what_a_warning_handler_throws_leaves_every_call(ask, fake, libraries):
    fake(libraries)
    _, first, second = ask("handler=throws", "default", "default", TENSOR_OPS_BACKEND="cuda")
    assert first == second
    assert first.startswith("Error: backend 'cuda', preferred by TENSOR_OPS_BACKEND")
