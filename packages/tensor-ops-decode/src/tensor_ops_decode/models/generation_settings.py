"""What a model's files say about generation: the tokens that end an answer, and how to sample."""

from collections.abc import Iterator, Mapping
from typing import Any

from tensor_ops_decode.arguments import whole
from tensor_ops_decode.serving.sampling import Sampling
from tensor_ops_decode.weights import FileFormatError, Weights
from tensor_ops_decode.weights.gguf import GgufFile

__all__ = ["end_tokens_of", "generation_defaults"]

# What ends a text, a turn, and a message to a tool.
_GGUF_END_TOKENS = tuple(f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom"))
_GGUF_SAMPLING = {
    "temperature": "general.sampling.temp",
    "top_k": "general.sampling.top_k",
    "top_p": "general.sampling.top_p",
    "min_p": "general.sampling.min_p",
    "repetition_penalty": "general.sampling.penalty_repeat",
}
_SAMPLED = ("temperature", "top_k", "top_p", "min_p")
# What readers of these files take where one asks for sampling and leaves these out: transformers,
# which does not even write them (GenerationConfig), and llama.cpp (common_params_sampling).
_TRANSFORMERS_SAMPLING = {"temperature": 1.0, "top_k": 50}
_LLAMA_CPP_SAMPLING = {"temperature": 0.8}


def end_tokens_of(weights: Weights) -> frozenset[int]:
    """Return all tokens that end an answer, as any file of the model says.

    Raises
    ------
    FileFormatError
        If one is no token.
    """
    return frozenset(
        token
        for where, key, values in _end_token_keys(weights)
        for token in _tokens(where, key, values)
    )


def generation_defaults(weights: Weights) -> dict[str, Any]:
    """Return how a model's files would have its answers generated, by arguments of `generate`.

    Raises
    ------
    FileFormatError
        If a value cannot be; the message names file and key.
    """
    if isinstance(weights, GgufFile):
        return _gguf_defaults(weights)
    return _transformers_defaults(*weights.generation_config)


def _end_token_keys(weights: Weights) -> Iterator[tuple[str, str, Any]]:
    """Give each place that may list end tokens: file, key and what is there."""
    if isinstance(weights, GgufFile):
        for key in _GGUF_END_TOKENS:
            yield weights.path, key, weights.metadata.get(key)
        return
    where, values = weights.generation_config
    yield weights.config, "eos_token_id", weights.metadata.get("eos_token_id")
    yield where, "eos_token_id", values.get("eos_token_id")


def _tokens(where: str, key: str, values: Any) -> list[int]:
    given = values if isinstance(values, list) else [values]
    tokens = [token for token in given if token is not None]
    if not all(type(token) is int and token >= 0 for token in tokens):
        raise FileFormatError(f"{where}: {key}: {values!r:.80}; expected tokens")
    return tokens


def _gguf_defaults(file: GgufFile) -> dict[str, Any]:
    found = {name: file.metadata.get(key) for name, key in _GGUF_SAMPLING.items()}
    found = {name: value for name, value in found.items() if value is not None}
    for name, value in found.items():
        # llama.cpp reads a negative one like 0.
        if name in ("temperature", "top_k") and isinstance(value, (int, float)):
            found[name] = max(value, 0)
        _check(file.path, _GGUF_SAMPLING[name], name, found[name])
    return {**_LLAMA_CPP_SAMPLING, **found} if found else {}


def _transformers_defaults(where: str, values: Mapping[str, Any]) -> dict[str, Any]:
    config = {key: value for key, value in values.items() if value is not None}
    samples = config.get("do_sample", False)
    if not isinstance(samples, bool):
        raise FileFormatError(f"{where}: do_sample must be true or false, got {samples!r:.80}")
    found = {}
    for name in (*_SAMPLED, "repetition_penalty", "max_new_tokens"):
        if name in config:
            _check(where, name, name, config[name])
            if samples or name not in _SAMPLED:
                found[name] = config[name]
    return {**_TRANSFORMERS_SAMPLING, **found} if samples else found


def _check(where: str, key: str, name: str, value: Any) -> None:
    """Raise a FileFormatError unless an argument of `generate` may have this value."""
    if not isinstance(value, (int, float)):
        raise FileFormatError(f"{where}: key {key!r} must be a number, got {value!r:.80}")
    given: dict[str, Any] = {name: value}
    try:
        if name == "max_new_tokens":
            whole(name, value)
        else:
            Sampling(**given)
    except ValueError as error:
        raise FileFormatError(f"{where}: key {key!r}: {error!s:.200}") from None
