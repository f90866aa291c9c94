"""Models of every family with any setting or tensor changed: a program, or a FileFormatError."""

import copy
import json
import tempfile
from pathlib import Path
from types import SimpleNamespace

from changes import change
from choices import Choices
from model_bytes import gguf, keys_of, replace, safetensors, tensor, tensors_of

from tensor_ops_decode import FileFormatError, PersistentKernel, Program
from tensor_ops_decode.models import FAMILIES, decoder_of
from tensor_ops_decode.weights.formats import FORMATS

__all__ = ["try_input"]

WORDS = [
    "rope_scaling", "rope_parameters", "text_config", "vision_config", "layer_types", "longrope",
    "linear", "llama3", "yarn", "default", "su", "rope_type", "type", "factor", "low_freq_factor",
    "high_freq_factor", "short_factor", "long_factor", "partial_rotary_factor", "expert_count",
    "original_max_position_embeddings", "attention_factor", "sliding_attention", "full_attention",
    "quantization_config", "use_sliding_window", "max_window_layers", "hidden_activation", "q8_0",
    "rope.scaling.type", "rope.scaling.factor", "rope.dimension_count", "rope.scale_linear",
    "rope.scaling.original_context_length", "attention.sliding_window_pattern", "eos_token_id",
    "rope.freq_base_swa", "attention.scale", "gelu_pytorch_tanh", "bos_token_id", "f16", "bf16",
    "dynamic", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate", "residual_scale",
    "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_log_multiplier", "llama_4_scaling_beta",
    "attention.temperature_scale", "no_rope_layers", "no_rope_layer_interval", "logits_scaling",
    "residual_multiplier",
]  # fmt: skip
GGUF = {
    "embedding_length": 32,
    "block_count": 2,
    "feed_forward_length": 64,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.key_length": 8,
    "attention.sliding_window": 5,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "rope.freq_base": 1e4,
    "rope.scaling.attn_factor": 1.25,
    "context_length": 64,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
    "logit_scale": 4.0,
}
HUGGING_FACE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "sliding_window": 5,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 64,
    "vocab_size": 40,
    "query_pre_attn_scalar": 8,
}
FACTORS = {
    "rope_freqs.weight": {"type": "f32", "shape": [4]},
    "rope_factors_long.weight": {"type": "f32", "shape": [4]},
    "rope_factors_short.weight": {"type": "f32", "shape": [4]},
}


class OnlyEmbedding:
    """Files that tell the names of a family's tensors."""

    path = config = "files"
    names = ("token_embd.weight", "model.embed_tokens.weight")

    def __init__(self, metadata):
        self.metadata = metadata

    def header(self, name):
        return SimpleNamespace(shape=(HUGGING_FACE["vocab_size"], HUGGING_FACE["hidden_size"]))


def _models():
    """Return the settings and the tensors of a model of each family, in both kinds of files."""
    for family in FAMILIES:
        settings = {f"{family.gguf}.{name}": value for name, value in GGUF.items()}
        yield _model({"general.architecture": family.gguf, **settings})
        activation = "silu" if "Gemma" not in family.name else "gelu_pytorch_tanh"
        own = {**HUGGING_FACE, "hidden_act": activation, "hidden_activation": activation}
        own = {family.within: own} if family.within else own
        yield _model({"architectures": [family.hugging_face], **own})
    phi3 = {f"phi3.{name}": value for name, value in GGUF.items()}
    phi3 |= {"phi3.rope.scaling.original_context_length": 8, "general.architecture": "phi3"}
    model = _model(phi3)
    model["tensors"] |= FACTORS
    yield model
    yarn = {"type": "yarn", "factor": 4.0, "original_context_length": 16, "yarn_beta_fast": 8.0}
    mistral3 = GGUF | {f"rope.scaling.{name}": value for name, value in yarn.items()}
    mistral3 |= {"attention.temperature_scale": 0.1}
    settings = {f"mistral3.{name}": value for name, value in mistral3.items()}
    yield _model({"general.architecture": "mistral3", **settings})


def _model(metadata):
    decoder = decoder_of(OnlyEmbedding(metadata))
    hidden, inner, size = decoder.hidden, decoder.intermediate, decoder.head_size
    q, kv = decoder.heads * size, decoder.kv_heads * size
    vocabulary = decoder.vocabulary
    shapes = {
        "embedding": [vocabulary, hidden], "head": [vocabulary, hidden], "norm": [hidden],
        "attention_norm": [hidden], "attention_post_norm": [hidden],
        "mlp_norm": [hidden], "mlp_post_norm": [hidden],
        "q_norm": [q if decoder.norms_rows else size],
        "k_norm": [kv if decoder.norms_rows else size],
        "q": [q, hidden], "k": [kv, hidden], "v": [kv, hidden], "qkv": [q + 2 * kv, hidden],
        "o": [hidden, q], "gate": [inner, hidden], "up": [inner, hidden],
        "gate_up": [2 * inner, hidden], "down": [hidden, inner],
    }  # fmt: skip
    names = dict(decoder.names)
    layer = names.pop("layer")
    for role, parts in (("qkv", "q k v"), ("gate_up", "gate up")):
        for part in parts.split() if role in names else ():
            del names[part]
    if decoder.is_tied:
        del names["head"]
    tensors = {}
    for role, name in names.items():
        everywhere = role in ("embedding", "norm", "head")
        for prefix in [""] if everywhere else [layer.format(0), layer.format(1)]:
            tensors[f"{prefix}{name}.weight"] = {"type": "f32", "shape": shapes[role]}
            if role in decoder.biases:
                tensors[f"{prefix}{name}.bias"] = {"type": "f32", "shape": shapes[role][:1]}
    return {"settings": metadata, "tensors": tensors}


MODELS = list(_models())
SEEDS = [bytes([i, 0]) for i in range(len(MODELS))]
_folder = tempfile.TemporaryDirectory(prefix="fuzz-model-settings-")
FOLDER = Path(_folder.name)
FILE = FOLDER / "model.gguf"


def try_input(data):
    choices = Choices(data)
    model = copy.deepcopy(choices.pick(MODELS))
    for _ in range(choices.below(4)):
        change(model, choices, WORDS)
    path = _written(model)
    options = {"max_seq_length": 16, "max_num_batched_tokens": 4, "max_num_batched_requests": 2}
    try:
        kernel = PersistentKernel(model=path, backend="python", page_size=4, **options)
    except FileFormatError as error:
        message = str(error)
        assert message.startswith(str(path)), message
        assert len(message) < 2000, message
        return
    with kernel:
        if choices.rarely():
            assert Program.from_json(kernel.program.to_json()) == kernel.program
            kernel.compile()
            request = kernel.add_request([0, 0, 0])
            assert kernel()[request] < kernel.program.values["logits"].columns


def _written(model):
    """Write the files of a model, which may be none, and return their path."""
    settings, tensors = model.get("settings"), model.get("tensors")
    places, data = tensors_of(tensors)
    if isinstance(settings, dict) and "general.architecture" in settings:
        infos = [
            tensor(name.encode(), FORMATS[kind].ggml_type, *shape[::-1], offset=begin)
            for name, kind, shape, begin, _ in places
        ]
        replace(FILE, gguf(keys_of(settings), infos, data))
        return FILE
    header = {
        name: {"dtype": kind.upper(), "shape": shape, "data_offsets": [begin, end]}
        for name, kind, shape, begin, end in places
    }
    replace(FOLDER / "model.safetensors", safetensors(header, data))
    replace(FOLDER / "config.json", json.dumps(settings).encode())
    return FOLDER
