"""Goals of the engine beside others, and whether a record reaches them."""

from collections.abc import Iterator
from dataclasses import dataclass

from decode_peers.bounds import BOUNDS, Bounds
from decode_peers.cases import HYBRIDS, MIXTURES, MODELS
from decode_peers.results import Results
from harness.rounds import Figure

__all__ = ["CAUSES", "ONE_TERM", "SMALL", "Goal", "goals"]

OURS, ONE_TERM, CACHED = "cpp", "cpp, int8", "cpp, cache"
PEER, FORK, EAGER = "llama.cpp", "ik_llama.cpp", "transformers"
BOTH = (PEER, FORK)
BETTER = f"the better of {PEER} and {FORK}"
ROUNDED = "cpp, bfloat16"
SMALL, DENSE = "SmolLM2 Q4_1", "SmolLM2 BF16"
TERMS = (("two int8 terms", OURS), ("one int8 term", ONE_TERM))

_ARITHMETIC = (
    "the products of eight tokens take longer than their weights are read; more cores help."
)
_TERMS = (
    "one int8 term, which cores multiply twice as fast as two; additions in the place of half of "
    "the multiplications "
    "([decision 57](decisions/0057-additions-replace-multiplications-of-prompts.md)) make up for a "
    "part of that"
)
_DEFAULTS = "[decision 59](decisions/0059-defaults-do-not-round-more-to-be-faster.md)"
# Why a goal is missed, by its name or by what is measured of any model: what is known when the page
# is written.
CAUSES = {
    "decode, of the read bandwidth": (
        "a part of the arithmetic is not hidden behind reading where the memory is fast, and "
        "threads wait for one another; `tensor-ops bench decode` shows how long."
    ),
    f"1B F32: decode, beside {BETTER}": (
        "reading limits both engines, and the bandwidth changes between their turns; the interval "
        "reaches 1."
    ),
    f"decode, beside {BETTER}": (
        "reading limits both engines: with one int8 term, half of the products, a step takes "
        "nearly as long."
    ),
    "attention after 4,000 tokens, of the read bandwidth": (
        "a thread reads nothing while it waits for the others, rotates heads or joins the results "
        "of ranges of positions. Besides, this is the difference of two steps: after a long "
        "context products take longer too, presumably since fewer of the weights are found in the "
        "processor's last cache; and the bandwidth changed between them in some rounds."
    ),
    "eight sequences with one int8 term, beside llama.cpp": _ARITHMETIC,
    "eight sequences with two int8 terms, beside llama.cpp": _ARITHMETIC,
    "a step of eight with one int8 term, beside a step of one": _ARITHMETIC,
    "a step of eight with two int8 terms, beside a step of one": _ARITHMETIC,
    "decode, beside transformers in bfloat16": "less is missing than the interval is wide.",
    "prompt with two int8 terms, beside OpenVINO GenAI": (
        f"OpenVINO rounds activations to {_TERMS}; the goal with one int8 term compares equal "
        "arithmetic, [the guide](guides/decode.md#accuracy) says how far either's logits are from "
        f"float64, and {_DEFAULTS} why the default stays."
    ),
    "prompt with one int8 term, beside OpenVINO GenAI": (
        "a block of 32 columns takes 8 products and 3 multiplications by its scale, its minimum "
        "and the scale of the activations. The same units of a core compute all of these, so that "
        "products reach 8 of 11 parts of what the cores multiply at the most. Attention is in "
        "float32 here, and in bfloat16 with keys and values in uint8 there: the sentence below the "
        "table of SmolLM2 says what difference that makes."
    ),
    "prompt with two int8 terms, beside llama.cpp": (
        f"llama.cpp rounds activations to {_TERMS}; the goal with one int8 term compares equal "
        "arithmetic."
    ),
    **{
        f"{model}: prompt, beside {BETTER}": (
            f"both round activations to {_TERMS}; the columns `alike` of the table of prompts "
            "compare equal arithmetic."
        )
        for model in MODELS
        if model.startswith("1B Q")
    },
    f"1B BF16: prompt with bfloat16 activations, beside {BETTER}": (
        "products alone cannot be much faster: the table of prompts has what they reach of what "
        "the cores multiply, beside which attention is not counted."
    ),
    "1B BF16: first token of a new process, beside llama.cpp": (
        "activations stay float32 here, and llama.cpp rounds them to bfloat16; the goal with "
        f"bfloat16 activations compares equal arithmetic, and {_DEFAULTS} says why the default "
        "stays."
    ),
    "first token with bfloat16 activations, beside llama.cpp": (
        "the first step makes tiles of the file's rows before it multiplies them "
        "([decision 44](decisions/0044-weights-are-packed-while-the-first-steps-run.md))."
    ),
    "first token of a new process, beside llama.cpp": (
        "the first step makes tiles of the file's rows before it multiplies them "
        "([decision 44](decisions/0044-weights-are-packed-while-the-first-steps-run.md)), and "
        "llama.cpp uses the rows as they are; the table of first tokens has the seconds."
    ),
    "1B BF16: first token with `cache=`, beside llama.cpp": (
        "activations stay float32 here, and llama.cpp rounds them to bfloat16."
    ),
    "first token with `cache=`, beside llama.cpp": (
        "all of the kept weights are compared with their checksums before the first step; the "
        "table of `cache=` has what that takes."
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
    """Return the goals of all models with the figures of a record.

    There are none on a kind of processor that has no bounds.
    """
    bounds = BOUNDS.get(results.kind)
    if bounds is None:
        return []
    dense = [model for model in MODELS if model not in (*MIXTURES, *HYBRIDS)]
    large = (model for model in dense if model.startswith("1B"))
    return [
        *(each for model in dense for each in _decode(results, bounds, model)),
        *_small(results, bounds),
        *(each for model in large for each in _prompt(results, bounds, model)),
        *(each for model in dense for each in _start(results, model)),
    ]


def _decode(results: Results, bounds: Bounds, model: str) -> Iterator[Goal]:
    """Yield the goals of decoding one sequence."""
    is_small = model == SMALL
    yield Goal(
        f"{model}: decode, of the read bandwidth",
        bounds.small_decode if is_small else bounds.decode,
        results.of_bandwidth(model, "decode", OURS),
    )
    yield Goal(
        f"{model}: decode, beside {BETTER}",
        bounds.small_beside if is_small else 1.0,
        results.times_as_fast_as_best(model, "decode", OURS, BOTH),
    )


def _small(results: Results, bounds: Bounds) -> Iterator[Goal]:
    """Yield what is asked of SmolLM2 only."""
    yield Goal(
        f"{SMALL}: attention after 4,000 tokens, of the read bandwidth",
        0.8,
        results.attention_of_bandwidth(SMALL, "context 4000", OURS),
    )
    for (terms, engine), prompt, eight in zip(TERMS, bounds.prompt, bounds.eight, strict=True):
        yield Goal(
            f"{SMALL}: prompt with {terms}, beside {bounds.prompt_peer}",
            prompt,
            results.times_as_fast(SMALL, "prompt", engine, bounds.prompt_peer),
        )
        yield Goal(
            f"{SMALL}: a step of eight with {terms}, beside a step of one",
            eight,
            results.steps_of_one(SMALL, "batch 8", engine),
            is_most=True,
        )
    for what, case in (("prompt", "prompt"), ("eight sequences", "batch 8")):
        yield from _beside_llama_cpp(results, bounds, SMALL, what, case)
    for model, least in ((DENSE, 4.0), (SMALL, 12.0)):
        yield Goal(
            f"{model}: decode, beside transformers in bfloat16",
            least,
            results.times_as_fast(model, "decode", OURS, EAGER),
        )


def _prompt(results: Results, bounds: Bounds, model: str) -> Iterator[Goal]:
    """Yield the goals of a prompt of a random model.

    Beside bfloat16 weights the other engines round activations to bfloat16.
    """
    prompt, engine = f"{model}: prompt", OURS
    if MODELS[model].kind == "BF16":
        prompt, engine = f"{prompt} with bfloat16 activations", ROUNDED
    yield Goal(
        f"{prompt}, beside {BETTER}",
        1.0,
        results.times_as_fast_as_best(model, "prompt", engine, BOTH),
    )
    yield from _beside_llama_cpp(results, bounds, model, "prompt", "prompt")
    if MODELS[model].kind in ("BF16", "F32"):
        yield Goal(f"{prompt}, of what the cores multiply", 0.7, results.of_products(model, engine))


def _beside_llama_cpp(
    results: Results, bounds: Bounds, model: str, what: str, case: str
) -> Iterator[Goal]:
    """Yield what a kind of processor asks beside llama.cpp in particular."""
    least = bounds.beside_llama_cpp.get(f"{model}: {what}", ())
    for (terms, engine), bound in zip(TERMS, least, strict=False):
        yield Goal(
            f"{model}: {what} with {terms}, beside {PEER}",
            bound,
            results.times_as_fast(model, case, engine, PEER),
        )


def _start(results: Results, model: str) -> Iterator[Goal]:
    """Yield the goals of opening a model."""
    if "start" not in MODELS[model].cases:
        return
    yield Goal(
        f"{model}: first token of a new process, beside {PEER}",
        1.0,
        results.times_as_fast(model, "start", OURS, PEER),
    )
    if MODELS[model].kind == "BF16":
        yield Goal(
            f"{model}: first token with bfloat16 activations, beside {PEER}",
            1.0,
            results.times_as_fast(model, "start", ROUNDED, PEER),
        )
    yield Goal(
        f"{model}: first token with `cache=`, beside {PEER}",
        1.0,
        results.times_as_fast(model, "start", CACHED, PEER),
    )
    yield Goal(
        f"{model}: MB of memory beside weights and cache",
        64.0,
        results.memory_besides(model, OURS),
        is_most=True,
    )
