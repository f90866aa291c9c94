"""The program of a decoder-only transformer, made of what its files say."""

from collections.abc import Mapping, Sequence
from typing import Any

from tensor_ops_decode.models.declared_tensors import DeclaredTensors
from tensor_ops_decode.models.decoder import Decoder
from tensor_ops_decode.models.delta_attention import DeltaAttention
from tensor_ops_decode.models.experts import Experts
from tensor_ops_decode.models.latent_attention import LatentAttention
from tensor_ops_decode.models.state_space import StateSpace
from tensor_ops_decode.program import Cache, Draft, Limits, Program, State
from tensor_ops_decode.weights import FileFormatError, Weights
from tensor_ops_decode.weights.formats import FORMATS

__all__ = ["has_draft", "program_of"]


def has_draft(decoder: Decoder, files: Weights) -> bool:
    """Return whether the files have a layer that guesses tokens, of a kind that is known."""
    return "draft_in" in decoder.names and _draft_name(decoder, "draft_in") in files.names


def _draft_name(decoder: Decoder, role: str) -> str:
    prefix = decoder.names.get("draft", decoder.names["layer"].format(decoder.layers))
    return f"{prefix}{decoder.names[role]}.weight"


def program_of(
    decoder: Decoder,
    files: Weights,
    limits: Limits,
    cache_dtype: str | None = None,
    *,
    guessed: int = 0,
    embeddings: bool = False,
) -> Program:
    """Return the program of a model, with the values ``logits`` and ``next``.

    It guesses tokens, among the first `guessed` of the vocabulary, by the layer that `has_draft`
    tells of, and with `embeddings` it has the value ``norm`` of all tokens, from which embeddings
    are pooled.
    By default, `cache_dtype` is float32 if all matrices are f32, else float16. It is a
    FileFormatError if a tensor is missing or has another shape, or a layer has one that would not
    be used.
    """
    assembly = _Assembly(decoder, files, limits, cache_dtype)
    program = assembly.program(guessed, embeddings)
    start = decoder.names["layer"].partition("{")[0]
    further = range(decoder.layers, decoder.layers + decoder.further_layers)
    of_further = tuple(decoder.names["layer"].format(layer) for layer in further)
    # Some files have what rotations are computed from.
    ignored = ("rotary_emb.", "rot_embd.", *([] if decoder.may_have_biases else [".bias"]))
    used = {tensor.source.get("tensor") for tensor in program.tensors.values()}
    used |= assembly.passed_over
    for name in files.names:
        is_ignored = name.startswith(of_further) or any(part in name for part in ignored)
        if name.startswith(start) and name not in used and not is_ignored:
            raise FileFormatError(
                f"{files.path}: tensor {name!r} has no place in this family of models"
            )
    return program


class _Assembly(DeclaredTensors):
    def __init__(
        self, decoder: Decoder, files: Weights, limits: Limits, cache_dtype: str | None
    ) -> None:
        super().__init__(decoder, files, limits)
        self.cache_dtype = cache_dtype

    def program(self, guessed: int, embeddings: bool) -> Program:
        decoder, builder = self.decoder, self.builder
        reads_all = guessed > 0 or embeddings  # both read the norms of all tokens
        layers = decoder.names["layer"].format(decoder.layers + decoder.further_layers)
        further = f"{layers}{decoder.names['o']}.weight"
        if further in self.known:
            raise FileFormatError(
                f"{self.files.path}: there is a tensor {further!r}, but the model has only "
                f"{decoder.layers} layers"
            )
        embedding = self.matrix("embedding", decoder.vocabulary, decoder.hidden)
        x = builder.add("embed", {"tokens": "tokens"}, {"weight": embedding}, output="embedding")
        if decoder.embedding_scale != 1:
            factor = {"factor": decoder.embedding_scale}
            x = builder.add("scale", {"x": x}, None, factor, output="scaled")
        per_layer = self.per_layer_inputs() if decoder.per_layer_inputs else ""
        for layer in range(decoder.layers):
            kept = decoder.kept_rows[layer] if decoder.kept_rows else 0
            if decoder.delta is not None and decoder.delta.layers[layer]:
                x = self.delta_attention(layer, x, decoder.delta)
            elif decoder.state_space is not None and decoder.state_space.layers[layer]:
                x = self.state_space(layer, x, decoder.state_space)
            else:
                x = self.convolution(layer, x, kept) if kept else self.attention(layer, x)
            if layer == decoder.last_of_all_tokens and not reads_all:
                # The rest looks at no other token, so that tokens without logits end here.
                x = builder.add("select", {"x": x}, output="selected")
                if per_layer:
                    per_layer = builder.add("select", {"x": per_layer}, output="per_layer.selected")
            x = self.mlp(layer, x)
            if per_layer:
                x = self.with_per_layer_input(layer, x, per_layer)
            if "layer_scale" in decoder.names:
                x = self.layer_scaled(layer, x)
        head = embedding
        if not decoder.is_tied:
            head = self.matrix("head", decoder.vocabulary, decoder.hidden)
        x = hidden = self.normalised("norm", x, None, "norm")
        if reads_all:
            x = builder.add("select", {"x": x}, output="selected")
        logits = "uncapped" if decoder.logit_cap else "logits"
        product = "unscaled" if decoder.logit_scale != 1 else logits
        builder.add("linear", {"x": x}, {"weight": head}, output=product)
        if product != logits:
            factor = {"factor": decoder.logit_scale}
            builder.add("scale", {"x": product}, None, factor, output=logits)
        if decoder.logit_cap:
            cap = {"cap": decoder.logit_cap}
            builder.add("soft_cap", {"x": logits}, None, cap, output="logits")
        outputs = ["logits", builder.add("sample", {"x": "logits"}, output="next")]
        draft = self.draft(hidden, embedding, guessed) if guessed else None
        if embeddings and draft is None:
            outputs.append(hidden)
        if draft is not None:
            outputs += [draft.hidden, draft.next_hidden, draft.tokens]
        if self.cache_dtype is None and self.matrix_types != {"f32"}:
            builder.set_cache_dtype("float16")
        return builder.program(outputs, draft)

    def draft(self, hidden: str, embedding: str, guessed: int) -> Draft:
        """Add the layer that guesses the token behind the one that a step has chosen.

        Its input is made of the embedding of the chosen token and of what the model computes the
        logits from. The guess is one of the first tokens.
        """
        add, layer, columns = self.builder.add, self.decoder.layers, self.decoder.hidden
        vocabulary = self.decoder.vocabulary
        head = self.name("embedding" if self.decoder.is_tied else "head", None)
        self.decoder = self.decoder.with_draft_layer()
        own_embedding, own_head = map(self.name_of_draft, ("draft_embedding", "draft_head"))
        if own_embedding is not None:
            embedding = self.typed(self.tensor(own_embedding, (vocabulary, columns)))
        first_rows = (f"rows:0:{guessed}",) if guessed < vocabulary else ()
        shape = (min(guessed, vocabulary), columns)
        guess_head = self.typed(self.tensor(own_head or head, shape, first_rows))
        x = first = add(
            "embed", {"tokens": "tokens"}, {"weight": embedding}, output="draft.embedding"
        )
        if self.decoder.embedding_scale != 1:
            factor = {"factor": self.decoder.embedding_scale}
            x = add("scale", {"x": x}, None, factor, output="draft.scaled")
        parts = []
        for role, value, begin in (
            ("draft_embedding_norm", x, 0),
            ("draft_hidden_norm", hidden, columns),
        ):
            name = role.replace("_", ".", 1)
            normed = self.normalised_by(self.norm_of_draft(role), value, name)
            cut = (f"columns:{begin}:{begin + columns}",)
            name = _draft_name(self.decoder, "draft_in")
            matrix = self.typed(self.tensor(name, (columns, columns), cut))
            weights = {"weight": [matrix]}
            parts.append(add("linear", {"x": normed}, weights, output=f"{value}.to_draft"))
        x = add("add", {"a": parts[0], "b": parts[1]}, output="draft.input")
        x = self.attention(layer, x)
        x = add("select", {"x": x}, output="draft.selected")
        x = self.mlp(layer, x)
        own = _draft_name(self.decoder, "draft_norm") in self.known
        norm = self.norm_of_draft("draft_norm") if own else self.norm("norm")
        x = self.normalised_by(norm, x, "draft.norm")
        logits = add("linear", {"x": x}, {"weight": guess_head}, output="draft.logits")
        guess = add("argmax", {"x": logits}, output="guess")
        return Draft(first_node=first, hidden=hidden, next_hidden=x, tokens=guess)

    def name_of_draft(self, role: str) -> str | None:
        """Return the name of a matrix that a draft may have; None where it has the model's."""
        name = _draft_name(self.decoder, role) if role in self.decoder.names else None
        return name if name in self.known else None

    def norm_of_draft(self, role: str) -> str:
        shape = (self.decoder.hidden,)
        return self.tensor(_draft_name(self.decoder, role), shape, self.decoder.norm_transform)

    def normalised_by(self, weight: str, x: str, output: str) -> str:
        """Add a norm with a weight."""
        weights, eps = {"weight": weight}, {"eps": self.decoder.eps}
        return self.builder.add("rms_norm", {"x": x}, weights, eps, output=output)

    def attention(self, layer: int, x: str) -> str:
        if self.decoder.latent is not None:
            return self.latent_attention(layer, x, self.decoder.latent)
        decoder, builder, prefix = self.decoder, self.builder, f"layer.{layer}."
        of, heads = decoder.sizes_of(layer), decoder.heads
        size, kv_heads, is_shared = of.head_size, of.kv_heads, of.cache != layer
        parts = {"q": heads * size, "k": kv_heads * size, "v": kv_heads * size}
        gate = None
        if decoder.gates_attention:
            qkv, gate = self.gated_queries(layer, x, parts)
        elif is_shared:
            qkv = self.projected("queries", {"q": parts["q"]}, "attention_norm", x, layer)
            for role in {"k", "v", "k_norm"} & decoder.names.keys():
                self.passed_over.add(self.name(role, layer))  # as some files have them all the same
        else:
            qkv = self.projected("qkv", parts, "attention_norm", x, layer)
        cache = f"layer.{of.cache}.cache"
        if not is_shared:
            builder.cache(cache, Cache(kv_heads, size, self.cache_dtype or "float32", True))
        rope = decoder.ropes[layer]
        frequencies = rope.of_length(builder.limits.max_seq_length)
        weights = builder.rotary_tables(frequencies, rope.factor) if frequencies else {}
        if rope.query_growth and rope.query_length < builder.limits.max_seq_length:
            weights["query_scale"] = builder.query_scale(rope.query_growth, rope.query_length)
        norms = {
            role: self.norm(role, layer, parts[role[0]] if decoder.norms_rows else size)
            for role in (("q_norm",) if is_shared else ("q_norm", "k_norm"))
            if role in decoder.names
        }
        if decoder.norms_rows:
            eps = {"eps": decoder.eps}
            qkv = builder.add("qk_norm", {"qkv": qkv}, norms, eps, output=f"{prefix}qk_norm")
        else:
            weights |= norms
        if decoder.normalises_values and not is_shared:
            weights["v_norm"] = self.tensor(self.name("k_norm", layer), (size,), ("ones",))
        if "sinks" in decoder.names:
            weights["sinks"] = self.tensor(self.whole_name("sinks", layer), (heads,))
        attended = builder.add(
            "shared_attention" if is_shared else "attention",
            {"q" if is_shared else "qkv": qkv},
            weights,
            {
                "num_heads": heads,
                "num_kv_heads": kv_heads,
                "head_size": size,
                "scale": decoder.scale,
                "window": decoder.windows[layer],
                "soft_cap": decoder.attention_cap,
                "rotation": decoder.rotation,
                "eps": decoder.eps,
                "cache": cache,
            },
            output=f"{prefix}attention",
        )
        if gate is not None:
            inputs = {"x": attended, "gate": gate}
            attended = builder.add("sigmoid_mul", inputs, output=f"{prefix}gated")
        projection = self.linear("o", {"o": decoder.hidden}, layer, heads * size)
        return self.added(attended, projection, x, layer, "attention_post_norm", "attended")

    def latent_attention(self, layer: int, x: str, of: LatentAttention) -> str:
        """Add attention whose cache has a latent, from which keys and values of heads would follow.

        Instead, queries are taken to latents by the matrices of keys, and what is attended to from
        latents to values.
        """
        add, decoder, prefix = self.builder.add, self.decoder, f"layer.{layer}."
        heads, hidden = {"num_heads": decoder.heads}, decoder.hidden

        def product(name: str, rows: int, x: str, columns: int = hidden) -> str:
            weights = self.linear(name, {name: rows}, layer, columns)
            return add("linear", {"x": x}, weights, output=f"{prefix}{name}")

        # Each product has a norm of its own before it, so that it runs with it as one phase.
        normed = self.normalised("attention_norm", x, layer, f"{prefix}attention_norm")
        rows = decoder.heads * (of.key_size + of.rotated_size)
        if of.query_rank:
            query = product("q_a", of.query_rank, normed)
            weights = {"weight": self.norm("q_a_norm", layer, of.query_rank)}
            output = f"{prefix}q_a_norm"
            query = add("rms_norm", {"x": query}, weights, {"eps": of.eps}, output=output)
            query = product("q_b", rows, query, of.query_rank)
        else:
            query = product("q", rows, normed)
        normed = self.normalised("attention_norm", x, layer, f"{prefix}kv_norm")
        kv = product("kv_a", of.rank + of.rotated_size, normed)
        keys, values = self.head_matrices(layer, of)
        output = f"{prefix}absorbed"
        absorbed = add("head_linear", {"x": query}, {"weight": [keys]}, heads, output=output)
        rope = decoder.ropes[layer]
        frequencies = rope.of_length(self.builder.limits.max_seq_length)
        weights = self.builder.rotary_tables(frequencies, rope.factor)
        weights["norm"] = self.norm("kv_a_norm", layer, of.rank)
        cache = Cache(1, of.rank, self.cache_dtype or "float32", True, of.rotated_size)
        attributes = {
            **heads,
            "scale": decoder.scale,
            "rotation": decoder.rotation,
            "eps": of.eps,
            "cache": self.builder.cache(f"{prefix}cache", cache),
        }
        inputs = {"absorbed": absorbed, "query": query, "kv": kv}
        y = add("latent_attention", inputs, weights, attributes, output=f"{prefix}attention")
        y = add("head_linear", {"x": y}, {"weight": [values]}, heads, output=f"{prefix}values")
        projection = self.linear("o", {"o": hidden}, layer, decoder.heads * of.value_size)
        return self.added(y, projection, x, layer, "attention_post_norm", "attended")

    def head_matrices(self, layer: int, of: LatentAttention) -> tuple[str, str]:
        """Return the matrices of all heads that take queries to latents, and latents to values."""
        heads, rows = self.decoder.heads, of.key_size + of.value_size
        shapes = (heads, of.rank, of.key_size), (heads, of.value_size, of.rank)
        name = self.name("kv_b", layer)
        if name not in self.known and "k_b" in self.decoder.names:
            names = (self.name("k_b", layer), self.name("v_b", layer))
            keys, values = map(self.tensor, names, shapes)
            return self.typed(keys), self.typed(values)
        of_values = (f"row_blocks:{rows}:{of.key_size}:{rows}", f"planes:{heads}")
        values = self.tensor(name, shapes[1], of_values)
        # Blocks of a quantized matrix lie along its rows, which become columns.
        is_float = FORMATS[self.files.header(name).type].is_float
        transposed = ("transpose",) if is_float else ("dequantize", "transpose")
        of_keys = (f"row_blocks:{rows}:0:{of.key_size}", f"planes:{heads}", *transposed)
        keys = self.tensor(name, shapes[0], of_keys)
        return self.typed(keys), self.typed(values)

    def convolution(self, layer: int, x: str, kept: int) -> str:
        """Add a short convolution, whose state is a row for each of the last tokens."""
        hidden, prefix = self.decoder.hidden, f"layer.{layer}."
        rows = self.projected("conv_in", {"conv_in": 3 * hidden}, "attention_norm", x, layer)
        name = self.whole_name("conv", layer)
        weights = {"weight": self.tensor(f"{name}.weight", (hidden * (kept + 1),), ("flatten",))}
        if "conv" in self.decoder.biases:
            weights["bias"] = self.tensor(f"{name}.bias", (hidden,))
        state = self.builder.cache(f"{prefix}state", State(kept, hidden))
        of = {"kept": kept, "cache": state}
        output = f"{prefix}convolved"
        y = self.builder.add("gated_short_conv", {"x": rows}, weights, of, output=output)
        projection = self.linear("conv_out", {"conv_out": hidden}, layer, hidden)
        return self.added(y, projection, x, layer, "attention_post_norm", "attended")

    def gated_queries(self, layer: int, x: str, parts: Mapping[str, int]) -> tuple[str, str]:
        """Add products for queries, keys, values and gates, from a matrix of queries and gates."""
        decoder, add, prefix = self.decoder, self.builder.add, f"layer.{layer}."
        x = self.normalised("attention_norm", x, layer, f"{prefix}attention_norm")
        sizes = (decoder.head_size, decoder.head_size)
        queries, gates = self.row_blocks("q", layer, decoder.heads, sizes)
        rest = self.linear("kv", {"k": parts["k"], "v": parts["v"]}, layer)
        weights = {"weight": [queries, *rest["weight"]]}
        qkv = add("linear", {"x": x}, weights, output=f"{prefix}qkv")
        return qkv, add("linear", {"x": x}, {"weight": [gates]}, output=f"{prefix}gate")

    def delta_attention(self, layer: int, x: str, of: DeltaAttention) -> str:
        """Add linear attention, whose state is the rows of a convolution and a matrix per head."""
        add, hidden, prefix = self.builder.add, self.decoder.hidden, f"layer.{layer}."
        values = of.heads * of.value_size
        columns = 2 * of.key_heads * of.key_size + values
        x_normed = self.normalised("attention_norm", x, layer, f"{prefix}attention_norm")

        def product(name: str, weights: Mapping[str, Sequence[str]]) -> str:
            return add("linear", {"x": x_normed}, weights, output=f"{prefix}{name}")

        group = of.heads // of.key_heads
        if "delta_qkvz" in self.decoder.names:
            # Queries, keys, values and gates of a key head are neighbours.
            sizes = (of.key_size, of.key_size, group * of.value_size, group * of.value_size)
            *rows, last = self.row_blocks("delta_qkvz", layer, of.key_heads, sizes)
            qkv, gate = (
                product("delta_qkv", {"weight": rows}),
                product("delta_gate", {"weight": [last]}),
            )
        else:
            qkv = product("delta_qkv", self.linear("delta_qkv", {"delta_qkv": columns}, layer))
            gate = product("delta_gate", self.linear("delta_gate", {"delta_gate": values}, layer))
        if "delta_ba" in self.decoder.names:
            weights = {"weight": self.row_blocks("delta_ba", layer, of.key_heads, (group, group))}
        else:
            both = {"delta_beta": of.heads, "delta_rate": of.heads}
            weights = self.linear("delta_gates", both, layer)
        gates = product("delta_gates", weights)
        name, shape = self.name("delta_conv", layer), (columns * (of.kept + 1),)
        kept = self.builder.cache(f"{prefix}kept", State(of.kept, columns))
        qkv = add(
            "short_conv",
            {"x": qkv},
            {"weight": self.tensor(name, shape, ("flatten",))},
            {"kept": of.kept, "activation": "silu", "cache": kept},
            output=f"{prefix}convolved",
        )
        names = {"rate": "delta_decay", "rate_bias": "delta_bias"}
        rates = {slot: self.vector(role, layer, of.heads) for slot, role in names.items()}
        state = self.builder.cache(f"{prefix}state", State(of.heads * of.key_size, of.value_size))
        attributes = {
            "key_heads": of.key_heads,
            "value_heads": of.heads,
            "key_size": of.key_size,
            "value_size": of.value_size,
            "order": of.order,
            "cache": state,
        }
        y = add(
            "gated_delta",
            {"qkv": qkv, "gates": gates},
            rates,
            attributes,
            output=f"{prefix}delta",
        )
        norm = {"weight": self.tensor(self.name("delta_norm", layer), (of.value_size,))}
        eps = {"eps": self.decoder.eps}
        y = add("gated_norm", {"x": y, "gate": gate}, norm, eps, output=f"{prefix}delta_norm")
        projection = self.linear("delta_out", {"delta_out": hidden}, layer, values)
        return self.added(y, projection, x, layer, "attention_post_norm", "attended")

    def state_space(self, layer: int, x: str, of: StateSpace) -> str:
        """Add a state space model: its states are rows of a convolution, and a matrix per head."""
        add, hidden, prefix = self.builder.add, self.decoder.hidden, f"layer.{layer}."
        inner = of.heads * of.head_size
        columns = inner + 2 * of.groups * of.state_size
        normed = self.normalised("attention_norm", x, layer, f"{prefix}attention_norm")
        names = ("ssm_gate", "ssm_xbc", "ssm_steps")
        matrices = self.row_blocks("ssm_in", layer, 1, (inner, columns, of.heads))
        gate, xbc, steps = (
            add("linear", {"x": normed}, {"weight": [matrix]}, output=f"{prefix}{name}")
            for name, matrix in zip(names, matrices, strict=True)
        )
        name, shape = self.name("ssm_conv", layer), (columns * (of.kept + 1),)
        weights = {"weight": self.tensor(name, shape, ("flatten",))}
        if of.has_bias:
            weights["bias"] = self.tensor(self.name("ssm_conv", layer, "bias"), (columns,))
        kept = self.builder.cache(f"{prefix}kept", State(of.kept, columns))
        attributes = {"kept": of.kept, "activation": "silu", "cache": kept}
        xbc = add("short_conv", {"x": xbc}, weights, attributes, output=f"{prefix}convolved")
        roles = {"rate": "ssm_rate", "step_bias": "ssm_step_bias", "skip": "ssm_skip"}
        vectors = {slot: self.vector(role, layer, of.heads) for slot, role in roles.items()}
        attributes = {
            "num_heads": of.heads,
            "head_size": of.head_size,
            "num_groups": of.groups,
            "state_size": of.state_size,
            "cache": self.builder.cache(f"{prefix}state", State(inner, of.state_size)),
        }
        inputs = {"xbc": xbc, "steps": steps}
        y = add("ssm", inputs, vectors, attributes, output=f"{prefix}ssm")
        norm = {"weight": self.tensor(self.name("ssm_norm", layer), (inner,), ("flatten",))}
        attributes = {"group_size": inner // of.groups, "eps": self.decoder.eps}
        inputs = {"x": y, "gate": gate}
        y = add("gated_group_norm", inputs, norm, attributes, output=f"{prefix}ssm_norm")
        projection = self.linear("ssm_out", {"ssm_out": hidden}, layer, inner)
        return self.added(y, projection, x, layer, "attention_post_norm", "attended")

    def mlp(self, layer: int, x: str) -> str:
        decoder = self.decoder
        if decoder.experts is not None and decoder.experts.layers[layer]:
            return self.mixture(layer, x, decoder.experts)
        hidden, down = self.dense(layer, x)
        return self.added(hidden, down, x, layer, "mlp_post_norm", "output")

    def dense(self, layer: int, x: str) -> tuple[str, dict[str, list[str]]]:
        """Add an MLP up to its last product; return what that multiplies, and its weights."""
        columns = self.decoder.sizes_of(layer).intermediate
        parts = {"gate": columns, "up": columns}
        gate_up = self.projected("gate_up", parts, "mlp_norm", x, layer)
        hidden = self.gated(gate_up, f"layer.{layer}.hidden")
        return hidden, self.linear("down", {"down": self.decoder.hidden}, layer, columns)

    def mixture(self, layer: int, x: str, experts: Experts) -> str:
        """Add the MLPs of the experts that are chosen for a token, and of one that always is."""
        add, hidden, prefix = self.builder.add, self.decoder.hidden, f"layer.{layer}."
        has_both = "expert_norm" in self.decoder.names
        norm = "expert_norm" if has_both else "mlp_norm"
        normed = seen = self.normalised(norm, x, layer, f"{prefix}{norm}")
        if "router_norm" in self.decoder.names:
            scale, eps = self.vector("router_norm", layer, hidden), {"eps": self.decoder.eps}
            seen = add("rms_norm", {"x": x}, {"weight": scale}, eps, output=f"{prefix}router.norm")
            factor = {"factor": experts.router_scale}
            seen = add("scale", {"x": seen}, None, factor, output=f"{prefix}router.scaled")
        rows = {"expert_gate": experts.intermediate, "expert_up": experts.intermediate}
        weights, chosen = self.routed("router", seen, layer, experts.routing, experts.count)
        of = {"num_experts": experts.count, "input_parts": 1, "output_parts": 2}
        stacks = self.stacks("expert_gate_up", rows, layer, hidden)
        inputs = {"x": normed, "chosen": chosen}
        y = add("expert_linear", inputs, stacks, of, output=f"{prefix}experts.gate_up")
        y = self.gated(y, f"{prefix}experts.hidden")
        of |= {"input_parts": experts.chosen, "output_parts": 1}
        rows = {"expert_down": hidden}
        stacks = self.stacks("expert_down_stack", rows, layer, experts.intermediate)
        inputs = {"x": y, "chosen": chosen}
        y = add("expert_linear", inputs, stacks, of, output=f"{prefix}experts.down")
        y = add("combine", {"weights": weights, "x": y}, output=f"{prefix}experts")
        if experts.shared:
            shared = self.shared_expert(layer, normed, experts.shared)
            y = add("add", {"a": y, "b": shared}, output=f"{prefix}mixture")
        if has_both:
            y = self.normalised("expert_post_norm", y, layer, f"{prefix}expert_post_norm")
            inner, down = self.dense(layer, x)
            dense = add("linear", {"x": inner}, down, output=f"{prefix}dense")
            dense = self.normalised("dense_post_norm", dense, layer, f"{prefix}dense_post_norm")
            y = add("add", {"a": dense, "b": y}, output=f"{prefix}mixture")
        return self.summed(y, x, layer, "mlp_post_norm", "output")

    def routed(
        self, role: str, x: str, layer: int, of: Mapping[str, Any], count: int
    ) -> tuple[str, str]:
        """Add the choice of experts; return their weights and numbers."""
        name = f"layer.{layer}.{role}"
        product = self.linear(role, {role: count}, layer)
        logits = self.builder.add("linear", {"x": x}, product, output=f"{name}.logits")
        roles = {"bias": f"{role}_bias", "expert_scale": "expert_scale"}
        vectors = {
            slot: self.tensor(self.whole_name(each, layer), (count,))
            for slot, each in roles.items()
            if each in self.decoder.names and (slot == "bias" or role == "router")
        }
        outputs = {"weights": f"{name}.weights", "chosen": f"{name}.chosen"}
        self.builder.add("route", {"x": logits}, vectors, of, output=outputs)
        return outputs["weights"], outputs["chosen"]

    def shared_expert(self, layer: int, x: str, columns: int) -> str:
        prefix = f"layer.{layer}.shared"
        rows = {"shared_gate": columns, "shared_up": columns}
        gate_up = self.linear("shared_gate_up", rows, layer)
        y = self.builder.add("linear", {"x": x}, gate_up, output=f"{prefix}.gate_up")
        y = self.gated(y, f"{prefix}.hidden")
        down = self.linear("shared_down", {"shared_down": self.decoder.hidden}, layer, columns)
        y = self.builder.add("linear", {"x": y}, down, output=f"{prefix}.down")
        if "shared_router" not in self.decoder.names:
            return y
        # Its gate is the weight of one expert that is always chosen.
        of = Experts(1, 1, columns, (), "sigmoid", is_normalised=False).routing
        weights, _ = self.routed("shared_router", x, layer, of, 1)
        return self.builder.add("combine", {"weights": weights, "x": y}, output=prefix)

    def per_layer_inputs(self) -> str:
        """Add what each layer has of a token beside the layer before: an embedding of its own."""
        decoder, add, eps = self.decoder, self.builder.add, {"eps": self.decoder.eps}
        size, columns = decoder.per_layer_inputs, decoder.layers * decoder.per_layer_inputs
        name = self.name("per_layer_embedding", None)
        # This table may have more rows or fewer than the other.
        words = self.files.header(name).shape[0] if name in self.known else decoder.vocabulary
        table = {"weight": self.typed(self.tensor(name, (words, columns)))}
        of_token = add("embed", {"tokens": "tokens"}, table, output="per_layer.embedding")
        factor = {"factor": size**0.5}
        of_token = add("scale", {"x": of_token}, None, factor, output="per_layer.scaled")
        # The factor of this product is the inverse of that of the embedding.
        product = {"weight": [self.matrix("per_layer_projection", columns, decoder.hidden)]}
        y = add("linear", {"x": "embedding"}, product, output="per_layer.projection")
        norm = {"weight": self.norm("per_layer_norm", length=size)}
        y = add("group_rms_norm", {"x": y}, norm, eps, output="per_layer.norm")
        y = add("add", {"a": y, "b": of_token}, output="per_layer.sum")
        return add("scale", {"x": y}, None, {"factor": 0.5**0.5}, output="per_layer")

    def with_per_layer_input(self, layer: int, x: str, inputs: str) -> str:
        """Add what a layer computes with its part of these inputs."""
        decoder, add, prefix = self.decoder, self.builder.add, f"layer.{layer}.per_layer"
        size = decoder.per_layer_inputs
        product = self.linear("per_layer_gate", {"per_layer_gate": size}, layer)
        gate = add("linear", {"x": x}, product, output=f"{prefix}.gate")
        part = {"part": layer + 1, **decoder.activation_settings}
        y = add("gelu_mul_part", {"gate": gate, "x": inputs}, None, part, output=f"{prefix}.gated")
        back = self.linear("per_layer_back", {"per_layer_back": decoder.hidden}, layer, size)
        return self.added(y, back, x, layer, "per_layer_post_norm", "per_layer")

    def layer_scaled(self, layer: int, x: str) -> str:
        """Multiply what a layer gives by a number that the file has for it."""
        name = self.whole_name("layer_scale", layer)
        self.passed_over.add(name)
        factor = self.number(name)
        if factor == 1:
            return x
        output = f"layer.{layer}.scaled"
        return self.builder.add("scale", {"x": x}, None, {"factor": factor}, output=output)

    def gated(self, x: str, output: str) -> str:
        decoder = self.decoder
        attributes = decoder.activation_settings
        return self.builder.add(decoder.activation, {"x": x}, None, attributes, output=output)

    def projected(self, name: str, rows: Mapping[str, int], norm: str, x: str, layer: int) -> str:
        """Add a norm, if the model has it, and a product with what it gives."""
        if norm in self.decoder.names:
            x = self.normalised(norm, x, layer, f"layer.{layer}.{norm}")
        product = self.linear(name, rows, layer)
        return self.builder.add("linear", {"x": x}, product, output=f"layer.{layer}.{name}")

    def added(
        self, x: str, weights: dict[str, list[str]], residual: str, layer: int, norm: str, name: str
    ) -> str:
        """Add a product, and its sum with the residual."""
        product = f"layer.{layer}.{name}.product"
        x = self.builder.add("linear", {"x": x}, weights, output=product)
        return self.summed(x, residual, layer, norm, name)

    def summed(self, x: str, residual: str, layer: int, norm: str, name: str) -> str:
        """Add a value to the residual, after its norm and its factor if the model has them."""
        output = f"layer.{layer}.{name}"
        if norm in self.decoder.names:
            x = self.normalised(norm, x, layer, f"{output}.norm")
        if self.decoder.residual_scale != 1:
            factor = {"factor": self.decoder.residual_scale}
            x = self.builder.add("scale", {"x": x}, None, factor, output=f"{output}.scaled")
        return self.builder.add("add", {"a": x, "b": residual}, output=output)

    def normalised(self, role: str, x: str, layer: int | None, output: str) -> str:
        return self.normalised_by(self.norm(role, layer), x, output)
