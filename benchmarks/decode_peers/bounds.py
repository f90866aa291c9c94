"""Goals of the decode engine on each kind of processor."""

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["BOUNDS", "Bounds"]


@dataclass(frozen=True)
class Bounds:
    """The bounds of the goals that differ between kinds of processors.

    The first number of a pair is for two int8 terms, which are the default, the second for one.

    Attributes
    ----------
    small_decode, decode : float
        Parts of the read bandwidth: for SmolLM2 in Q4_1, and for every other model.
    small_beside : float
        SmolLM2 in Q4_1, beside the better of llama.cpp and ik_llama.cpp.
    prompt_peer : str
        The engine that the prompt of SmolLM2 is compared with.
    prompt : tuple of float
    eight : tuple of float
        A step of eight sequences in steps of one.
    beside_llama_cpp : mapping of str to tuple of float
        What else is compared with llama.cpp.
    """

    small_decode: float
    decode: float
    small_beside: float
    prompt_peer: str
    prompt: tuple[float, float]
    eight: tuple[float, float]
    beside_llama_cpp: Mapping[str, tuple[float, float]] = field(default_factory=dict)


BOUNDS = {
    "avx512": Bounds(
        small_decode=0.95,
        decode=0.92,
        small_beside=1.0,
        prompt_peer="OpenVINO GenAI",
        prompt=(1.05, 1.3),
        eight=(1.9, 1.45),
        beside_llama_cpp={
            "SmolLM2 Q4_1: prompt": (3.5, 5.0),
            "SmolLM2 Q4_1: eight sequences": (6.0, 8.5),
            "1B Q4_0: prompt": (1.2, 1.7),
        },
    ),
    "amx": Bounds(
        small_decode=0.9,
        decode=0.9,
        small_beside=1.0,
        prompt_peer="OpenVINO GenAI",
        prompt=(0.8, 1.0),
        eight=(1.9, 1.5),
    ),
    "avx2": Bounds(
        small_decode=0.85,
        decode=0.85,
        small_beside=1.7,
        prompt_peer="ik_llama.cpp",
        prompt=(1.2, 1.7),
        eight=(3.2, 2.1),
    ),
}
