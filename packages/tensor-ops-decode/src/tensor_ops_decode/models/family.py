"""A family of models: its names, and how its files are read."""

from collections.abc import Callable
from dataclasses import dataclass

from tensor_ops_decode.models.decoder import Decoder
from tensor_ops_decode.models.settings import Settings
from tensor_ops_decode.weights import Weights

__all__ = ["Family"]


@dataclass(frozen=True)
class Family:
    """A family of models.

    Attributes
    ----------
    name : str
    gguf : str
        Its architecture in a GGUF file.
    hugging_face : str
        Its architecture in config.json.
    from_gguf, from_hugging_face : callable
        Return its `Decoder`, of the files and of what they say about it.
    """

    name: str
    gguf: str
    hugging_face: str
    from_gguf: Callable[[Weights, Settings], Decoder]
    from_hugging_face: Callable[[Weights, Settings], Decoder]
