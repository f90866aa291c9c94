"""``tensor-ops generate`` and ``tensor-ops export``."""

import json
import os
import signal
import subprocess
import sys

import pytest

import tensor_ops_decode
from byte_models import SPARE, save_model
from tensor_ops_decode import Program


def run_process(*words, **variables):
    command = [sys.executable, "-m", "tensor_ops", *map(str, words)]
    environment = {**os.environ, **variables}
    return subprocess.run(
        command, capture_output=True, encoding="utf-8", check=False, env=environment
    )


def test_the_text_goes_to_standard_output_and_the_speed_to_standard_error(folder):
    words = ["Once", "--backend=python", "--max-new-tokens=6", "--ignore-eos"]
    done = run_process("generate", folder, *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("\n")
    assert "4 tokens read" in done.stderr
    assert "6 written" in done.stderr
    assert "tokens per second, on python" in done.stderr


def test_json_is_one_object(run, folder):
    words = ["--backend=python", "--max-new-tokens=6", "--ignore-eos", "--json"]
    record = json.loads(run("generate", folder, "Once", *words).stdout)
    assert len(record["tokens"]) == 6
    assert record["finish_reason"] == "length"
    assert (record["backend"], record["shared_tokens"]) == ("python", 0)
    plain = run("generate", folder, "Once", *words[:-1])
    assert plain.stdout == record["text"] + "\n"


def test_a_prompt_comes_from_standard_input(run, folder):
    words = ["--backend=python", "--max-new-tokens=3", "--json"]
    given = run("generate", folder, "-", *words, stdin="Once")
    assert json.loads(given.stdout)["prompt_tokens"] == 4


def test_a_special_token_that_is_named_to_stop_ends_the_text(run, folder):
    settings = {"temperature": 3.0, "max_new_tokens": 40, "ignore_eos": True}
    with tensor_ops_decode.load(folder, "python") as model:
        answers = model.generate(["a"] * 40, **settings)
    seed = next(i for i, each in enumerate(answers) if SPARE in each.tokens)
    tokens = list(answers[seed].tokens)
    words = ["--backend=python", "--temperature=3", "--max-new-tokens=40", "--ignore-eos", "--json"]
    done = run("generate", folder, "a", f"--seed={seed}", "--stop=<spare>", *words)
    record = json.loads(done.stdout)
    assert record["tokens"] == tokens[: tokens.index(SPARE) + 1]
    assert record["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("given", "length"),
    [("Once\n", 4), ("Once\r\n", 4), ("Once\n\n", 5), ("Once\r", 5), ("\nOnce", 5), ("Once ", 5)],
    ids=repr,
)
def test_a_newline_at_the_end_of_standard_input_is_not_of_the_prompt(run, folder, given, length):
    words = ["--backend=python", "--max-new-tokens=1", "--json"]
    done = run("generate", folder, "-", *words, stdin=given)
    assert json.loads(done.stdout)["prompt_tokens"] == length
    done = run("generate", folder, "-", *words, "--chat", stdin=given)
    assert json.loads(done.stdout)["prompt_tokens"] == length + len("<user></><assistant>")


def test_ctrl_c_at_any_time_is_quiet(folder, interrupted_start):
    words = ["generate", folder, "Once", "--backend=python", "--max-new-tokens=2"]
    for step in range(6):
        status, told = interrupted_start(words, step * 0.3)
        # As Python ends it gives the signal back to the system, which shells report as 130 too.
        assert status in (0, 130, -signal.SIGINT), step
        assert "Traceback" not in told, step
        assert "ignored" not in told, step


@pytest.mark.parametrize("forced", ["mps", "torch", "python"])
def test_a_force_is_named_in_the_error(folder, forced):
    words = ["--backend=cpp"] if forced == "python" else []
    done = run_process("generate", folder, "Once", *words, TENSOR_OPS_FORCE_BACKEND=forced)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"TENSOR_OPS_FORCE_BACKEND forces {forced!r}" in done.stderr
    assert done.stderr.endswith("; to lift it, unset TENSOR_OPS_FORCE_BACKEND\n")


@pytest.mark.parametrize("word", ["-x", "--y"])
def test_a_prompt_that_begins_with_a_dash_comes_after_two(run, folder, word):
    done = run("generate", folder, word)
    assert done.returncode == 2
    assert done.stderr.endswith(
        f"error: unrecognized arguments: {word}; what begins with a dash and is no option comes "
        "last, after --\n"
    )
    done = run("generate", folder, "--backend=python", "--max-new-tokens=1", "--json", "--", word)
    assert json.loads(done.stdout)["prompt_tokens"] == len(word)


def test_answers_follow_what_a_file_describes(run, folder, tmp_path):
    schema, grammar = tmp_path / "schema.json", tmp_path / "grammar.lark"
    schema.write_text('{"enum": ["red", "blue"]}')
    grammar.write_text('start: "yes" | "no"')
    words = ["generate", folder, "a", "--backend=python"]
    assert run(*words, f"--json-schema={schema}").stdout in ('"red"\n', '"blue"\n')
    assert run(*words, f"--grammar={grammar}").stdout in ("yes\n", "no\n")
    assert run(*words, "--regex=[ab]{3}").stdout.strip("ab\n") == ""
    done = run(*words, f"--grammar={tmp_path / 'none'}")
    assert done.returncode == 1
    assert "none: No such file or directory" in done.stderr
    done = run(*words, "--regex=a", f"--grammar={grammar}")
    assert "not allowed with argument" in done.stderr


def test_chat_uses_the_template(run, folder):
    words = ["--chat", "--backend=python", "--max-new-tokens=3", "--json"]
    record = json.loads(run("generate", folder, "hi", "--system=be brief", *words).stdout)
    text = "<system>be brief</><user>hi</><assistant>"
    assert record["prompt_tokens"] == len(text)


def test_the_defaults_of_the_model_hold_where_no_option_does(run, tmp_path):
    save_model(tmp_path)
    config = {"do_sample": True, "temperature": 5.0, "max_new_tokens": 7}
    (tmp_path / "generation_config.json").write_text(json.dumps(config), encoding="utf-8")

    def tokens(*words):
        words = ["Once", "--backend=python", "--ignore-eos", "--json", *words]
        return json.loads(run("generate", tmp_path, *words).stdout)["tokens"]

    length = "--max-new-tokens=7"
    assert tokens("--model-defaults", "--temperature=0") == tokens(length)
    found = tokens("--model-defaults")
    assert found == tokens("--temperature=5", "--top-k=50", length) != tokens(length)
    xtc = "--xtc-probability=1", "--xtc-threshold=0.001", "--dry-multiplier=0.8"
    assert tokens("--model-defaults", "--typical-p=0.5", *xtc) != found


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["missing.gguf", "Once"], "missing.gguf"),
        ([".", "Once"], "config.json"),
        (["FOLDER", "", "--backend=python"], "empty"),
        (["FOLDER", "Once", "--backend=nothing"], "nothing"),
        (["FOLDER", "Once", "--backend=python", "--temperature=-1"], "temperature"),
        (["FOLDER", "Once", "--backend=python", "--max-seq-length=0"], "max_seq_length"),
    ],
)
def test_failures_are_one_line_and_status_1(run, folder, tmp_path, words, message):
    words = [folder if word == "FOLDER" else word for word in words]
    words[0] = tmp_path if words[0] == "." else words[0]
    done = run("generate", *words)
    assert done.returncode == 1
    assert done.stderr.startswith("tensor-ops: error: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_chat_without_template_is_an_error(run, tmp_path):
    save_model(tmp_path, template=None)
    done = run("generate", tmp_path, "hi", "--chat", "--backend=python")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "no chat template" in done.stderr


@pytest.mark.parametrize(("closed", "status"), [("<&-", 1), (">&-", 0), ("2>&-", 0)])
def test_streams_may_be_closed(folder, closed, status):
    words = f"{sys.executable} -m tensor_ops generate {folder} - --backend=python {closed}"
    done = subprocess.run(
        ["bash", "-c", words], input="a", capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode == status
    assert "Traceback" not in done.stderr
    assert bool(done.stdout) == (closed == "2>&-")
    assert "tokens per second" not in done.stdout


@pytest.mark.parametrize("encoding", ["utf-8:strict", "utf-8:surrogateescape"])
def test_standard_input_that_is_not_utf_8_is_an_error(folder, monkeypatch, encoding):
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    words = [sys.executable, "-m", "tensor_ops", "generate", folder, "-", "--backend=python"]
    done = subprocess.run(words, input=b"a\xffb", capture_output=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(b"tensor-ops: error: standard input is not UTF-8: ")


def test_json_has_logprobs_if_asked_for(run, folder):
    words = ["Once", "--backend=python", "--max-new-tokens=3", "--json", "--logprobs=2"]
    record = json.loads(run("generate", folder, *words).stdout)
    assert len(record["logprobs"]) == len(record["tokens"])
    (token, logprob), _ = record["logprobs"][0]["likeliest"]
    assert (token, logprob) == (record["tokens"][0], record["logprobs"][0]["logprob"])


@pytest.mark.filterwarnings("default:the prompt is read again")
def test_a_prompt_is_kept_for_the_next_command(run, folder, tmp_path):
    kept = tmp_path / "kept"
    words = ["--backend=python", "--max-new-tokens=3", "--ignore-eos", "--json"]
    words.append(f"--prompt-cache={kept}")

    def answer(prompt):
        return json.loads(run("generate", folder, prompt, *words).stdout)

    prompt = "Once upon a time there was a cat"
    first = answer(prompt)
    assert (first["prompt_tokens"], first["shared_tokens"]) == (32, 0)
    again = answer(prompt)
    assert again["shared_tokens"] == 16  # the last token is computed
    assert again["tokens"] == first["tokens"]
    written = kept.read_bytes()
    assert answer(prompt + " that slept.")["shared_tokens"] == 32
    assert kept.read_bytes() == written
    assert answer("Another text, which takes the place of the other")["shared_tokens"] == 0
    assert kept.read_bytes() != written
    kept.write_bytes(b"nothing")
    done = run("generate", folder, prompt, *words)
    assert json.loads(done.stdout)["shared_tokens"] == 0
    assert f"the prompt is read again, and kept: {kept}" in done.stderr
    assert kept.read_bytes() == written
    assert answer("Once")["shared_tokens"] == 0  # no full page: nothing is kept of it
    assert kept.read_bytes() == written


def test_wrong_usage_has_status_2(run, folder):
    assert run("generate", folder, "Once", "--logprobs=1").returncode == 2
    assert run("generate", folder).returncode == 2
    assert run("generate", folder, "Once", "--system=x").returncode == 2


def test_export_writes_a_program(run, folder, tmp_path):
    output = tmp_path / "program.json"
    words = ["--backend=python", "--max-seq-length=64"]
    assert run("export", folder, output, *words).returncode == 0
    program = Program.from_json(output.read_text(encoding="utf-8"))
    assert program.limits.max_seq_length == 64
    assert run("export", folder, "-", *words).stdout == output.read_text(encoding="utf-8")
