"""Programs of models that are too large to be here, from their sizes alone."""

from functools import cache

from tensor_ops_decode import Limits, Program
from tensor_ops_decode.models.assembly import program_of
from tensor_ops_decode.models.decoder import GGUF_NAMES, Decoder
from tensor_ops_decode.models.rope import Rope
from tensor_ops_decode.weights import StoredTensor, Weights
from tensor_ops_decode.weights.tensor import TensorHeader

__all__ = ["SIZES", "program_of_size"]

#: Llama 3: hidden, layers, heads, heads of keys and values, inner columns, and tokens.
SIZES = {
    "8B": (4096, 32, 32, 8, 14336, 128256),
    "70B": (8192, 80, 64, 8, 28672, 128256),
}
_HEAD_SIZE, _LENGTH = 128, 2048


@cache
def program_of_size(name: str) -> Program:
    """Return the program of a size in q4_0, with the head in q6_K as llama.cpp has it."""
    hidden, layers, heads, kv_heads, inner, words = SIZES[name]
    decoder = Decoder(
        names=GGUF_NAMES,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_size=_HEAD_SIZE,
        intermediate=inner,
        vocabulary=words,
        context=_LENGTH,
        eps=1e-5,
        ropes=(Rope(tuple(5e5 ** (-i / 64) for i in range(64))),) * layers,
        windows=(0,) * layers,
        scale=_HEAD_SIZE**-0.5,
        is_tied=False,
    )
    limits = Limits(1, 1, 1, _LENGTH, 16, _LENGTH // 16)
    return program_of(decoder, _Shapes(decoder), limits)


class _Shapes(Weights):
    """The tensors of a model without their data."""

    def __init__(self, decoder: Decoder) -> None:
        self.path = "a model of this size"
        self.metadata = {}
        hidden, heads = decoder.hidden, decoder.heads * decoder.head_size
        keys, inner = decoder.kv_heads * decoder.head_size, decoder.intermediate
        shapes: dict[str, tuple[int, ...]] = {
            "token_embd": (decoder.vocabulary, hidden),
            "output_norm": (hidden,),
            "output": (decoder.vocabulary, hidden),
        }
        of_layer: dict[str, tuple[int, ...]] = {
            "attn_norm": (hidden,),
            "attn_q": (heads, hidden),
            "attn_k": (keys, hidden),
            "attn_v": (keys, hidden),
            "attn_output": (hidden, heads),
            "ffn_norm": (hidden,),
            "ffn_gate": (inner, hidden),
            "ffn_up": (inner, hidden),
            "ffn_down": (hidden, inner),
        }
        for layer in range(decoder.layers):
            shapes |= {f"blk.{layer}.{name}": shape for name, shape in of_layer.items()}
        self._shapes = {f"{name}.weight": shape for name, shape in shapes.items()}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._shapes)

    def header(self, name: str) -> TensorHeader:
        shape = self._shapes[name]
        kind = "f32" if len(shape) == 1 else "q6_K" if name == "output.weight" else "q4_0"
        return TensorHeader(kind, shape, self.path)

    def tensor(self, name: str) -> StoredTensor:
        raise NotImplementedError("a model of this size has no data")

    def release_tensor(self, name: str) -> None:
        raise NotImplementedError("a model of this size has no data")
