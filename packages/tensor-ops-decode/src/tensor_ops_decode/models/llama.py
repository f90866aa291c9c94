"""Llama 1 to 3, SmolLM and models of the same architecture; Mistral, which has a window."""

from tensor_ops_decode.models.checkpoint import gguf_decoder, hugging_face_decoder
from tensor_ops_decode.models.decoder import Decoder, Family
from tensor_ops_decode.models.settings import Settings
from tensor_ops_decode.weights import Weights

__all__ = ["FAMILIES"]


def _gguf(files: Weights, settings: Settings) -> Decoder:
    # llama.cpp's converter permutes the rows of q and k for this. The window of Mistral is not in
    # the file.
    return gguf_decoder(files, settings, rotation="interleaved")


def _mistral(files: Weights, settings: Settings) -> Decoder:
    window = settings.size_or_none("sliding_window", 4096)
    windows = (window,) * settings.size("num_hidden_layers")
    return hugging_face_decoder(files, settings, windows=windows)


FAMILIES = (
    Family("Llama 1 to 3, SmolLM", "llama", "LlamaForCausalLM", _gguf, hugging_face_decoder),
    Family("Mistral", "llama", "MistralForCausalLM", _gguf, _mistral),
)
