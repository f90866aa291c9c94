"""What a layer for guesses gains: decoding with it and without, in turn.

The models are random, of the shapes of Qwen 3.5 with 0.8 and with 4 billion weights, and all of
its words. Their layers add nothing to the embedding of a token, though they compute all that others
do, so that the layer for guesses can agree with the model as often as trained ones do. They say the
first words of the vocabulary alone, and the layer guesses among these, or among all. The same model
is open once for each way to guess. Files that are missing are written, 4 GB.

    python benchmarks/decode_drafts.py .benchmarks/decode --json RECORD.json
"""

import statistics
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from decode_blocks import run, setting_of
from decode_peers.hybrids import HYBRIDS, write_hybrid
from tensor_ops_decode import PersistentKernel

WORDS, SAID = 248320, 65536
# How many tokens are guessed a step, and among how many.
GUESSES = ((0, WORDS), (1, WORDS), (3, WORDS), (1, SAID), (2, SAID), (3, SAID), (4, SAID))
ACTIVATIONS = ("int8x2", "int8")
# How much noise the layer sees, with which about four of five of its guesses are right.
NOISE = {"0.8B": 0.3, "4B": 0.33}
NEW = {"0.8B": 192, "4B": 64}


def measure(folder: Path, rounds: int) -> dict[str, Any]:
    """Return tokens per second by model and number of guesses, round by round."""
    from threads import facts

    models = {
        f"{name}, {activations}": _model(folder, name, activations, rounds)
        for name in NOISE
        for activations in ACTIVATIONS
    }
    how = {"rounds": rounds, "words": WORDS, "said": SAID, "new": NEW}
    return facts() | {"model": "Random models", "how": how, "models": models}


def _model(folder: Path, name: str, activations: str, rounds: int) -> dict[str, Any]:
    path = folder / f"draft-{name}-{SAID}-Q4_K.gguf"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_hybrid(path, HYBRIDS[name], "Q4_K", WORDS, NOISE[name], SAID)
    given = {"max_seq_length": 256, "max_num_batched_requests": 1, "activations": activations}
    rates: dict[str, list[float]] = {_key(*each): [] for each in GUESSES}
    steps: dict[str, int] = dict.fromkeys(rates, 0)
    with ExitStack() as stack:
        kernels = [
            stack.enter_context(
                PersistentKernel(
                    model=path,
                    backend="cpp",
                    num_speculative_tokens=count,
                    draft_vocab_size=among if count else None,
                    **given,
                )
            )
            for count, among in GUESSES
        ]
        for kernel in kernels:
            kernel.compile(lambda done, size: None)  # packs all weights
        for number in range(rounds + 1):
            expected = None
            for (count, among), kernel in zip(GUESSES, kernels, strict=True):
                kernel.reset()
                prompt = [1000 * number + 5, 77, 200]
                request = kernel.add_request(prompt, max_new_tokens=NEW[name], ignore_eos=True)
                kernel()
                start, calls = time.perf_counter(), 0
                while kernel.requests:
                    kernel.run(1 if count else 32)
                    calls += 1
                seconds = time.perf_counter() - start
                tokens = kernel.tokens(request)
                expected = expected or tokens
                assert tokens == expected
                if number > 0:  # the first warms up
                    rates[_key(count, among)].append((NEW[name] - 1) / seconds)
                    steps[_key(count, among)] += calls if count else NEW[name] - 1
    written = rounds * (NEW[name] - 1)
    return {
        "tokens_per_second": rates,
        "tokens_per_step": {c: written / n for c, n in steps.items()},
    }


def _key(count: int, among: int) -> str:
    return f"{count} of {among}"


def blocks(record: dict[str, Any]) -> dict[str, str]:
    """Return the blocks of the page docs/decode_performance.md."""
    lines = [
        "| model | guesses a step | among | tokens a step | guesses right | tokens per second "
        "| beside none | quartiles |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, of in record["models"].items():
        rates = of["tokens_per_second"]
        none = next(iter(rates.values()))
        for key, each in rates.items():
            count, _, among = key.partition(" of ")
            per_step = of["tokens_per_step"][key]
            right = f"{_share(per_step, int(count)):.2f}" if int(count) else ""
            ratios = [a / b for a, b in zip(each, none, strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
            lines.append(
                f"| {name} | {count} | {among if int(count) else ''} | {per_step:.2f} | {right} "
                f"| {statistics.median(each):.1f} | {middle:.2f} | {low:.2f} to {high:.2f} |"
            )
    return {"drafts-setting": setting_of(record), "drafts": "\n".join(lines)}


def _share(per_step: float, count: int) -> float:
    """Return what part of guesses is right, if each is with the same probability.

    A step then has 1 + p + p^2 + ... + p^count tokens.
    """
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        if sum(middle**power for power in range(count + 1)) < per_step:
            low = middle
        else:
            high = middle
    return low


if __name__ == "__main__":
    run(__doc__, measure, blocks)
