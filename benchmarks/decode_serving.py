"""What a server gives its clients, beside llama.cpp's server and `Model.generate`, in turn.

All clients of a case ask at once, each with a prompt of its own, and read all of their answers
before the next server has its turn. The servers have as many places as there are clients. Where
times to the first token are measured, answers come in pieces; else they come whole.

    python benchmarks/decode_serving.py MODEL --llama-server PATH --json RECORD.json

llama-server is built from the sources that llama-cpp-python brings, for this processor.
"""

import argparse
import asyncio
import json
import random
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import tensor_ops_decode
from decode_blocks import setting_of
from harness import command

OURS, LLAMA, ALONE = "tensor-ops serve", "llama-server", "Model.generate"
WORDS = ("river", "walks", "bright", "stone", "under", "when", "small", "garden", "light")


class Case(NamedTuple):
    """Clients that ask at the same time, and the tokens of their prompts and answers."""

    clients: int
    prompt: int
    new: int
    streams: bool = False


CASES = {
    "1 client": Case(1, 32, 256),
    "8 clients": Case(8, 32, 96),
    "32 clients": Case(32, 32, 64),
    "first of 8, prompts of 512": Case(8, 512, 8, streams=True),
}


def prompt(draw: random.Random, tokens: int) -> str:
    """Return a text of about the number of tokens, with a beginning of its own."""
    return " ".join([str(draw.random()), *draw.choices(WORDS, k=tokens - 12)])


async def ask(port: int, case: Case, text: str) -> tuple[int, float]:
    """Ask once; return the number of tokens, and the seconds to the first or to the end."""
    body = {
        "prompt": text,
        "max_tokens": case.new,
        "temperature": 0,
        "ignore_eos": True,
        "stream": case.streams,
    }
    data = json.dumps(body).encode()
    head = (
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Connection: close\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    start = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head.encode() + data)
    found, seconds = b"", 0.0
    while piece := await reader.read(1 << 16):
        found += piece
        if not seconds and case.streams and b"data: " in found:
            seconds = time.perf_counter() - start
    writer.close()
    if not found.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(found[:500].decode())
    if case.streams:
        return 0, seconds
    answer = json.loads(found[found.index(b"{") : found.rindex(b"}") + 1])
    return answer["usage"]["completion_tokens"], time.perf_counter() - start


def of_server(port: int, case: Case, texts: list[str]) -> float:
    """Return the tokens per second of all clients, or the median seconds to the first tokens."""

    async def all_clients() -> list[tuple[int, float]]:
        return await asyncio.gather(*(ask(port, case, text) for text in texts))

    start = time.perf_counter()
    found = asyncio.run(all_clients())
    if case.streams:
        return statistics.median(seconds for _, seconds in found)
    tokens = sum(count for count, _ in found)
    assert tokens == case.clients * case.new, found
    return tokens / (time.perf_counter() - start)


def of_generate(model: tensor_ops_decode.Model, case: Case, texts: list[str]) -> float:
    """Return the tokens per second of `Model.generate` for the same prompts."""
    start = time.perf_counter()
    model.generate(texts, max_new_tokens=case.new, ignore_eos=True)
    return case.clients * case.new / (time.perf_counter() - start)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


@contextmanager
def server(words: list[str], port: int) -> Iterator[int]:
    """Run a server, from the time when it is well until the end of the block."""
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            for _ in range(600):
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                        break
                except OSError:
                    time.sleep(0.1)
            else:
                raise RuntimeError(f"{words[0]} does not answer")
            yield port
        finally:
            process.kill()


def ways(
    stack: ExitStack, path: Path, llama: Path, case: Case
) -> dict[str, Callable[[list[str]], float]]:
    """Open what is compared for a case; return what measures each."""
    length = case.prompt + case.new + 64
    places, ports = str(case.clients), (free_port(), free_port())
    ours = [sys.executable, "-m", "tensor_ops", "serve", str(path), f"--port={ports[0]}"]
    ours += [f"--max-num-batched-requests={places}", f"--max-seq-length={length}"]
    theirs = [str(llama), "-m", str(path), "--port", str(ports[1]), "-t", "2", "-np", places]
    theirs += ["-c", str(case.clients * length), "--no-webui"]
    for words, port in ((ours, ports[0]), (theirs, ports[1])):
        stack.enter_context(server(words, port))
    found: dict[str, Callable[[list[str]], float]] = {
        OURS: lambda texts: of_server(ports[0], case, texts),
        LLAMA: lambda texts: of_server(ports[1], case, texts),
    }
    if case.clients == 1:
        options = {"max_num_batched_requests": 1, "max_seq_length": length}
        model = stack.enter_context(tensor_ops_decode.load(path, **options))
        found[ALONE] = lambda texts: of_generate(model, case, texts)
    return found


def measure(path: Path, llama: Path, rounds: int) -> dict[str, Any]:
    """Return tokens per second, or seconds to the first token, by case and server."""
    from threads import facts

    draw, cases = random.Random(0), {}
    for name, case in CASES.items():
        with ExitStack() as stack:
            compared = ways(stack, path, llama, case)
            figures: dict[str, list[float]] = {each: [] for each in compared}
            for number in range(rounds + 1):
                texts = [prompt(draw, case.prompt) for _ in range(case.clients)]
                for way, run in compared.items():
                    figure = run(texts)
                    if number:  # the first warms up
                        figures[way].append(figure)
        cases[name] = figures
        print(name, {way: statistics.median(each) for way, each in figures.items()})
    version = subprocess.run([llama, "--version"], capture_output=True, text=True, check=True)
    how = {"rounds": rounds, "llama_server": version.stderr.strip().partition("\n")[0]}
    return facts() | {"model": path.stem, "how": how, "cases": cases}


def blocks(record: dict[str, Any]) -> dict[str, str]:
    """Return the blocks of the page docs/decode_performance.md."""
    lines = [
        "| | measured | tokens/s, or ms | ours beside it | quartiles |",
        "|---|---|---|---|---|",
    ]
    for name, figures in record["cases"].items():
        is_time = "first" in name
        for way, each in figures.items():
            pairs = zip(figures[OURS], each, strict=True)
            ratios = [ours / theirs for ours, theirs in pairs]
            low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
            value = statistics.median(each) * (1000 if is_time else 1)
            beside = "" if way == OURS else f"{middle:.2f}"
            quartiles = "" if way == OURS else f"{low:.2f} to {high:.2f}"
            lines.append(f"| {name} | {way} | {value:.0f} | {beside} | {quartiles} |")
    return {"serving-setting": setting_of(record), "serving": "\n".join(lines)}


def main() -> None:
    parser = command.parser(__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("model", type=Path, help="a GGUF file")
    parser.add_argument("--llama-server", type=Path, required=True, help="the peer's program")
    parser.add_argument("--rounds", type=int, default=9, help="default: %(default)s")
    options = parser.parse_args()
    record = measure(options.model, options.llama_server, options.rounds)
    command.show(record, blocks, options.json)


if __name__ == "__main__":
    main()
