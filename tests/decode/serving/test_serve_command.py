"""``tensor-ops serve`` as a process: signals, the socket, and other clients."""

import os
import re
import signal
import socket
import subprocess
import sys

import httpx
import pytest

COMMAND = [sys.executable, "-m", "tensor_ops", "serve"]
LONG = {"prompt": "a", "max_tokens": 400, "ignore_eos": True, "stream": True}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from byte_models import save_model

    folder = tmp_path_factory.mktemp("served") / "bytes"
    folder.mkdir()
    save_model(folder, positions=512)
    return folder


@pytest.fixture
def started(folder):
    """The process of a server, and its address."""
    environment = {**os.environ, "TENSOR_OPS_API_KEY": "k"}
    with subprocess.Popen(
        [*COMMAND, folder, "--port=0"], stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        for line in process.stderr:
            if found := re.search(r"^bytes on (?:cpp|python): (http://127\.0\.0\.1:\d+)/v1$", line):
                break
        yield process, found[1]
        process.kill()


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_it_finish_what_runs(started, sent):
    process, address = started
    headers = {"authorization": "Bearer k"}
    with (
        httpx.Client(base_url=address, headers=headers, timeout=30) as http,
        http.stream("POST", "/v1/completions", json=LONG) as stream,
    ):
        lines = stream.iter_lines()
        next(lines)
        process.send_signal(sent)
        assert [*filter(None, lines)][-1] == "data: [DONE]"
    assert process.wait(30) == 0
    told = process.stderr.read()
    assert "Traceback" not in told
    assert "prompt" not in told


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once(started, sent):
    process, address = started
    headers = {"authorization": "Bearer k"}
    body = {**LONG, "n": 72}

    def read(lines):
        for line in lines:
            assert line != "data: [DONE]"
            process.send_signal(sent)  # two at a time may be one

    with httpx.stream("POST", f"{address}/v1/completions", json=body, headers=headers) as stream:
        lines = stream.iter_lines()
        next(lines)
        with pytest.raises(httpx.TransportError):
            read(lines)
    assert process.wait(30) == 0
    assert process.stderr.read() == ""


def test_llm_talks_to_it(started, tmp_path):
    _, address = started
    lines = ["- model_id: served", "  model_name: bytes", "  api_key_name: bytes"]
    lines.append(f"  api_base: {address}/v1")
    (tmp_path / "extra-openai-models.yaml").write_text("\n".join(lines))
    environment = {**os.environ, "LLM_USER_PATH": str(tmp_path), "LLM_LOAD_PLUGINS": ""}
    command = [sys.executable, "-m", "llm", "-m", "served", "--key", "k", "Hello"]
    options = ["-o", "max_tokens", "5", "-o", "temperature", "0"]
    texts = []
    for more in ([], ["--no-stream"]):
        done = subprocess.run(
            [*command, *options, *more],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            check=False,
            env=environment,
        )
        assert done.returncode == 0, done.stderr
        texts.append(done.stdout)
    assert texts[0] == texts[1]
    assert texts[0].strip()


def run(*words, **variables):
    return subprocess.run(
        [*COMMAND, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **variables},
    )


def test_a_port_in_use_is_said_before_the_model_is_opened():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = run("no-such-model", f"--port={port}")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"cannot listen at 127.0.0.1, port {port}: Address already in use" in done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--port=70000"], "--port must be from 0 to 65535, got 70000"),
        (["--max-waiting=-1"], "--max-waiting must be 0 or larger, got -1"),
        (["--max-seconds=nan"], "--max-seconds must be 0.001 or larger, got nan"),
        (["--host=no.such.host.invalid"], "cannot listen at no.such.host.invalid, port 8000"),
    ],
)
def test_wrong_options_are_errors(words, says):
    done = run("no-such-model", *words)
    assert done.returncode in (1, 2)
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_without_its_packages_it_says_how_to_get_them(tmp_path):
    (tmp_path / "uvicorn.py").write_text("raise ModuleNotFoundError('no', name='uvicorn')")
    done = run("no-such-model", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert "serve needs uvicorn, which is not installed: pip install" in done.stderr
