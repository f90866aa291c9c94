"""Settings of the environment that C++ programs cannot follow, and null pointers as texts."""

import pytest

FORCE, PRIORITY = "TENSOR_OPS_FORCE_BACKEND", "TENSOR_OPS_BACKEND_PRIORITY"


@pytest.mark.parametrize(
    ("forced", "why"),
    [
        ("python", ", which C++ programs do not have"),
        ("opencl:gpu", ", which C++ programs do not have"),
        ("zzz_wizard", ", which C++ programs do not have"),
        ("cuda", ""),
    ],
)
def test_a_model_is_opened_on_the_backend_that_is_forced_or_on_none(
    ask, fake, libraries, forced, why
):
    fake(libraries)
    name = forced.split(":")[0]
    (line,) = ask("open=cpp", **{FORCE: forced})
    assert line == (
        f"ConfigError: a model was to be opened on the backend 'cpp', but {FORCE} forces "
        f"'{name}'{why}; set it to 'cpp', or take it out"
    )


@pytest.mark.parametrize("settings", [{}, {FORCE: "cpp"}, {FORCE: "cpu"}, {PRIORITY: "cuda"}])
def test_what_does_not_force_another_backend_lets_a_model_be_opened(ask, fake, libraries, settings):
    fake(libraries)
    (line,) = ask("open=cpp", **settings)
    assert line.startswith("UnavailableError: backend 'cpp' runs no models")


def test_a_name_in_the_priority_that_nothing_has_is_one_warning(ask, fake, libraries):
    fake(libraries)
    *lines, warning = ask(
        "available",
        "default",
        "reason=cuda",
        "default",
        **{PRIORITY: "zzz_wizard:gpu, opencl, cpp"},
    )
    assert lines[:2] == ["cpp", "cpp 1.2.3 available"]
    assert warning == (
        "tensor_ops: warning: backend 'zzz_wizard', named in TENSOR_OPS_BACKEND_PRIORITY, is "
        "passed over: no backend of that name is known in C++; if a plug-in provides it, it is a "
        "module of Python and runs there alone"
    )
    assert len(lines) == 4


@pytest.mark.parametrize(
    ("place", "what"),
    [
        ("folder", "the folder of a model"),
        ("folder with a table", "the folder of a model"),
        ("environment", "search_python_environment(): prefix"),
        ("op", "an op's name"),
        ("has_op", "an op's name"),
        ("array", "the name of an array"),
        ("number", "the name of a setting"),
        ("choice", "the name of a setting"),
    ],
)
def test_a_null_pointer_is_no_text(ask, fake, libraries, place, what):
    fake(libraries)
    expected = f"ValueError: {what} must be a string, got a null pointer"
    assert ask(f"null_given={place}") == [expected]
