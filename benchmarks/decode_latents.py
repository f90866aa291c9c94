"""How long latent attention takes beside attention of as many operations, and reading a cache.

A program has one node, of the sizes of DeepSeek V2 Lite, GLM 4.7 Flash or DeepSeek V3: a latent of
512 numbers and 64 that are rotated. The other has one head of keys and values, as many heads of
queries, and such a size that both multiply as often. A step has one token behind 4,000, or the last
256 of a prompt of so many. The steps of both take turns, on one thread.

    python benchmarks/decode_latents.py --json RECORD.json
"""

import functools
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tensor_ops_cpp
from harness import command
from tensor_ops_decode.kinds.cache_types import CACHE_DTYPES, head_bytes
from tensor_ops_decode.program import Cache, Limits, Tensor
from tensor_ops_decode.program.builder import Builder

LATENT, ROTATED, BEFORE = 512, 64, 128
OPERATIONS = 2 * (2 * LATENT + ROTATED)  # of a head and a position
POSITION, PROMPT, PAGE = 4000, 256, 16
BYTE = 0x11  # all that caches have; repeated, it is an ordinary number of each type
HEADS = {16: "DeepSeek V2 Lite", 20: "GLM 4.7 Flash", 128: "DeepSeek V3"}
KINDS = ("latent_attention", "attention")
LIMITS = Limits(1, PROMPT, 1, POSITION + PAGE, PAGE, POSITION // PAGE + 1)
READ = 1 << 28  # bytes


class Node:
    """A program of one node, whose cache is full."""

    def __init__(self, kind: str, heads: int, dtype: str) -> None:
        self.builder, self.tensors = Builder(LIMITS), {}
        getattr(self, f"_{kind}")(heads, dtype)
        program = self.builder.program(["y"]).to_json()
        self.executable = tensor_ops_cpp.compile_program(program, self.tensors, num_workers=1)
        self.executable.arrays["page_table"][0] = range(LIMITS.num_pages)
        pages = list(range(LIMITS.num_pages))
        rows = self.executable.read_pages(pages)
        self.executable.write_pages(pages, np.full_like(rows, BYTE))

    def step(self, first: int, count: int) -> None:
        """Compute some tokens."""
        arrays = self.executable.arrays
        arrays["tokens"][:count] = np.arange(first, first + count) % 8
        arrays["positions"][:count] = np.arange(first, first + count)
        self.executable.run(count, 0)

    def _latent_attention(self, heads: int, dtype: str) -> None:
        inputs = {
            "absorbed": heads * LATENT,
            "query": heads * (BEFORE + ROTATED),
            "kv": LATENT + ROTATED,
        }
        shapes = {"norm": (LATENT,), "cos": (LIMITS.max_seq_length, ROTATED // 2)}
        shapes["sin"] = shapes["cos"]
        of: dict[str, Any] = {"num_heads": heads, "rotation": "interleaved", "eps": 1e-6}
        self._add("latent_attention", inputs, shapes, of, Cache(1, LATENT, dtype, True, ROTATED))

    def _attention(self, heads: int, dtype: str) -> None:
        size = OPERATIONS // 4
        of = {"num_heads": heads, "num_kv_heads": 1, "head_size": size, "rotation": "interleaved"}
        of |= {"window": 0, "soft_cap": 0.0, "eps": 0.0}
        self._add("attention", {"qkv": (heads + 2) * size}, {}, of, Cache(1, size, dtype, True))

    def _add(
        self,
        kind: str,
        inputs: dict[str, int],
        shapes: dict[str, tuple[int, ...]],
        attributes: dict[str, Any],
        cache: Cache,
    ) -> None:
        made = {}
        for slot, columns in inputs.items():
            table = self._tensor(f"table of {slot}", (8, columns))
            given = {"tokens": "tokens"}
            made[slot] = self.builder.add("embed", given, {"weight": table}, output=slot)
        weights = {slot: self._tensor(slot, shape) for slot, shape in shapes.items()}
        attributes = {**attributes, "scale": 0.05, "cache": self.builder.cache("cache", cache)}
        self.builder.add(kind, made, weights, attributes, output="y")

    def _tensor(self, name: str, shape: tuple[int, ...]) -> str:
        draw = np.random.default_rng(0)
        self.tensors[name] = draw.standard_normal(shape).astype(np.float32)
        return self.builder.tensor(name, Tensor("f32", shape, {"attached": True}))


def measure(rounds: int) -> dict[str, Any]:
    """Return the seconds of steps, and of reading memory, round by round."""
    from threads import facts

    memory = np.ones(READ // 8, np.uint64)
    read = [_seconds(lambda: np.bitwise_or.reduce(memory)) for _ in range(rounds)]
    return facts() | {
        "how": {"rounds": rounds, "threads": 1, "position": POSITION, "prompt": PROMPT},
        "read": {"bytes": READ, "seconds": read},
        "steps": [_steps(heads, dtype, rounds) for heads in HEADS for dtype in CACHE_DTYPES],
    }


def _steps(heads: int, dtype: str, rounds: int) -> dict[str, Any]:
    nodes = {kind: Node(kind, heads, dtype) for kind in KINDS}
    seconds: dict[str, dict[str, list[float]]] = {"token": {}, "prompt": {}}
    for number in range(rounds + 1):
        for kind, node in nodes.items():
            token = functools.partial(node.step, POSITION, 1)
            found = {"token": min(_seconds(token) for _ in range(5))}
            found["prompt"] = _seconds(functools.partial(node.step, POSITION - PROMPT, PROMPT))
            for what, each in found.items():
                seconds[what].setdefault(kind, []).extend([each] * (number > 0))
    for node in nodes.values():
        node.executable.close()
    return {"heads": heads, "dtype": dtype, "seconds": seconds}


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def blocks(record: dict[str, Any]) -> dict[str, str]:
    """Return the blocks of the page docs/decode_performance.md."""
    position, prompt = record["how"]["position"], record["how"]["prompt"]
    head = "heads | cache | a token, ms | beside attention | 10^9 operations/s | cache, GB/s"
    lines = [f"| {head} | {prompt} tokens, s | beside attention |", "|---" * 8 + "|"]
    for step in record["steps"]:
        token, of_prompt = (_beside(step["seconds"][what]) for what in ("token", "prompt"))
        size = head_bytes(step["dtype"], LATENT) + head_bytes(step["dtype"], ROTATED)
        operations = position * step["heads"] * OPERATIONS
        lines.append(
            f"| {step['heads']} | {step['dtype']} | {token[0] * 1e3:.2f} | {token[1]:.2f} "
            f"| {operations / token[0] / 1e9:.0f} | {position * size / token[0] / 1e9:.1f} "
            f"| {of_prompt[0]:.2f} | {of_prompt[1]:.2f} |"
        )
    read = record["read"]
    speed = read["bytes"] / statistics.median(read["seconds"]) / 1e9
    how = f"commit {record['commit']}; {record['how']['rounds']} rounds"
    setting = (
        f"{record['device']}; {how}. One token behind {position:,}, and the last {prompt} of as "
        f"many, on one thread, which reads {speed:.1f} GB/s of memory."
    )
    return {"latents-setting": setting, "latents-steps": "\n".join(lines)}


def _beside(seconds: dict[str, list[float]]) -> tuple[float, float]:
    """Return the median of latent attention, and that of its ratios to attention."""
    latents, others = (seconds[kind] for kind in KINDS)
    ratios = [a / b for a, b in zip(latents, others, strict=True)]
    return statistics.median(latents), statistics.median(ratios)


def main() -> None:
    parser = command.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    options = parser.parse_args()
    command.show(measure(options.rounds), blocks, options.json)


if __name__ == "__main__":
    main()
