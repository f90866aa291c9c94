"""A decoder-only transformer: its sizes, and the names of its tensors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tensor_ops_decode.models.delta_attention import DeltaAttention
from tensor_ops_decode.models.experts import Experts
from tensor_ops_decode.models.latent_attention import LatentAttention
from tensor_ops_decode.models.layer_sizes import LayerSizes
from tensor_ops_decode.models.rope import Rope
from tensor_ops_decode.models.settings import ModelSettings
from tensor_ops_decode.models.state_space import StateSpace
from tensor_ops_decode.weights import Weights

__all__ = [
    "GGUF_DRAFT",
    "GGUF_NAMES",
    "HUGGING_FACE_DRAFT",
    "HUGGING_FACE_NAMES",
    "Decoder",
    "Family",
]

#: What the tensors are called in the two kinds of files; a layer's have its number in front.
GGUF_NAMES = {
    "layer": "blk.{}.",
    "embedding": "token_embd",
    "norm": "output_norm",
    "head": "output",
    "attention_norm": "attn_norm",
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "o": "attn_output",
    "mlp_norm": "ffn_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}
HUGGING_FACE_NAMES = {
    "layer": "model.layers.{}.",
    "embedding": "model.embed_tokens",
    "norm": "model.norm",
    "head": "lm_head",
    "attention_norm": "input_layernorm",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "mlp_norm": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}

# What the layer has beside those of a layer that guesses tokens.
GGUF_DRAFT = {
    "draft_in": "nextn.eh_proj",
    "draft_embedding_norm": "nextn.enorm",
    "draft_hidden_norm": "nextn.hnorm",
    "draft_norm": "nextn.shared_head_norm",
    "draft_embedding": "nextn.embed_tokens",
    "draft_head": "nextn.shared_head_head",
}
HUGGING_FACE_DRAFT = {
    "draft_in": "eh_proj",
    "draft_embedding_norm": "enorm",
    "draft_hidden_norm": "hnorm",
    "draft_norm": "shared_head.norm",
    "draft_embedding": "embed_tokens",
    "draft_head": "shared_head.head",
}


@dataclass(frozen=True)
class Decoder:
    """Description of a model, from which its program is made.

    Attributes
    ----------
    names : mapping of str to str
        As `GGUF_NAMES`. What a model has beside that has a name too: ``qkv`` and ``gate_up``
        instead of their parts, ``q_norm`` and ``k_norm`` for norms of queries and keys, and
        ``attention_post_norm`` and ``mlp_post_norm`` for norms before the residual is added. A
        model may be without ``attention_norm`` and ``mlp_norm``. Whole names, with what stands
        behind the point, have ``sinks`` for a score of each head that has no value, biases of
        ``router_bias`` that are for the choice of experts alone, and ``expert_gate_bias``,
        ``expert_up_bias`` and ``expert_down_bias``.
    transforms : mapping of str to tuple of str
        What is done to tensors of experts on their way from the file, by what they are.
    norms_rows : bool
        Whether the norms of queries and keys are of all heads together, and not of each.
    hidden, layers, heads, kv_heads, head_size, intermediate, vocabulary, context : int
        `context` is the longest sequence that the model was made for.
    eps : float
    ropes : tuple of Rope
        The rotation of queries and keys in each layer.
    rotation : {"halves", "interleaved"}
    windows : tuple of int
        How many positions each layer attends to; 0 for all.
    scale : float
        The factor of the scores.
    is_tied : bool
        Whether the head is the embedding.
    has_head : bool
        Whether there is a head. The program of a model without one has the embedding in its place,
        and its logits mean nothing.
    activation : str
        The kind of node, with the attributes `activation_settings`.
    biases : tuple of str
        The matrices of a layer that have a bias.
    may_have_biases : bool
        Whether others have one too where the file has it; otherwise that is not used.
    embedding_scale, residual_scale, logit_scale : float
        The factors of embeddings, of what a layer's parts add to the residual, and of logits.
    attention_cap, logit_cap : float
        The soft caps of scores and of logits; 0 for none.
    norm_transform : tuple of str
        What is done to the weights of norms.
    experts : Experts or None
        Of a mixture of experts.
    kept_rows : tuple of int
        Of each layer with a short convolution instead of attention: of how many tokens before a
        token it keeps a row; 0 of others. It has the names ``conv_in``, ``conv_out`` and ``conv``.
        Empty where all layers have attention.
    delta : DeltaAttention or None
        Its names begin with ``delta_``; ``delta_decay`` and ``delta_bias`` are whole names.
    state_space : StateSpace or None
        Its names begin with ``ssm_``; ``ssm_rate``, ``ssm_step_bias`` and ``ssm_skip`` are whole
        names.
    latent : LatentAttention or None
        Of a model whose layers have it for attention. It has the names ``q_a``, ``q_a_norm`` and
        ``q_b``, or ``q``; ``kv_a`` and ``kv_a_norm``; and ``kv_b``, or ``k_b`` and ``v_b``.
    gates_attention : bool
        Whether the matrix of queries has rows for gates of what is attended to, behind those of
        each head.
    further_layers : int
        How many layers files may have behind the last one, which are not part of the model. The
        first of them may guess tokens: then there are the names ``draft_in``,
        ``draft_embedding_norm`` and ``draft_hidden_norm``, and there may be ``draft_norm``,
        ``draft_embedding`` and ``draft_head`` where files have one. They stand in the layer, or
        begin with ``draft``; those of the layer itself begin with ``draft_layer`` then.
    layer_sizes : tuple of LayerSizes
        Of each layer; empty where all have the sizes of the model.
    normalises_values : bool
        Whether each head of values is scaled to a root mean square of one.
    per_layer_inputs : int
        The columns of a second embedding that each layer has, 0 for none. Its names begin with
        ``per_layer_``. A number by which a layer is multiplied in the end has the whole name
        ``layer_scale``.
    """

    names: Mapping[str, str]
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    intermediate: int
    vocabulary: int
    context: int
    eps: float
    ropes: tuple[Rope, ...]
    windows: tuple[int, ...]
    scale: float
    is_tied: bool
    rotation: str = "halves"
    activation: str = "silu_mul"
    activation_settings: Mapping[str, Any] = field(default_factory=dict)
    transforms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    biases: tuple[str, ...] = ()
    may_have_biases: bool = False
    embedding_scale: float = 1.0
    attention_cap: float = 0.0
    logit_cap: float = 0.0
    norm_transform: tuple[str, ...] = ()
    experts: Experts | None = None
    kept_rows: tuple[int, ...] = ()
    delta: DeltaAttention | None = None
    state_space: StateSpace | None = None
    latent: LatentAttention | None = None
    gates_attention: bool = False
    further_layers: int = 0
    norms_rows: bool = False
    residual_scale: float = 1.0
    logit_scale: float = 1.0
    layer_sizes: tuple[LayerSizes, ...] = ()
    normalises_values: bool = False
    per_layer_inputs: int = 0
    has_head: bool = True

    def sizes_of(self, layer: int) -> LayerSizes:
        """Return the sizes of a layer."""
        if self.layer_sizes:
            return self.layer_sizes[layer]
        return LayerSizes(self.head_size, self.kv_heads, self.intermediate, layer)

    @property
    def last_of_all_tokens(self) -> int:
        """The last layer that keeps something of each token, which its attention computes."""
        return max(i for i in range(self.layers) if self.sizes_of(i).cache == i)

    @property
    def has_states(self) -> bool:
        """Whether a layer keeps a state instead of keys and values."""
        of_layers = [each.layers for each in (self.delta, self.state_space) if each is not None]
        return any(map(any, [self.kept_rows, *of_layers]))

    def with_draft_layer(self) -> "Decoder":
        """Return the model with one layer more, which is as the last one."""
        experts = self.experts
        if experts is not None:
            experts = replace(experts, layers=(*experts.layers, experts.layers[-1]))
        ropes, windows = (*self.ropes, self.ropes[-1]), (*self.windows, self.windows[-1])
        return replace(self, ropes=ropes, windows=windows, experts=experts)

    @property
    def usual_context(self) -> int:
        """The longest sequence for which the model rotates as it does for short ones."""
        shorts = (rope.short_length for rope in self.ropes if rope.long_frequencies)
        return min([self.context, *shorts])


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
    defaults : mapping
        The settings that its configuration class has where config.json says nothing.
    from_gguf, from_hugging_face : callable
        Return its `Decoder`, of the files and of what they say about it.
    may_have_experts : bool
        Whether GGUF files of its architecture may be mixtures of experts.
    within : str
        The object of config.json that has the settings; "" where that is the whole.
    """

    name: str
    gguf: str
    hugging_face: str
    defaults: Mapping[str, Any]
    from_gguf: Callable[[Weights, ModelSettings], Decoder]
    from_hugging_face: Callable[[Weights, ModelSettings], Decoder]
    may_have_experts: bool = False
    within: str = ""
