"""Generation settings in a model's files: end tokens and sampling, and what they may not say."""

import json

import gguf
import pytest
from gguf_bytes import small_gguf

from tensor_ops_decode import FileFormatError, open_weights
from tensor_ops_decode.models.generation_settings import (
    end_tokens_of,
    generation_defaults,
    problem_with_end_tokens,
)
from tensor_ops_decode.weights.gguf import GgufFile
from tensor_ops_decode.weights.safetensors import SafetensorsFolder


class Folder(SafetensorsFolder):
    """A folder of Hugging Face without weights."""

    def __init__(self, path, **files):
        self.path, self.metadata = str(path), files.get("config", {})
        for name, values in files.items():
            (path / f"{name}.json").write_text(json.dumps(values), encoding="utf-8")


def write_gguf(path, write=lambda writer: None):
    writer = gguf.GGUFWriter(path, "llama")
    write(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return GgufFile(path)


@pytest.mark.parametrize(
    ("config", "generation", "expected"),
    [
        ({}, {}, set()),
        ({"eos_token_id": 2}, {}, {2}),
        ({"eos_token_id": 2}, {"eos_token_id": [7, 9]}, {2, 7, 9}),
        ({"eos_token_id": None}, {"eos_token_id": 0}, {0}),
        # PyTorch makes these of numbers, of which no token is negative.
        ({"eos_token_id": -1}, {"eos_token_id": [-1, 3.0, 5.9, True]}, {3, 5, 1}),
        ({"eos_token_id": []}, {"eos_token_id": -0.5}, {0}),
    ],
)
def test_end_tokens_of_a_folder_are_those_of_both_its_files(tmp_path, config, generation, expected):
    folder = Folder(tmp_path, config=config, generation_config=generation)
    assert end_tokens_of(folder) == expected
    assert problem_with_end_tokens(folder) is None


def test_a_folder_may_lack_a_generation_config(tmp_path):
    folder = Folder(tmp_path, config={"eos_token_id": 2})
    assert (end_tokens_of(folder), generation_defaults(folder)) == ({2}, {})


@pytest.mark.parametrize("bad", ["2", [1, "2"], [[1]], [None], {}, 2**70, float("nan")])
@pytest.mark.parametrize("name", ["config", "generation_config"])
def test_end_tokens_that_are_none_are_a_problem_that_names_the_file(tmp_path, name, bad):
    files = {"config": {}, "generation_config": {}} | {name: {"eos_token_id": bad}}
    folder = Folder(tmp_path, **files)
    assert end_tokens_of(folder) <= {1}
    found = problem_with_end_tokens(folder)
    assert found.startswith(f"{tmp_path}/{name}.json: eos_token_id: ")
    assert found.endswith("; expected tokens")


def test_end_tokens_of_a_gguf_end_texts_turns_and_messages(tmp_path):
    keys = {f"tokenizer__ggml__{name}_token_id": i for i, name in enumerate(["eos", "eot", "eom"])}
    file = open_weights(small_gguf(tmp_path / "a.gguf", **keys))
    assert end_tokens_of(file) == {0, 1, 2}
    assert end_tokens_of(open_weights(small_gguf(tmp_path / "b.gguf"))) == frozenset()


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, {}),
        ({"do_sample": False, "temperature": 0.6, "top_p": 0.9}, {}),
        ({"temperature": 0.6, "max_new_tokens": 99}, {"max_new_tokens": 99}),
        ({"repetition_penalty": 1.1, "top_k": 5}, {"repetition_penalty": 1.1}),
        # transformers takes these where the file asks for sampling and says no more.
        ({"do_sample": True}, {"temperature": 1.0, "top_k": 50}),
        (
            {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "top_k": None, "num_beams": 1},
            {"temperature": 0.6, "top_p": 0.9, "top_k": 50},
        ),
        (
            {"do_sample": True, "top_k": 20, "min_p": 0.1},
            {"temperature": 1.0, "top_k": 20, "min_p": 0.1},
        ),
        (
            {"do_sample": True, "typical_p": 0.9},
            {"temperature": 1.0, "top_k": 50, "typical_p": 0.9},
        ),
        ({"do_sample": True, "typical_p": 1.0}, {"temperature": 1.0, "top_k": 50}),
        ({"do_sample": False, "typical_p": 0.9}, {}),
        ({"do_sample": True, "top_k": 9, "top_p": 0}, {"temperature": 1.0, "top_k": 1}),
        ({"do_sample": 1, "top_p": 1.5}, {"temperature": 1.0, "top_k": 50}),
        ({"do_sample": 0, "temperature": "0.7", "top_k": -1}, {}),
        ({"max_new_tokens": 16.0}, {"max_new_tokens": 16}),
    ],
)
def test_defaults_of_a_folder_mean_what_they_mean_to_transformers(tmp_path, config, expected):
    folder = Folder(tmp_path, config={}, generation_config=config)
    assert generation_defaults(folder) == expected


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("temperature", -1),
        ("temperature", "0.6"),
        ("temperature", 0),
        ("top_k", 0.5),
        ("top_k", -1),
        ("top_p", -0.5),
        ("min_p", 1.5),
        ("typical_p", 0),
        ("max_new_tokens", 0),
        ("do_sample", "yes"),
    ],
)
def test_a_wrong_default_of_a_folder_is_an_error_that_names_file_and_key(tmp_path, key, value):
    settings = {"do_sample": True, key: value}
    folder = Folder(tmp_path, config={}, generation_config=settings)
    with pytest.raises(FileFormatError, match=rf"generation_config\.json: .*{key}.*got"):
        generation_defaults(folder)


def test_defaults_of_a_gguf_are_its_keys(tmp_path):
    def write(writer):
        writer.add_sampling_temp(0.5)
        writer.add_sampling_top_k(-1)
        writer.add_sampling_top_p(0.75)
        writer.add_sampling_min_p(0.25)
        writer.add_sampling_xtc_probability(0.5)
        writer.add_sampling_xtc_threshold(0.125)
        writer.add_sampling_penalty_repeat(1.25)

    found = generation_defaults(write_gguf(tmp_path / "a.gguf", write))
    settings = {"temperature": 0.5, "top_k": 0, "top_p": 0.75, "min_p": 0.25}
    settings |= {"xtc_probability": 0.5, "xtc_threshold": 0.125}
    assert found == settings | {"repetition_penalty": 1.25}
    assert generation_defaults(write_gguf(tmp_path / "b.gguf")) == {}
    # llama.cpp's temperature holds beside what else there is.
    found = generation_defaults(
        write_gguf(tmp_path / "c.gguf", lambda writer: writer.add_sampling_top_k(20))
    )
    assert found == {"temperature": 0.8, "top_k": 20}


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("temp", -1.0, {"temperature": 0}),
        ("top_p", 1.5, {"top_p": 1.0}),
        ("top_p", 0.0, {"top_k": 1}),
        ("top_p", -1.0, {"top_k": 1}),
        ("min_p", -1.0, {"min_p": 0}),
        ("min_p", 1.5, {"top_k": 1}),
        ("xtc_probability", -1.0, {"xtc_probability": 0}),
        ("xtc_probability", 1.5, {"xtc_probability": 1.0}),
        ("xtc_threshold", -1.0, {"xtc_threshold": 0}),
        ("xtc_threshold", 1.5, {"xtc_threshold": 1.0}),
    ],
)
def test_odd_defaults_of_a_gguf_mean_what_they_mean_to_llama_cpp(tmp_path, key, value, expected):
    def write(writer):
        writer.add_float32(f"general.sampling.{key}", value)

    found = generation_defaults(write_gguf(tmp_path / "a.gguf", write))
    assert found == {"temperature": 0.8} | expected


def test_a_top_k_of_a_gguf_is_read_as_an_integer(tmp_path):
    path = tmp_path / "a.gguf"
    file = write_gguf(path, lambda writer: writer.add_float32("general.sampling.top_k", 20.75))
    assert generation_defaults(file) == {"temperature": 0.8, "top_k": 20}


@pytest.mark.parametrize(
    ("key", "write"),
    [
        ("temp", lambda writer: writer.add_sampling_temp(float("nan"))),
        ("top_p", lambda writer: writer.add_sampling_top_p(float("nan"))),
        ("top_k", lambda writer: writer.add_string("general.sampling.top_k", "many")),
    ],
)
def test_a_wrong_default_of_a_gguf_is_an_error_that_names_file_and_key(tmp_path, key, write):
    file = write_gguf(tmp_path / "a.gguf", write)
    with pytest.raises(FileFormatError, match=rf"a\.gguf: key 'general\.sampling\.{key}'"):
        generation_defaults(file)


ODD = ["x" * 5000, [1] * 5000, {}, True, -1, 2**70, 10**400, float("nan"), float("inf"), 1e-320]


@pytest.mark.parametrize("value", ODD, ids=lambda value: f"{value!r:.9}")
def test_odd_values_are_taken_or_refused_in_few_words(tmp_path, value):
    keys = ["temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty"]
    for key in [*keys, "max_new_tokens", "do_sample", "eos_token_id"]:
        folder = Folder(tmp_path, config={}, generation_config={"do_sample": True, key: value})
        messages = [problem_with_end_tokens(folder)]
        try:
            generation_defaults(folder)
        except FileFormatError as error:
            messages.append(str(error))
        for message in filter(None, messages):
            assert message.startswith(f"{tmp_path}/generation_config.json: ")
            assert len(message) < len(str(tmp_path)) + 400
