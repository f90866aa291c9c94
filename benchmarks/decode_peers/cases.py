"""Tables of what is measured: the cases, the models and the engines."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "CASES",
    "ENGINES",
    "HYBRIDS",
    "MIXTURES",
    "MODELS",
    "PROMPTS",
    "QUANTIZED",
    "START_ROOM",
    "TWO_TERMS",
    "Case",
    "Engine",
    "Model",
    "Room",
    "steps",
    "tokens",
    "turns",
]


@dataclass(frozen=True)
class Case:
    """One thing that engines are timed at.

    Attributes
    ----------
    name, title : str
    kind : {"decode", "prompt", "start"}
        The steps after a prompt, a prompt, or all from the opening of the file to the first token.
    length : int
        Of the prompt.
    new : int
        How many steps are timed.
    sequences : int
        How many are decoded, or read, at once.
    engines : tuple of str
        The names of those that take part; all of them where it is empty.
    after_decode : tuple of str
        Those that take a turn of the case ``decode`` right before, since results compare the two
        and the bandwidth of some machines changes within seconds.
    """

    name: str
    title: str
    kind: str
    length: int
    new: int = 0
    sequences: int = 1
    engines: tuple[str, ...] = ()
    after_decode: tuple[str, ...] = ()

    @property
    def tokens_per_time(self) -> int:
        """Tokens that are read in the time that is measured, or written in that of a step."""
        return self.sequences * (self.length if self.kind == "prompt" else 1)


_CASES = (
    Case("decode", "decoding after a prompt of 32 tokens", "decode", 32, 128),
    Case("context 500", "decoding after 500 tokens", "decode", 500, 64),
    Case(
        "context 4000",
        "decoding after 4,000 tokens",
        "decode",
        4000,
        32,
        after_decode=("cpp",),
    ),
    Case("prompt", "a prompt of 512 tokens", "prompt", 512),
    Case(
        "prompts",
        "16 prompts of 32 tokens at once",
        "prompt",
        32,
        sequences=16,
        engines=("cpp", "multiply", "cpp, int8", "OpenVINO GenAI"),
    ),
    Case("batch 2", "decoding 2 sequences at once", "decode", 32, 64, 2),
    Case(
        "batch 8",
        "decoding 8 sequences at once",
        "decode",
        32,
        64,
        sequences=8,
        after_decode=("cpp", "cpp, int8"),
    ),
    Case("batch 32", "decoding 32 sequences at once", "decode", 32, 32, 32),
    Case("start", "first token of a new process, after a prompt of 32 tokens", "start", 32),
)
CASES = {case.name: case for case in _CASES}


@dataclass(frozen=True)
class Model:
    """A file that engines open.

    Attributes
    ----------
    name : str
    kind : str
        The format of its matrices.
    cases : tuple of str
    share : float
        Of a case's steps: a larger model takes longer for each.
    most_rounds : int
        How many rounds are measured at the most.
    """

    name: str
    kind: str
    cases: tuple[str, ...]
    share: float = 1.0
    most_rounds: int = 100


LARGE = ("decode", "prompt", "start")
MIXTURE = ("decode", "prompt", "batch 8")
# The fewest that a median has an interval of 95% with.
SIX = 6
_MODELS = (
    Model("SmolLM2 Q4_1", "Q4_1", tuple(CASES)),
    Model("SmolLM2 BF16", "BF16", ("decode",)),
    Model("1B Q4_0", "Q4_0", LARGE, 0.5, SIX),
    Model("1B Q4_K", "Q4_K", LARGE, 0.5, SIX),
    Model("1B Q6_K", "Q6_K", LARGE, 0.25, SIX),
    Model("1B Q8_0", "Q8_0", LARGE, 0.25, SIX),
    Model("1B BF16", "BF16", LARGE, 0.125, SIX),
    Model("1B F32", "F32", LARGE, 0.0625, SIX),
    Model("A3B Q4_K", "Q4_K", MIXTURE, 0.5, SIX),
    Model("A3B IQ4_XS", "IQ4_XS", MIXTURE, 0.5, SIX),
    Model("OSS MXFP4", "MXFP4", MIXTURE, 0.5, SIX),
    Model("Hybrid 0.8B Q4_K", "Q4_K", MIXTURE, 0.5, SIX),
    Model("Hybrid A3B Q4_K", "Q4_K", MIXTURE, 0.5, SIX),
)
MODELS = {model.name: model for model in _MODELS}
HYBRIDS = tuple(model.name for model in _MODELS if model.name.startswith("Hybrid"))
MIXTURES = tuple(
    model.name for model in _MODELS if model.cases == MIXTURE and model.name not in HYBRIDS
)


@dataclass(frozen=True)
class Engine:
    """A process that runs models.

    Attributes
    ----------
    name : str
    module : str
        Its file in the folder ``engines``.
    threads : int
    cases, models : tuple of str
        What it takes part in; all of them where it is empty.
    settings : mapping
    share : float
        Of a case's steps: a slow engine gets by with fewer.
    most_starts : int or None
        How often it is started anew at the most, where that is slow.
    left_out : tuple of tuple of str
        Models and cases that it does not come back from.
    """

    name: str
    module: str
    threads: int = 2
    cases: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    share: float = 1.0
    most_starts: int | None = None
    left_out: tuple[tuple[str, str], ...] = ()

    def takes(self, model: Model, case: Case) -> bool:
        """Return whether it takes part."""
        return (
            (not self.cases or case.name in self.cases)
            and (not self.models or model.name in self.models)
            and (not case.engines or self.name in case.engines)
            and (model.name, case.name) not in self.left_out
        )


SMALL = ("SmolLM2 Q4_1",)
QUANTIZED = tuple(model.name for model in _MODELS if not model.kind.endswith(("F16", "F32")))
STEPS = tuple(case.name for case in _CASES if case.kind == "decode")
PROMPTS = tuple(case.name for case in _CASES if case.kind == "prompt")
SHORT = tuple(case.name for case in _CASES if case.length < 1000)
ONE_THREAD = ("decode", "prompt", "batch 8")
BFLOAT16 = {"dtype": "bfloat16"}
# The fastest settings, which its llama-bench calls -rtr 1 -fa 1.
REPACKED = {"repack_tensors": True, "use_mmap": False, "flash_attn": True}
# Engines of one ratio stand next to each other.
_ENGINES = (
    Engine("llama.cpp, 1 thread", "llama_cpp", 1, ONE_THREAD, SMALL),
    Engine(
        "ik_llama.cpp",
        "ik_llama_cpp",
        cases=(*STEPS, "prompt"),
        settings=REPACKED,
        left_out=(("OSS MXFP4", "batch 8"),),
    ),
    Engine("llama.cpp", "llama_cpp"),
    Engine("cpp", "cpp"),
    Engine("read", "processor", cases=STEPS),
    Engine("multiply", "processor", cases=PROMPTS),
    Engine(
        "cpp, int8",
        "cpp",
        cases=(*STEPS, *PROMPTS),
        models=QUANTIZED,
        settings={"activations": "int8"},
    ),
    Engine("cpp, cache", "cpp", cases=("start",), settings={"cache": True}),
    Engine(
        "cpp, bfloat16",
        "cpp",
        models=("1B BF16",),
        settings={"activations": "bfloat16"},
    ),
    Engine("cpp, 1 thread", "cpp", 1, ONE_THREAD, SMALL),
    Engine(
        "transformers",
        "transformers",
        cases=SHORT,
        models=(*SMALL, "SmolLM2 BF16"),
        settings=BFLOAT16,
        share=0.125,
        most_starts=1,
    ),
    Engine(
        "transformers, compiled",
        "transformers",
        cases=("decode",),
        models=SMALL,
        settings=BFLOAT16 | {"compile": True},
        share=0.125,
    ),
    Engine("OpenVINO GenAI", "openvino_genai", 2, SHORT, SMALL, share=0.25, most_starts=3),
    Engine("ONNX Runtime GenAI", "onnxruntime_genai", 2, SHORT, SMALL, share=0.25, most_starts=3),
)
ENGINES = {engine.name: engine for engine in _ENGINES}
# Models of integer weights whose activations have two int8 terms.
TWO_TERMS = ("cpp", "cpp, 1 thread")


@dataclass(frozen=True)
class Room:
    """Sizes that an engine is opened for: sequences at once, and positions of the longest."""

    sequences: int
    positions: int


# The sizes of a process that is opened for its start only.
START_ROOM = Room(sequences=1, positions=1024)


def turns(model: Model, cases: tuple[str, ...]) -> Iterator[tuple[Case, list[Engine]]]:
    """Yield the cases of a model with the engines that take part."""
    for name in cases:
        if name in model.cases:
            case = CASES[name]
            yield case, [each for each in _ENGINES if each.takes(model, case)]


def steps(model: Model, engine: Engine, case: Case) -> int:
    """Return how many steps of a case are timed."""
    return max(8, round(case.new * model.share * engine.share))


def tokens(length: int, first: int = 0) -> list[int]:
    """Return tokens of a prompt; those with another `first` differ from the beginning."""
    return [(37 * (first + position)) % 20000 + 100 for position in range(length)]
