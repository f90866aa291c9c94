"""The experts of a model's layers, as its files describe them."""

from dataclasses import dataclass
from typing import Any

from tensor_ops_decode.models.settings import ModelSettings
from tensor_ops_decode.weights import FileFormatError

__all__ = [
    "GGUF_EXPERTS",
    "HUGGING_FACE_EXPERTS",
    "QWEN_EXPERTS",
    "Experts",
    "alternating_layers",
    "gguf_experts",
    "hugging_face_experts",
]

#: What their tensors are called. With braces, each expert has a matrix of its own by its number;
#: without, there is one stack of those of all.
GGUF_EXPERTS = {
    "router": "ffn_gate_inp",
    "expert_gate_up": "ffn_gate_up_exps",
    "expert_gate": "ffn_gate_exps",
    "expert_up": "ffn_up_exps",
    "expert_down": "ffn_down_exps",
    "shared_gate": "ffn_gate_shexp",
    "shared_up": "ffn_up_shexp",
    "shared_down": "ffn_down_shexp",
}
HUGGING_FACE_EXPERTS = {
    "router": "mlp.gate",
    "expert_gate_up": "mlp.experts.gate_up_proj",
    "expert_gate": "mlp.experts.{}.gate_proj",
    "expert_up": "mlp.experts.{}.up_proj",
    "expert_down": "mlp.experts.{}.down_proj",
    "expert_down_stack": "mlp.experts.down_proj",
}
#: The same where a model of Qwen has a shared expert.
QWEN_EXPERTS = HUGGING_FACE_EXPERTS | {
    "shared_router": "mlp.shared_expert_gate",
    "shared_gate": "mlp.shared_expert.gate_proj",
    "shared_up": "mlp.shared_expert.up_proj",
    "shared_down": "mlp.shared_expert.down_proj",
}


@dataclass(frozen=True)
class Experts:
    """The experts among which the layers of a model choose.

    Attributes
    ----------
    count, chosen : int
        How many there are, and how many compute for a token.
    intermediate : int
        The inner columns of each.
    layers : tuple of bool
        Whether each layer has them, instead of one MLP.
    scoring : {"softmax", "sigmoid", "softmax_of_chosen"}
        Of the router's logits.
    is_normalised : bool
        Whether the weights of a token are divided by their sum plus `eps`.
    eps, scale : float
        All weights are multiplied by the scale.
    groups, used_groups : int
        The experts are chosen from the groups with the largest scores.
    group_score : {"sum_of_best_two", "best"}
        What the score of a group is, of those of its experts.
    shared : int
        The inner columns of an expert that computes for every token; 0 for none. It has a gate of
        its own where the names of the model have a ``shared_router``.
    router_scale : float
        The factor of what the router's own norm gives, which it has where the names of the model
        have a ``router_norm``. Each expert has a scale where they have ``expert_scale``. Where they
        have ``expert_norm``, the MLP that every layer has computes beside the experts, and there
        are norms behind both: ``dense_post_norm`` and ``expert_post_norm``.
    """

    count: int
    chosen: int
    intermediate: int
    layers: tuple[bool, ...]
    scoring: str = "softmax"
    is_normalised: bool = True
    eps: float = 0.0
    scale: float = 1.0
    groups: int = 1
    used_groups: int = 1
    group_score: str = "sum_of_best_two"
    shared: int = 0
    router_scale: float = 1.0

    @property
    def routing(self) -> dict[str, Any]:
        """The attributes of the node that chooses."""
        return {
            "top_k": self.chosen,
            "scoring": self.scoring,
            "normalise": "sum" if self.is_normalised else "none",
            "eps": self.eps,
            "scale": self.scale,
            "groups": self.groups,
            "used_groups": self.used_groups,
            "group_score": self.group_score,
        }


def gguf_experts(settings: ModelSettings, intermediate: int, **given: Any) -> Experts:
    """Return the experts of a GGUF file, where each layer has them.

    The family says how many inner columns they have where the file does not, and the fields of
    `Experts` that it knows better.
    """
    count = settings.size("expert_count")
    fields: dict[str, Any] = {
        "count": count,
        "chosen": _chosen(settings, "expert_used_count", count),
        "intermediate": settings.size("expert_feed_forward_length", intermediate),
        "layers": (True,) * settings.size("block_count"),
    }
    return _checked(settings, Experts(**(fields | given)))


def hugging_face_experts(settings: ModelSettings, *counts: str, **given: Any) -> Experts:
    """Return the experts that config.json describes.

    The family gives the names that their number may have, the one that it is saved under first,
    that of how many are chosen as `top_k`, and the fields of `Experts` that it knows better.
    """
    stated = {name: settings.size(name) for name in counts if name in settings.values}
    if len(set(stated.values())) > 1:
        words = " and ".join(f"{name} is {value}" for name, value in stated.items())
        raise FileFormatError(f"{settings.where}: {words}; expected one number of experts")
    count = settings.size(next(iter(stated), counts[0]))
    top_k = given.pop("top_k", "num_experts_per_tok")
    fields: dict[str, Any] = {
        "count": count,
        "chosen": _chosen(settings, top_k, count),
        "layers": (True,) * settings.size("num_hidden_layers"),
    }
    if "intermediate" not in given:
        fields["intermediate"] = settings.size("moe_intermediate_size")
    return _checked(settings, Experts(**(fields | given)))


def alternating_layers(settings: ModelSettings) -> tuple[bool, ...]:
    """Return which layers have experts by ``decoder_sparse_step`` and ``mlp_only_layers``."""
    dense = settings.values.get("mlp_only_layers") or []
    if not isinstance(dense, list) or not all(type(each) is int for each in dense):
        raise FileFormatError(
            f"{settings.where}: mlp_only_layers must be a list of integers, got {dense!r:.80}"
        )
    step, layers = settings.size("decoder_sparse_step"), settings.size("num_hidden_layers")
    return tuple(layer not in dense and (layer + 1) % step == 0 for layer in range(layers))


def _checked(settings: ModelSettings, experts: Experts) -> Experts:
    """Raise a FileFormatError unless the groups of experts have enough of them."""
    count, groups, used = experts.count, experts.groups, experts.used_groups
    if not any(experts.layers):
        return experts
    if count % groups or used > groups or experts.chosen > used * (count // groups):
        raise FileFormatError(
            f"{settings.where}: {experts.chosen} experts are to be of {used} groups, of {groups} "
            f"groups of {count} experts; expected groups of one size that have as many"
        )
    return experts


def _chosen(settings: ModelSettings, name: str, count: int) -> int:
    chosen = settings.size(name)
    if chosen > count:
        raise FileFormatError(
            f"{settings.where}: {name} must be at most the {count} experts, got {chosen}"
        )
    return chosen
