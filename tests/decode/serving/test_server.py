"""Who may ask, how many may wait, and what becomes of clients that go away or read slowly."""

import json
import re
import socket
import threading
import time

import httpx
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import tensor_ops_decode
from byte_models import save_model
from running_server import running_server

LONG = {"prompt": "a", "max_tokens": 480, "ignore_eos": True, "temperature": 0}


def until(condition):
    """Wait for what another thread does, at most so long that no test hangs."""
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def gauges(http):
    """Return how many answers take part in steps, and how many wait."""
    text = http.get("/metrics").text
    found = re.findall(r"^tensor_ops_(?:running|waiting)_answers (\S+)$", text, re.MULTILINE)
    return [*map(float, found)]


@pytest.fixture
def slow(model, monkeypatch):
    """Let each call of the kernel take its time, so that answers are on their way for seconds."""
    run = model.kernel.run

    def slowly(steps, **how):
        time.sleep(0.02)
        return run(min(steps, 4), **how)

    monkeypatch.setattr(model.kernel, "run", slowly)


@pytest.fixture
def http(model):
    limits = {"most_waiting": 2, "most_seconds": 30}
    with (
        running_server(model, "bytes", limits=limits) as address,
        httpx.Client(base_url=address, timeout=20) as http,
    ):
        yield http


def test_a_key_is_asked_for(model):
    with running_server(model, "bytes", api_key="se cret") as address:
        assert httpx.get(f"{address}/health").status_code == 200
        for headers in (
            {},
            {"authorization": "Bearer secret"},
            {"authorization": "se cret"},
            {"authorization": "Basic se cret"},
        ):
            done = httpx.get(f"{address}/v1/models", headers=headers)
            assert (done.status_code, done.headers["www-authenticate"]) == (401, "Bearer")
            assert done.json()["error"]["code"] == "invalid_api_key"
        for scheme in ("Bearer", "bearer"):
            right = {"authorization": f"{scheme} se cret"}
            assert httpx.get(f"{address}/v1/models", headers=right).status_code == 200


def test_pages_of_other_sites_may_ask_if_they_are_named(model, http):
    asked = {"origin": "https://a.example", "access-control-request-method": "POST"}
    assert http.options("/v1/completions", headers=asked).status_code == 405
    with running_server(model, "b", cors_origins=["https://a.example"], api_key="k") as address:
        done = httpx.options(f"{address}/v1/completions", headers=asked)
        assert done.headers["access-control-allow-origin"] == "https://a.example"
        other = asked | {"origin": "https://b.example"}
        done = httpx.options(f"{address}/v1/completions", headers=other)
        assert "access-control-allow-origin" not in done.headers


def test_a_client_that_goes_away_frees_its_place(slow, http):
    with http.stream("POST", "/v1/completions", json={**LONG, "stream": True}) as stream:
        lines = stream.iter_lines()
        next(lines)
        assert gauges(http) == [1, 0]
    until(lambda: gauges(http) == [0, 0])
    with pytest.raises(httpx.ReadTimeout):
        http.post("/v1/completions", json=LONG, timeout=0.2)
    until(lambda: gauges(http) == [0, 0])


def test_who_comes_when_too_many_wait_is_told_to_come_again(slow, http):
    body = {**LONG, "max_tokens": 160}
    threads = [
        threading.Thread(target=http.post, args=("/v1/completions",), kwargs={"json": body})
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    until(lambda: gauges(http) == [4, 2])
    done = http.post("/v1/completions", json=LONG)
    assert (done.status_code, done.headers["retry-after"]) == (429, "1")
    assert "6 answers are computed or wait already" in done.json()["error"]["message"]
    for thread in threads:
        thread.join()
    assert gauges(http) == [0, 0]
    done = http.post("/v1/completions", json={**LONG, "n": 7})
    assert done.status_code == 400
    assert "the request asks for 7 answers" in done.json()["error"]["message"]


def test_an_answer_that_takes_too_long_is_an_error(slow, model):
    with running_server(model, "bytes", limits={"most_seconds": 0.2}) as address:
        done = httpx.post(f"{address}/v1/completions", json=LONG)
        assert (done.status_code, done.json()["error"]["message"]) == (
            504,
            "the answer took longer than the server's 0.2 s",
        )
        done = httpx.post(f"{address}/v1/completions", json={**LONG, "stream": True})
        assert done.status_code == 200
        last = done.text.strip().splitlines()[-1]
        assert json.loads(last.removeprefix("data: "))["error"]["type"] == "server_error"


def test_a_long_text_holds_up_no_other_thread(model):
    found = []
    thread = threading.Thread(target=lambda: found.append(model.tokenizer.encode("é" * 300_000)))
    thread.start()
    num_turns = 0
    while thread.is_alive():
        time.sleep(0.001)
        num_turns += 1
    assert found == [[0xC3, 0xA9] * 300_000]
    assert num_turns > 10


def test_embeddings_wait_for_room_while_answers_go_on(slow, http):
    times = []

    def read():
        with http.stream("POST", "/v1/completions", json={**LONG, "stream": True}) as stream:
            times.extend(time.monotonic() for _ in stream.iter_lines())

    # The last one waits, and takes no place before the embeddings.
    others = [
        threading.Thread(target=http.post, args=("/v1/completions",), kwargs={"json": body})
        for body in ({**LONG, "max_tokens": 200, "n": 3}, LONG)
    ]
    reader = threading.Thread(target=read)
    for thread, expected in zip((reader, *others), ([1, 0], [4, 0], [4, 1]), strict=True):
        thread.start()
        until(lambda expected=expected: gauges(http) == expected)
    start = time.monotonic()
    assert http.post("/v1/embeddings", json={"input": ["a", "b"]}).status_code == 200
    end = time.monotonic()
    for thread in (reader, *others):
        thread.join(20)
    assert sum(start < each < end for each in times) > 5
    assert end < times[-1]


def test_a_constraint_that_takes_too_long_is_an_error(model):
    grammar = 'start: ("a" | "b")* ' * 1500
    with (
        running_server(model, "bytes", limits={"most_seconds": 0.05}) as address,
        httpx.Client(base_url=address, timeout=30) as http,
    ):
        body = {"prompt": "a", "max_tokens": 1, "grammar": grammar.replace("* start:", "* ")}
        slow = [http.post("/v1/completions", json=body) for _ in range(2)]
        assert {each.status_code for each in slow} == {504}
        assert "longer than the server's 0.05 s" in slow[0].json()["error"]["message"]
        assert http.get("/health").status_code == 200


def test_a_slow_reader_holds_up_nobody(http):
    host, port = http.base_url.host, http.base_url.port
    body = json.dumps({**LONG, "stream": True, "logprobs": 20}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        slow.connect((host, port))
        slow.sendall(head.encode() + body)  # and reads nothing
        for _ in range(3):
            assert http.post("/v1/completions", json={**LONG, "max_tokens": 20}).status_code == 200
        until(lambda: gauges(http) == [0, 0])  # its answer has ended all the same
        found = b""
        while not found.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"):
            piece = slow.recv(1 << 16)
            assert piece
            found += piece


def test_a_model_that_fails_is_said(model, http, monkeypatch):
    def failing(*_, **__):
        raise RuntimeError("the memory is gone")

    monkeypatch.setattr(model.kernel, "run", failing)
    done = http.post("/v1/completions", json=LONG)
    assert (done.status_code, done.json()["error"]["message"]) == (
        503,
        "the model has failed: the memory is gone",
    )
    assert http.get("/health").json() == {"status": "failed", "reason": "the memory is gone"}
    assert http.post("/v1/completions", json=LONG).status_code == 503


def test_requests_that_come_while_a_model_fails_end(model, http, monkeypatch):
    has_begun, may_fail = threading.Event(), threading.Event()

    def failing(*_, **__):
        has_begun.set()
        may_fail.wait(20)
        raise RuntimeError("the memory is gone")

    monkeypatch.setattr(model.kernel, "run", failing)
    paths = ["/v1/completions", "/v1/completions", "/v1/embeddings", "/v1/embeddings"]
    bodies = [LONG, LONG, {"input": "a"}, {"input": "b"}]
    statuses = []

    def ask(path, body):
        statuses.append(http.post(path, json=body).status_code)

    threads = [threading.Thread(target=ask, args=each) for each in zip(paths, bodies, strict=True)]
    threads[0].start()
    assert has_begun.wait(20)
    for thread in threads[1:]:
        thread.start()
    until(lambda: gauges(http) == [1, 1])
    time.sleep(0.2)  # for those that no gauge shows
    may_fail.set()
    for thread in threads:
        thread.join(20)
    assert statuses == [503] * 4
    assert gauges(http)[1] == 0


def test_logits_that_are_no_numbers_are_an_error_of_one_request(tmp_path):
    save_model(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    tensors["model.embed_tokens.weight"][ord("N")] = np.nan
    save_file(tensors, path, {"format": "pt"})
    with (
        tensor_ops_decode.load(tmp_path, max_num_batched_requests=2) as model,
        running_server(model, "bytes") as address,
        httpx.Client(base_url=address) as http,
    ):
        good, bad = ({"prompt": prompt, "max_tokens": 3} for prompt in ("a", "N"))
        done = http.post("/v1/completions", json={**bad, "prompt": ["a", "N"]})
        assert (done.status_code, done.json()["error"]["type"]) == (500, "server_error")
        assert "answer 1: " in done.json()["error"]["message"]
        done = http.post("/v1/completions", json={**bad, "stream": True})
        assert "logits" in json.loads(done.text.strip().splitlines()[-1][6:])["error"]["message"]
        assert http.post("/v1/completions", json=good).status_code == 200


def test_metrics_count_errors_of_the_server(model, monkeypatch):
    monkeypatch.setattr(model.answering, "answers", lambda *_, **__: {}["secret"])
    with running_server(model, "bytes") as address:
        done = httpx.post(f"{address}/v1/completions", json=LONG)
        assert (done.status_code, done.json()["error"]["type"]) == (500, "server_error")
        text = httpx.get(f"{address}/metrics").text
        assert 'path="/v1/completions",status="500"} 1.0' in text


def test_prompts_are_counted_before_they_are_read(http):
    done = http.post("/v1/completions", json={"prompt": ["a"] * 500_000, "n": 2})
    assert done.status_code == 400
    assert "the request asks for 1000000 answers" in done.json()["error"]["message"]
    assert done.elapsed.total_seconds() < 5


def test_metrics_count(http):
    http.post("/v1/completions", json={**LONG, "max_tokens": 5})
    http.post("/v1/completions", json={})
    text = http.get("/metrics").text
    for line in (
        'tensor_ops_requests_total{path="/v1/completions",status="200"} 1.0',
        'tensor_ops_requests_total{path="/v1/completions",status="400"} 1.0',
        'tensor_ops_tokens_total{kind="prompt"} 1.0',
        'tensor_ops_tokens_total{kind="generated"} 5.0',
        "tensor_ops_first_token_seconds_count 1.0",
    ):
        assert line in text
