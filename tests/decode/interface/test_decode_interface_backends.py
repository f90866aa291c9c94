"""The library of each native backend runs exported models as its Python module does."""

import subprocess

import numpy as np
import pytest

from exported_models import LIMITS, Driver, compiled, export, library_path, words
from tensor_ops_decode import PersistentKernel

# Options and prompts that every native backend runs.
OPTIONS = {"quantize": "q8_0", "cache_dtype": "float16"}
PROMPTS = [list(b"Once"), list(b"a prompt of several pages" * 2)]


@pytest.fixture
def native(backend):
    """The name of a backend that has a library."""
    if backend == "python":
        pytest.skip("the backend python has no library")
    return backend


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a small model, whose embeddings are the matrix of the logits too."""
    from byte_models import save_model  # which needs PyTorch

    made = tmp_path_factory.mktemp("tied")
    save_model(made, tied=True)
    return made


@pytest.fixture(scope="module")
def exported(folder, tmp_path_factory):
    """That model in a folder for programs without Python."""
    return export(folder, tmp_path_factory.mktemp("exported") / "model", **OPTIONS)


@pytest.fixture
def driver(native, driver_program):
    """Runs commands on exported models with the library of that backend."""
    return Driver(driver_program, backend=native)


def test_tokens_and_logits_are_those_of_python(folder, exported, native, driver):
    lines = [words("open", exported, 2)]
    for index, prompt in enumerate(PROMPTS):
        lines += ["sequence", words("append", index, *prompt)]
    first, second, tokens = driver(*lines, "run 0 1", "logits 0", "logits 1", "generate 5 0 1")[-3:]
    with PersistentKernel(model=folder, backend=native, **LIMITS, **OPTIONS) as kernel:
        kernel.compile()
        requests = [kernel.add_request(prompt, ignore_eos=True) for prompt in PROMPTS]
        logits = {}
        while any(len(kernel.tokens(each)) < 5 for each in requests):
            for request in kernel():
                logits.setdefault(request, kernel.logits(request).view(np.uint32))
        found = [np.array([int(word, 16) for word in line.split()]) for line in (first, second)]
        for bits, request in zip(found, requests, strict=True):
            assert np.array_equal(bits, logits[request])
        expected = [words(*kernel.tokens(request)[:5]) for request in requests]
        assert tokens == " ; ".join(expected) + " ;"


def test_wrong_arguments_of_the_c_interface(exported, native, tmp_path):
    options = ["-std=c99", "-Wno-missing-field-initializers"]
    program = compiled("cc", "wrong_arguments.c", tmp_path, *options)
    command = [program, library_path(native), f"tensor_ops_{native}_backend", exported]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "72 calls\n"), done.stdout + done.stderr


def test_workers_that_there_are_not_are_refused(exported, driver):
    (error,) = driver(words("open", exported, 2**30))
    assert "num_threads must be from 0 to " in error


def test_activations_that_cuda_has_not_are_refused(exported, native, driver):
    if native != "cuda":
        pytest.skip("the other backends have several")
    (error,) = driver(words("open", exported, 0, "int8"))
    assert "activations is 'int8', and the executor of cuda has 'int8x2', " in error
    assert "activations must be 'int8x2', 'int8', " in driver(words("open", exported, 0, "x"))[0]
