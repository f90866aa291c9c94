"""What the engine is to reach beside others, and what a record says of it."""

from collections.abc import Iterator
from dataclasses import dataclass

from decode_peers.cases import MODELS
from decode_peers.results import Figure, Results

__all__ = ["CAUSES", "Goal", "goals"]

OURS, ONE_TERM, CACHED = "cpp", "cpp, int8", "cpp, cache"
PEER, EAGER = "llama.cpp", "transformers"
ROUNDED = "cpp, bfloat16"
SMALL, DENSE = "SmolLM2 Q4_1", "SmolLM2 BF16"

_ARITHMETIC = (
    "the products of eight tokens take longer than their weights are read; more cores help."
)
# Why a goal is missed, by its name or by what is measured of any model: what is known when the page
# is written.
CAUSES = {
    "decode, of the read bandwidth": (
        "in a step the threads wait for one another; `tensor-ops bench decode` shows how long."
    ),
    "attention after 4,000 tokens, of the read bandwidth": (
        "float16 is converted before it is multiplied, which two cores do not much faster in their "
        "caches than this memory delivers in its fast minutes."
    ),
    "eight sequences with one int8 term, beside llama.cpp": _ARITHMETIC,
    "eight sequences with two int8 terms, beside llama.cpp": _ARITHMETIC,
    "a step of eight with one int8 term, beside a step of one": _ARITHMETIC,
    "a step of eight with two int8 terms, beside a step of one": _ARITHMETIC,
    "decode, beside transformers in bfloat16": "less is missing than the interval is wide.",
    "1B Q6_K: prompt, beside llama.cpp": (
        "two int8 terms are multiplied twice, and 16 columns of q6_K share a scale, so that sums "
        "are scaled twice as often as of other types; one term takes half of the time."
    ),
    "1B BF16: prompt, beside llama.cpp": (
        "llama.cpp rounds the activations to bfloat16 as well, for an instruction that multiplies "
        'pairs; here they stay float32, unless `activations="bfloat16"` asks for the same.'
    ),
    "first token of a new process, beside llama.cpp": (
        "the weights are packed, which reads all of them and writes them to memory that the system "
        "has to find, and llama.cpp's are used as they are in the file; with `cache=` they are "
        "packed once."
    ),
    "first token with `cache=`, beside llama.cpp": (
        "the file is mapped; what is left is the time of Python and of the prompt."
    ),
}


@dataclass(frozen=True)
class Goal:
    """One figure that has a bound.

    Attributes
    ----------
    name : str
    bound : float
    figure : Figure or None
        None if it was not measured.
    is_most : bool
        Whether the bound is the most that counts as met, instead of the least.
    """

    name: str
    bound: float
    figure: Figure | None
    is_most: bool = False

    @property
    def is_met(self) -> bool | None:
        """Return whether the median is within the bound; None if it was not measured."""
        if self.figure is None:
            return None
        value = self.figure.value
        return value <= self.bound if self.is_most else value >= self.bound


def goals(results: Results) -> list[Goal]:
    """Return the goals of all models with the figures of a record."""
    large = (each for model in MODELS if model.startswith("1B") for each in _large(results, model))
    starts = (each for model in MODELS for each in _start(results, model))
    return [*_small(results), *large, *starts]


def _small(results: Results) -> Iterator[Goal]:
    """Yield the goals of SmolLM2."""
    faster, steps = results.times_as_fast, results.steps_of_one
    yield Goal(
        f"{SMALL}: decode, of the read bandwidth", 0.95, results.of_bandwidth(SMALL, "decode", OURS)
    )
    yield Goal(
        f"{SMALL}: attention after 4,000 tokens, of the read bandwidth",
        0.8,
        results.attention_of_bandwidth(SMALL, "context 4000", OURS),
    )
    for terms, engine, prompt, batch, most in (
        ("one int8 term", ONE_TERM, 5.0, 8.5, 1.7),
        ("two int8 terms", OURS, 3.5, 6.0, 2.4),
    ):
        yield Goal(
            f"{SMALL}: prompt with {terms}, beside llama.cpp",
            prompt,
            faster(SMALL, "prompt", engine, PEER),
        )
        yield Goal(
            f"{SMALL}: eight sequences with {terms}, beside llama.cpp",
            batch,
            faster(SMALL, "batch 8", engine, PEER),
        )
        yield Goal(
            f"{SMALL}: a step of eight with {terms}, beside a step of one",
            most,
            steps(SMALL, "batch 8", engine),
            is_most=True,
        )
    yield Goal(
        f"{DENSE}: decode, beside transformers in bfloat16",
        4.0,
        faster(DENSE, "decode", OURS, EAGER),
    )
    yield Goal(
        f"{SMALL}: decode, beside transformers in bfloat16",
        12.0,
        faster(SMALL, "decode", OURS, EAGER),
    )


def _large(results: Results, model: str) -> Iterator[Goal]:
    """Yield the goals of a random model."""
    faster = results.times_as_fast
    yield Goal(
        f"{model}: decode, of the read bandwidth", 0.92, results.of_bandwidth(model, "decode", OURS)
    )
    yield Goal(f"{model}: decode, beside llama.cpp", 1.0, faster(model, "decode", OURS, PEER))
    least = 1.2 if model == "1B Q4_0" else 1.0
    yield Goal(f"{model}: prompt, beside llama.cpp", least, faster(model, "prompt", OURS, PEER))
    if model == "1B Q4_0":
        yield Goal(
            f"{model}: prompt with one int8 term, beside llama.cpp",
            1.7,
            faster(model, "prompt", ONE_TERM, PEER),
        )
    if MODELS[model].kind == "BF16":
        yield Goal(
            f"{model}: prompt with bfloat16 activations, beside llama.cpp",
            1.0,
            faster(model, "prompt", ROUNDED, PEER),
        )
    if MODELS[model].kind in ("BF16", "F32"):
        yield Goal(
            f"{model}: prompt, of what the cores multiply", 0.7, results.of_products(model, OURS)
        )


def _start(results: Results, model: str) -> Iterator[Goal]:
    """Yield the goals of opening a model."""
    if "start" not in MODELS[model].cases:
        return
    yield Goal(
        f"{model}: first token of a new process, beside llama.cpp",
        1.0,
        results.times_as_fast(model, "start", OURS, PEER),
    )
    yield Goal(
        f"{model}: first token with `cache=`, beside llama.cpp",
        1.0,
        results.times_as_fast(model, "start", CACHED, PEER),
    )
    yield Goal(
        f"{model}: MB of memory beside weights and cache",
        64.0,
        results.memory_besides(model, OURS),
        is_most=True,
    )
