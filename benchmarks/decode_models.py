"""How fast a GGUF model decodes and reads prompts here, beside llama.cpp and transformers.

Each engine is a process of its own. They take turns, one run each, and all but one are stopped: a
ratio is of runs next to each other on the same machine. The read bandwidth is measured in the same
turns, because that of a shared machine changes from minute to minute.

    python benchmarks/decode_models.py MODEL.gguf --json benchmarks/results/decode_models.json
    python benchmarks/decode_models.py MODEL.gguf --llama-python /path/to/bin/python
    python benchmarks/decode_models.py --report

The last brings the page up to date, from this record and from that of decode_speculation.py.

llama.cpp is what llama-cpp-python of the interpreter ``--llama-python`` was built with. An engine
that is not installed is left out, which the record says.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "decode_performance.md"
RECORDS = ROOT / "benchmarks" / "results"
PROMPT, NEW, LONG_PROMPT, BATCH = 32, 128, 512, 8
CASES = ("decode", "prompt", "batch")
# Name, kind and settings. The first is what the others are compared with.
ENGINES: dict[str, dict[str, Any]] = {
    "llama.cpp, 2 threads": {"kind": "llama", "threads": 2},
    "llama.cpp, 1 thread": {"kind": "llama", "threads": 1},
    "cpp, 2 threads": {"kind": "ours", "threads": 2},
    "cpp, 1 thread": {"kind": "ours", "threads": 1},
    "cpp, 2 threads, int8": {"kind": "ours", "threads": 2, "activations": "int8"},
    "transformers, bfloat16": {"kind": "transformers", "threads": 2, "dtype": "bfloat16"},
}
TOKENS = [(37 * i) % 20000 + 100 for i in range(2048)]

Run = Callable[[str], float | None]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--report", action="store_true", help="bring the page up to date")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--llama-python", default=sys.executable)
    parser.add_argument("--engine", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.engine is not None:
        serve(options.model, options.engine)
        return
    if options.report:
        from comparison.report import update

        update(PAGE, blocks_of_page())
        return
    if options.model is None:
        parser.error("name a GGUF file")
    record = measure(options.model, options.rounds, options.llama_python)
    print("\n\n".join(blocks(record).values()))
    if options.json is not None:
        options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def measure(model: Path, rounds: int, llama_python: str) -> dict[str, Any]:
    """Return tokens per second of every engine and case, and the bandwidth, round by round."""
    from threads import facts

    engines, missing = {}, {}
    for name, settings in ENGINES.items():
        python = llama_python if settings["kind"] == "llama" else sys.executable
        engine = Engine(python, model, settings)
        if engine.problem:
            missing[name] = engine.problem
        else:
            engines[name] = engine
    rates: dict[str, dict[str, list[float]]] = {case: {} for case in CASES}
    bandwidth: dict[str, list[float]] = {case: [] for case in CASES}
    for case in CASES:
        for engine in engines.values():
            engine.ask(case)  # warms up
        for number in range(rounds):
            print(f"{case}: round {number + 1} of {rounds}", file=sys.stderr)
            bandwidth[case].append(read_bandwidth())
            for name, engine in engines.items():
                rate = engine.ask(case)
                if rate is not None:
                    rates[case].setdefault(name, []).append(rate)
    for engine in engines.values():
        engine.close()
    how = {"prompt": PROMPT, "new": NEW, "long_prompt": LONG_PROMPT, "batch": BATCH}
    return facts() | {
        "model": model.name,
        "bytes": model.stat().st_size,
        "how": how,
        "missing": missing,
        "tokens_per_second": rates,
        "read_bandwidth": bandwidth,
    }


class Engine:
    """One process that runs a model; stopped while another has its turn."""

    def __init__(self, python: str, model: Path, settings: dict[str, Any]) -> None:
        words = [python, __file__, str(model), "--engine", json.dumps(settings)]
        self.process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        first = json.loads(self._read() or '{"problem": "it ended"}')
        self.problem: str | None = first["problem"]
        if self.problem is None:
            self.process.send_signal(signal.SIGSTOP)

    def ask(self, case: str) -> float | None:
        """Return tokens per second, None where the engine has no such case."""
        self.process.send_signal(signal.SIGCONT)
        assert self.process.stdin is not None
        self.process.stdin.write(case + "\n")
        self.process.stdin.flush()
        rate: float | None = json.loads(self._read())
        self.process.send_signal(signal.SIGSTOP)
        return rate

    def close(self) -> None:
        self.process.kill()
        self.process.wait()

    def _read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()


def serve(model: Path, settings: dict[str, Any]) -> None:
    """Be an engine: answer each case with its tokens per second."""
    os.environ["OMP_NUM_THREADS"] = str(settings["threads"])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is not an answer
    try:
        run: Run | None = KINDS[settings["kind"]](model, settings)
        problem = None
    except Exception as error:  # whatever a library raises is why it is left out
        run, problem = None, f"{type(error).__name__}: {error}"
    print(json.dumps({"problem": problem}), file=answers, flush=True)
    for line in sys.stdin:
        assert run is not None
        print(json.dumps(run(line.strip())), file=answers, flush=True)


def ours(model: Path, settings: dict[str, Any]) -> Run:
    """Return an engine of this project."""
    import tensor_ops_decode

    kernel = tensor_ops_decode.PersistentKernel(
        mode="decode",
        backend="cpp",
        model=model,
        num_workers=settings["threads"],
        max_seq_length=1024,
        max_num_batched_requests=BATCH,
        max_num_batched_tokens=256,
        activations=settings.get("activations", "int8x2"),
    )
    kernel.compile()

    def decode(requests: int) -> float:
        for request in range(requests):
            kernel.add_request(TOKENS[request : request + PROMPT], ignore_eos=True)
        while len(kernel()) < requests:
            pass
        start = time.perf_counter()
        for _ in range(NEW):
            kernel()
        seconds = time.perf_counter() - start
        kernel.reset()
        return requests * NEW / seconds

    def prompt() -> float:
        kernel.add_request(TOKENS[:LONG_PROMPT], ignore_eos=True)
        start = time.perf_counter()
        while not kernel():
            pass
        seconds = time.perf_counter() - start
        kernel.reset()
        return LONG_PROMPT / seconds

    cases = {"decode": lambda: decode(1), "prompt": prompt, "batch": lambda: decode(BATCH)}
    return lambda case: cases[case]()


def llama(model: Path, settings: dict[str, Any]) -> Run:
    """Return an engine of llama.cpp."""
    from llama_cpp import Llama  # type: ignore[import-not-found]

    threads = settings["threads"]
    engine = Llama(
        str(model), n_ctx=1024, n_threads=threads, n_threads_batch=threads, verbose=False
    )

    def decode() -> float:
        engine.reset()
        engine.eval(TOKENS[:PROMPT])
        start = time.perf_counter()
        for _ in range(NEW):
            engine.eval([engine.sample(temp=0.0)])
        return NEW / (time.perf_counter() - start)

    def prompt() -> float:
        engine.reset()
        start = time.perf_counter()
        engine.eval(TOKENS[:LONG_PROMPT])
        return LONG_PROMPT / (time.perf_counter() - start)

    cases: dict[str, Callable[[], float]] = {"decode": decode, "prompt": prompt}
    return lambda case: cases[case]() if case in cases else None


def transformers(model: Path, settings: dict[str, Any]) -> Run:
    """Return an engine of transformers with dense weights: packed ones are slower on a CPU."""
    import torch
    from transformers import AutoModelForCausalLM, GgufConfig

    torch.set_num_threads(settings["threads"])
    engine = AutoModelForCausalLM.from_pretrained(
        str(model.parent),
        gguf_file=model.name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=getattr(torch, settings["dtype"]),
    ).eval()

    @torch.inference_mode()
    def decode(requests: int) -> float:
        ids = torch.tensor([TOKENS[i : i + PROMPT] for i in range(requests)])
        out = engine(ids, use_cache=True)
        start = time.perf_counter()
        for _ in range(NEW // 8):
            ids = out.logits[:, -1:].argmax(-1)
            out = engine(ids, past_key_values=out.past_key_values, use_cache=True)
        return requests * (NEW // 8) / (time.perf_counter() - start)

    @torch.inference_mode()
    def prompt() -> float:
        start = time.perf_counter()
        engine(torch.tensor([TOKENS[:LONG_PROMPT]]), use_cache=True)
        return LONG_PROMPT / (time.perf_counter() - start)

    cases = {"decode": lambda: decode(1), "prompt": prompt, "batch": lambda: decode(BATCH)}
    return lambda case: cases[case]()


KINDS: dict[str, Callable[[Path, dict[str, Any]], Run]] = {
    "ours": ours,
    "llama": llama,
    "transformers": transformers,
}


def read_bandwidth(size: int = 1 << 28, threads: int = 2) -> float:
    """Return the bytes per second at which two threads read memory."""
    import numpy as np

    global _memory
    if _memory is None:
        _memory = np.ones(size // 8, np.uint64)
    parts = np.array_split(_memory, threads)
    # A reduction by bits is one pass of vector loads, and frees the GIL.
    workers = [threading.Thread(target=np.bitwise_or.reduce, args=(part,)) for part in parts]
    start = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return size / (time.perf_counter() - start)


_memory: Any = None


def blocks_of_page() -> dict[str, str]:
    """Return all blocks of the page."""
    import decode_speculation

    made = {}
    for name, blocks_of in (("models", blocks), ("speculation", decode_speculation.blocks)):
        record = (RECORDS / f"decode_{name}.json").read_text(encoding="utf-8")
        made |= blocks_of(json.loads(record))
    return made


def blocks(record: dict[str, Any]) -> dict[str, str]:
    """Return the blocks of a record."""
    how = record["how"]
    titles = {
        "decode": f"decode: {how['new']} tokens after a prompt of {how['prompt']}",
        "prompt": f"prompt of {how['long_prompt']} tokens",
        "batch": f"decode of {how['batch']} requests at once",
    }
    lines = [
        "| engine | tokens per second | beside llama.cpp, 2 threads | quartiles |",
        "|---|---|---|---|",
    ]
    for case, rates in record["tokens_per_second"].items():
        bandwidth = statistics.median(record["read_bandwidth"][case]) / 1e9
        lines.append(f"| **{titles[case]}** | read bandwidth {bandwidth:.0f} GB/s | | |")
        lines += [f"| {name} {_cells(name, rates)}" for name in rates]
    model = f"{record['model']}, {record['bytes'] / 1e6:.0f} MB"
    machine = f"{record['device']}; commit {record['commit']}; {_rounds(record)} rounds"
    return {"decode-setting": f"{model}. {machine}.", "decode-speed": "\n".join(lines)}


def _cells(name: str, rates: dict[str, list[float]]) -> str:
    """Return the cells of an engine: the median, and its ratio to the first engine."""
    values = rates[name]
    cells = f"| {statistics.median(values):,.0f} "
    base = rates.get(next(iter(ENGINES)), [])
    if len(values) < 2 or len(base) != len(values):
        return cells + "| | |"
    ratios = [own / other for own, other in zip(values, base, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return cells + f"| {middle:.2f} | {low:.2f} to {high:.2f} |"


def _rounds(record: dict[str, Any]) -> int:
    return min(len(each) for each in record["read_bandwidth"].values())


if __name__ == "__main__":
    main()
