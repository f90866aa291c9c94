"""The sizes of random models, and of those that are released."""

import math
from dataclasses import dataclass

__all__ = ["Shape", "kind_of"]

# How many numbers a block of a format has, in how many bytes.
_BLOCKS = {"Q4_K": (256, 144), "Q8_0": (32, 34), "IQ4_XS": (256, 136), "MXFP4": (32, 17)}


@dataclass(frozen=True)
class Shape:
    """Sizes of a random model; with experts, each layer has as many MLPs, of which some compute."""

    architecture: str
    hidden: int
    layers: int
    heads: int
    key_heads: int
    head: int
    inner: int
    experts: int = 0
    chosen: int = 0

    @property
    def matrices(self) -> dict[str, tuple[int, ...]]:
        """The shapes of a layer's matrices."""
        queries, keys = self.heads * self.head, self.key_heads * self.head
        shapes: dict[str, tuple[int, ...]] = {
            "attn_q": (queries, self.hidden),
            "attn_k": (keys, self.hidden),
            "attn_v": (keys, self.hidden),
            "attn_output": (self.hidden, queries),
        }
        stack, behind = ((self.experts,), "_exps") if self.experts else ((), "")
        for name in ("ffn_gate", "ffn_up"):
            shapes[name + behind] = (*stack, self.inner, self.hidden)
        return shapes | {f"ffn_down{behind}": (*stack, self.hidden, self.inner)}

    def bytes_of_token(self, kind: str, words: int) -> float:
        """Return what a token reads of the weights with a head of so many words."""
        read = float(_bytes((words, self.hidden), kind_of("head", kind)))
        for name, sizes in self.matrices.items():
            part = self.chosen / self.experts if len(sizes) == 3 else 1
            read += self.layers * part * _bytes(sizes, kind_of(name, kind))
        return read + 4 * self.layers * self.experts * self.hidden


def kind_of(name: str, kind: str) -> str:
    """Return the format of a matrix: no file has another part in MXFP4 than its experts."""
    return "Q8_0" if kind == "MXFP4" and "exps" not in name else kind


def _bytes(sizes: tuple[int, ...], kind: str) -> int:
    numbers, size = _BLOCKS[kind]
    return math.prod(sizes) // numbers * size
