"""Which quantized weights can be read, by the quantization_config of config.json."""

from collections.abc import Callable, Iterable

from tensor_ops_decode.models.settings import ModelSettings
from tensor_ops_decode.weights import FileFormatError
from tensor_ops_decode.weights.joined.int4 import checkpoint_format

__all__ = ["check_quantization"]


def check_quantization(settings: ModelSettings) -> None:
    """Raise a FileFormatError for quantized weights that are not read as their library means them.

    Settings for rounding activations are ignored: activations are not rounded.
    """
    if not settings.values.get("quantization_config"):
        return
    given = settings.section("quantization_config")
    method = given.values.get("quant_method")
    check = _METHODS.get(method) if isinstance(method, str) else None
    if check is None:
        raise FileFormatError(
            f"{settings.where}: weights quantized by {method!r:.80} are not supported, but those "
            f"by {', '.join(_METHODS)} are; use the GGUF file of the model, or the folder that it "
            "was quantized from"
        )
    check(ModelSettings(f"{settings.where}: quantization_config", given.values))


def _check_fp8(given: ModelSettings) -> None:
    given.require("fmt", "e4m3")
    given.require("expert_dtype", "fp8")
    _check_block(given, "weight_block_size")


def _check_gptq(given: ModelSettings) -> None:
    given.require("bits", 4)
    _check_layout(given, "checkpoint_format", ("gptq", "gptq_v2"))


def _check_awq(given: ModelSettings) -> None:
    given.require("bits", 4)
    given.require("zero_point", True)
    _check_layout(given, "version", ("gemm",))
    if given.values.get("backend") == "llm-awq":
        raise FileFormatError(f"{given.where}: backend is 'llm-awq', which is not supported")


def _check_compressed_tensors(given: ModelSettings) -> None:
    given.require("format", "float-quantized")
    given.require("kv_cache_scheme", None)
    if given.values.get("transform_config"):
        raise FileFormatError(f"{given.where}: there is a transform_config, which is not supported")
    _check_choice(given.section("sparsity_config"), "format", ("dense",))
    groups = given.section("config_groups")
    for name in groups.values:
        weights = groups.section(name).section("weights")
        weights.require("type", "float")
        weights.require("num_bits", 8)
        weights.require("symmetric", True)
        _check_choice(weights, "strategy", ("tensor", "channel", "block"))
        _check_block(weights, "block_structure")


def _check_block(given: ModelSettings, name: str) -> None:
    """Raise a FileFormatError unless there are rows and columns of a block, or none."""
    block = given.values.get(name)
    is_pair = isinstance(block, list) and len(block) == 2
    if block is not None and not (is_pair and all(type(n) is int and n > 0 for n in block)):
        raise FileFormatError(
            f"{given.where}: {name} must be the rows and columns of a block, got {block!r:.80}"
        )


def _check_layout(given: ModelSettings, name: str, known: Iterable[str]) -> None:
    """Raise a FileFormatError unless integers are laid out in a known way."""
    found = {name: checkpoint_format(given.values)}
    _check_choice(ModelSettings(given.where, found), name, known)


def _check_choice(given: ModelSettings, name: str, known: Iterable[str]) -> None:
    value = given.values.get(name)
    if value is not None and value not in known:
        raise FileFormatError(
            f"{given.where}: {name} is {value!r:.80}; supported are {', '.join(known)}"
        )


_METHODS: dict[str, Callable[[ModelSettings], None]] = {
    "mxfp4": lambda given: None,
    "fp8": _check_fp8,
    "compressed-tensors": _check_compressed_tensors,
    "gptq": _check_gptq,
    "awq": _check_awq,
}
