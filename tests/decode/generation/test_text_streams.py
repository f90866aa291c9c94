"""Text on the standard streams of ``tensor-ops generate``, where Python has another encoding."""

import codecs
import io
import json
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tensor_ops.__main__ import main

WORDS = ["--backend=python", "--ignore-eos"]
MOST = "--max-new-tokens=2"
STREAMS = [("cp1252", "strict"), ("ascii", "surrogateescape"), ("utf-16", "strict")]
STREAMS += [("utf-8", "surrogateescape"), ("latin-1", "replace")]
each_encoding = pytest.mark.parametrize("streams", STREAMS, ids="-".join)
each_way = pytest.mark.parametrize("words", [["-"], ["--chat"]], ids=lambda words: words[0])


@pytest.fixture
def run(folder, monkeypatch, capsys):
    """Run the command with bytes on standard input, in an encoding of Python's streams."""

    def run(*words, stdin, streams):
        target = io.BytesIO()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), *streams))
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(target, *streams))
        status = main(["generate", str(folder), *WORDS, *words])
        return SimpleNamespace(
            status=status, stdout=target.getvalue(), stderr=capsys.readouterr().err
        )

    return run


@pytest.mark.parametrize("text", ["naïve", "“quoted” 日本", "a\r\nb"])
@each_encoding
def test_standard_input_is_utf_8(run, text, streams):
    """A token is a byte."""
    for mark in (b"", codecs.BOM_UTF8):
        given = {"stdin": mark + text.encode() + b"\n", "streams": streams}
        done = run("-", MOST, "--json", **given)
        assert done.status == 0, done.stderr
        assert json.loads(done.stdout)["prompt_tokens"] == len(text.encode())


@each_encoding
def test_messages_of_a_chat_are_utf_8(run, streams):
    given = {"stdin": codecs.BOM_UTF8 + "naïve\n日本\n".encode(), "streams": streams}
    done = run("--chat", MOST, "--json", **given)
    assert done.status == 0, done.stderr
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert records[0]["prompt_tokens"] == len("<user>naïve</><assistant>".encode())
    assert len(records) == 2


@each_way
@each_encoding
def test_standard_output_is_utf_8(run, words, streams):
    done = run(*words, stdin=b"Once", streams=streams)
    told = json.loads(run(*words, "--json", stdin=b"Once", streams=streams).stdout)
    assert (done.status, done.stdout.decode()) == (0, told["text"] + "\n")
    assert re.search(r"[^\x00-\xff]", told["text"])  # which none of these encodings has


@each_way
@each_encoding
def test_what_is_not_utf_8_is_an_error(run, words, streams):
    done = run(*words, stdin="na\u00efve".encode("latin-1"), streams=streams)
    assert done.status == 1
    assert done.stderr.startswith(
        "tensor-ops: error: standard input is not UTF-8: 'utf-8' codec can't decode byte 0xef"
    )


def test_the_encoding_of_python_is_none_of_a_pipe(folder):
    words = [sys.executable, "-m", "tensor_ops", "generate", folder, "-", *WORDS, MOST, "--json"]
    environment = os.environ | {"PYTHONIOENCODING": "cp1252"}
    done = subprocess.run(
        words, input="“é”".encode(), capture_output=True, env=environment, check=True
    )
    assert json.loads(done.stdout)["prompt_tokens"] == 8
