"""Generation settings in a model's files: the tokens that end an answer, and how to sample."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tensor_ops_decode.arguments import whole
from tensor_ops_decode.scheduling.sampling import Sampling
from tensor_ops_decode.weights import FileFormatError, Weights
from tensor_ops_decode.weights.gguf import GgufFile

__all__ = ["end_tokens_of", "generation_defaults", "problem_with_end_tokens"]

# Keys of the tokens that end a text, a turn, and a message to a tool.
_GGUF_END_TOKENS = tuple(f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom"))
_GGUF_SAMPLING = {
    "temperature": "general.sampling.temp",
    "top_k": "general.sampling.top_k",
    "top_p": "general.sampling.top_p",
    "min_p": "general.sampling.min_p",
    "xtc_probability": "general.sampling.xtc_probability",
    "xtc_threshold": "general.sampling.xtc_threshold",
    "repetition_penalty": "general.sampling.penalty_repeat",
}
_SAMPLED = ("temperature", "top_k", "top_p", "min_p", "typical_p")
_WHOLE = ("top_k", "max_new_tokens")
# Defaults of readers of these files where one asks for sampling and leaves these out: transformers,
# which does not even write them (GenerationConfig), and llama.cpp (common_params_sampling).
_TRANSFORMERS_SAMPLING = {"temperature": 1.0, "top_k": 50}
_LLAMA_CPP_SAMPLING = {"temperature": 0.8}
_LIKELIEST = {"top_k": 1}


def end_tokens_of(weights: Weights) -> frozenset[int]:
    """Return all tokens that end an answer, as any file of the model says.

    As in transformers, a number is rounded towards zero, and a negative one is no token. What is no
    number is left out: see `problem_with_end_tokens`.
    """
    numbers = (
        int(value)
        for _, _, values in _end_token_keys(weights)
        for value in _listed(values)
        if _is_int64(value)
    )
    return frozenset(number for number in numbers if number >= 0)


def problem_with_end_tokens(weights: Weights) -> str | None:
    """Return what is wrong with the end tokens of a model's files, by file and key, if one is."""
    for where, key, values in _end_token_keys(weights):
        if not all(map(_is_int64, _listed(values))):
            return f"{where}: {key}: {values!r:.80}; expected tokens"
    return None


def generation_defaults(weights: Weights) -> dict[str, Any]:
    """Return how a model's files would have its answers generated, by arguments of `generate`.

    Raises
    ------
    FileFormatError
        If a value that is followed cannot be; the message names file and key.
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


def _listed(values: Any) -> list[Any]:
    if values is None:
        return []
    return values if isinstance(values, list) else [values]


def _is_int64(value: Any) -> bool:
    return isinstance(value, (int, float)) and -(2**63) <= value < 2**63


def _gguf_defaults(file: GgufFile) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, key in _GGUF_SAMPLING.items():
        if (value := file.metadata.get(key)) is not None:
            found |= _settings(file.path, key, name, value, _meant_by_llama_cpp)
    return {**_LLAMA_CPP_SAMPLING, **found} if found else {}


def _meant_by_llama_cpp(name: str, value: Any) -> dict[str, Any]:
    if name in ("temperature", "top_k", "min_p", "xtc_probability", "xtc_threshold") and value <= 0:
        return {name: 0}
    if name in ("xtc_probability", "xtc_threshold"):
        return {name: value if math.isnan(value) else min(value, 1.0)}
    if name == "top_k":
        return {name: int(value)}
    if name == "top_p" and value >= 1:
        return {name: 1.0}
    # However little is left of the probabilities, the likeliest token is.
    is_none_left = (name == "top_p" and value <= 0) or (name == "min_p" and value > 1)
    return _LIKELIEST if is_none_left else {name: value}


def _transformers_defaults(where: str, values: Mapping[str, Any]) -> dict[str, Any]:
    config = {key: value for key, value in values.items() if value is not None}
    samples = config.get("do_sample", False)
    if not isinstance(samples, (int, float)):
        raise FileFormatError(f"{where}: do_sample must be true or false, got {samples!r:.80}")
    found: dict[str, Any] = {}
    for name in (*(_SAMPLED if samples else ()), "repetition_penalty", "max_new_tokens"):
        if name in config:
            found |= _settings(where, name, name, config[name], _meant_by_transformers)
    return {**_TRANSFORMERS_SAMPLING, **found} if samples else found


def _meant_by_transformers(name: str, value: Any) -> dict[str, Any]:
    if name == "temperature" and value == 0:
        raise ValueError("temperature must be larger than 0 where do_sample is true, got 0")
    if name in ("top_p", "typical_p") and not value < 1:
        return {}
    if name == "top_p" and value == 0:
        return _LIKELIEST
    if name in _WHOLE:
        return {name: int(value) if isinstance(value, float) and value.is_integer() else value}
    return {name: +value}  # true is 1, as in Python


def _settings(
    where: str,
    key: str,
    name: str,
    value: Any,
    meant: Callable[[str, Any], dict[str, Any]],
) -> dict[str, Any]:
    """Return what a value means as arguments of `generate`, or raise a FileFormatError."""
    if not isinstance(value, (int, float)):
        raise FileFormatError(f"{where}: key {key!r} must be a number, got {value!r:.80}")
    try:
        found = meant(name, value)
        if name == "max_new_tokens":
            whole(name, found[name])
        else:
            Sampling(**found)
    except (ValueError, OverflowError) as error:
        raise FileFormatError(f"{where}: key {key!r}: {error!s:.200}") from None
    return found
