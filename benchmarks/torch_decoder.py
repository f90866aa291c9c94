"""How fast a decoder of a model in memory generates, beside transformers' own `generate`.

A random-weight Llama of transformers writes tokens after a short prompt, and its first token after
a long one: by transformers with its usual cache, by transformers with a static cache and
`torch.compile`, and by decoders with the model's weights and with quantised ones. They take turns.
The time of packing, and memory, are beside it, and the part of the memory's bandwidth that one
sequence reaches: the bytes that a step reads, by the time of a step, by what the kernel's threads
read without computing right before or after those steps, whichever is more: that of a shared
machine may double in between.

    nox -s bench_torch -- torch_decoder --json benchmarks/results/torch_decoder.json
"""

import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness import command
from records import origin, read, rounded
from torch_models import BATCHES, DTYPES, HEADS, HIDDEN, INTERMEDIATE, LAYERS, VOCABULARY, table

FORMAT = 3
PROMPT, LONG_PROMPT, NEW = 16, 512, 24
EAGER, COMPILED, KERNEL = "transformers", "transformers, compiled", "decoder"
QUANTIZED = ("q8_0", "q4_0")

Generate = Callable[[Any, int], Any]


def main() -> None:
    parser = command.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="times that each is timed")
    parser.add_argument("--layers", type=int, default=LAYERS, help="of the model")
    parser.add_argument("--without-compiled", action="store_true", help="leave torch.compile out")
    options = parser.parse_args()
    content = measure(options.rounds, options.layers, compiled=not options.without_compiled)
    command.show(content, blocks, options.json)


def measure(rounds: int, layers: int, *, compiled: bool) -> dict[str, Any]:
    """Return every figure, in seconds and bytes."""
    import torch
    import transformers

    import tensor_ops_cpp

    facts = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "tensor_ops_cpp": tensor_ops_cpp.__version__,
        "threads": torch.get_num_threads(),
        "layers": layers,
    }
    models = [each for dtype in DTYPES for each in of_dtype(dtype, rounds, layers, compiled)]
    return origin(FORMAT) | facts | {"models": models}


def of_dtype(dtype: str, rounds: int, layers: int, compiled: bool) -> Iterator[dict[str, Any]]:
    """Time all ways to generate with a model in one dtype."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    import tensor_ops_torch

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=HIDDEN,
        num_hidden_layers=layers,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        intermediate_size=INTERMEDIATE,
        vocab_size=VOCABULARY,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    model = LlamaForCausalLM(config).to(getattr(torch, dtype)).eval()
    ways: dict[str, Generate] = {EAGER: in_pytorch(model)}
    if compiled:
        ways[COMPILED] = in_pytorch(model, **static_cache())
    decoders: dict[str, tuple[float, Any]] = {}
    settings = {KERNEL: {}} | {f"{KERNEL}, {name}": {"quantize": name} for name in QUANTIZED}
    if dtype == "bfloat16":  # to which a decoder rounds activations, as PyTorch does, by default
        settings[f"{KERNEL}, float32 activations"] = {"activations": "float32"}
    for name, given in settings.items():
        start = time.perf_counter()
        made = tensor_ops_torch.decoder(
            model, **given, max_seq_length=LONG_PROMPT + NEW, backend="cpp"
        )
        decoders[name] = time.perf_counter() - start, made
        ways[name] = on_kernel(made)
    kernels = {name: made.kernel for name, (_, made) in decoders.items()}
    seconds, bandwidths = in_turn(ways, kernels, rounds)
    for name in ways:
        packed = None
        if name in decoders:
            packed = facts_of(*decoders[name]) | {"bandwidth": bandwidths[name]}
        yield {"dtype": dtype, "way": name, "seconds": seconds[name], "packed": packed}
    for _, made in decoders.values():
        made.close()


def in_pytorch(model: Any, **settings: Any) -> Generate:
    """Return how a model of transformers generates."""
    return lambda prompts, count: model.generate(
        prompts, attention_mask=prompts >= 0, max_new_tokens=count, do_sample=False, **settings
    )


def static_cache() -> dict[str, Any]:
    """Return the settings with which transformers compiles the steps after the prompt."""
    from transformers import CompileConfig

    compilation = CompileConfig(mode="default", dynamic=False)
    compilation._compile_all_devices = True  # which it does on GPUs alone by default
    # A cache of another length would be compiled for anew.
    length = {"cache_implementation": "static", "max_cache_len": LONG_PROMPT + NEW}
    return length | {"compile_config": compilation}


def on_kernel(decoder: Any) -> Generate:
    """Return how a decoder generates, without what it knows of the prompt from earlier calls."""

    def generate(prompts: Any, count: int) -> Any:
        decoder.kernel.reset()
        return decoder.generate(
            prompts, attention_mask=prompts >= 0, max_new_tokens=count, do_sample=False
        )

    return generate


def in_turn(
    ways: dict[str, Generate], kernels: dict[str, Any], rounds: int
) -> tuple[dict[str, dict[str, list[float]]], dict[str, list[list[float]]]]:
    """Time each way in turn: steps by batch, and the first token after the long prompt.

    Returns the seconds of each way, and the bandwidth of each kernel before and after its steps of
    one.
    """
    import torch

    seconds: dict[str, dict[str, list[float]]] = {name: {} for name in ways}
    bandwidths: dict[str, list[list[float]]] = {name: [] for name in kernels}
    draw = torch.Generator().manual_seed(0)
    for number in range(-1, rounds):  # the first is to warm up, and to compile
        for batch in BATCHES:
            prompts = torch.randint(VOCABULARY, (batch, PROMPT), generator=draw)
            for name, generate in ways.items():
                kernel = kernels.get(name) if batch == 1 else None
                before = kernel and kernel.read_bandwidth()
                taken = timed(generate, prompts, 1 + NEW) - timed(generate, prompts, 1)
                if number >= 0:
                    seconds[name].setdefault(f"step of {batch}", []).append(taken / NEW)
                if number >= 0 and kernel:
                    pair = before, kernel.read_bandwidth()
                    bandwidths[name].append([rounded(each) for each in pair])
        prompts = torch.randint(VOCABULARY, (1, LONG_PROMPT), generator=draw)
        for name, generate in ways.items():
            taken = timed(generate, prompts, 1)
            if number >= 0:
                seconds[name].setdefault("first token", []).append(taken)
    short = {
        name: {what: [float(f"{each:.5g}") for each in times] for what, times in found.items()}
        for name, found in seconds.items()
    }
    return short, bandwidths


def timed(generate: Generate, prompts: Any, count: int) -> float:
    start = time.perf_counter()
    generate(prompts, count)
    return time.perf_counter() - start


def facts_of(packing: float, decoder: Any) -> dict[str, Any]:
    """Return what packing took, and what a decoder has in memory and reads."""
    kernel = decoder.explain().kernel
    return {
        "seconds": rounded(packing),
        "memory": dict(kernel.memory),
        "activations": kernel.options["activations"],
        "reads": sum(sum(types.values()) for types in kernel.reads.weights.values()),
    }


def blocks(content: dict[str, Any]) -> dict[str, str]:
    """Return the blocks of the page by name."""
    models = content["models"]
    return {
        "decoder setting": (
            f"PyTorch {content['torch']}, transformers {content['transformers']}, "
            f"tensor-ops-cpp {content['tensor_ops_cpp']} on {content['machine']['cpu']}, "
            f"{content['threads']} threads."
        ),
        "decoder tokens": table(
            ("dtype", "generated by", *(f"tokens/s, batch {each}" for each in BATCHES), "first"),
            (
                (
                    each["dtype"],
                    each["way"],
                    *(f"{batch / _median(each, f'step of {batch}'):.1f}" for batch in BATCHES),
                    f"{1e3 * _median(each, 'first token'):.0f} ms",
                )
                for each in models
            ),
        ),
        "decoder memory": table(
            ("dtype", "decoder", "packing", "weights", "caches", "read bandwidth", "reached"),
            (
                (
                    each["dtype"],
                    each["way"],
                    f"{packed['seconds']:.2f} s",
                    f"{packed['memory']['weights'] / 2**20:.0f} MiB",
                    f"{packed['memory']['caches'] / 2**20:.0f} MiB",
                    f"{statistics.median(_bandwidths(each)) / 1e9:.1f} GB/s",
                    f"{_reached(each):.0%}",
                )
                for each in models
                if (packed := each["packed"])
            ),
        ),
    }


def content_of(path: Path) -> dict[str, Any]:
    """Return a record that this script has written."""
    return read(path, FORMAT)


def _bandwidths(entry: dict[str, Any]) -> list[float]:
    """Return what the threads of a kernel read per second, by round: the most, to claim less."""
    return [max(pair) for pair in entry["packed"]["bandwidth"]]


def _reached(entry: dict[str, Any]) -> float:
    """Return the part of the bandwidth that steps of one sequence reach, the median of rounds."""
    reads, steps = entry["packed"]["reads"], entry["seconds"]["step of 1"]
    pairs = zip(steps, _bandwidths(entry), strict=True)
    return statistics.median(reads / step / bandwidth for step, bandwidth in pairs)


def _median(entry: dict[str, Any], what: str) -> float:
    return statistics.median(entry["seconds"][what])


if __name__ == "__main__":
    main()
