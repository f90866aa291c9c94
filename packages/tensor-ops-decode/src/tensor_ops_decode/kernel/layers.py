"""The layers of a program that is described by hand, each checked when it is added."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from tensor_ops_decode.arguments import check_known
from tensor_ops_decode.errors import ProgramError
from tensor_ops_decode.executors.sources import attached_array
from tensor_ops_decode.kernel.tensors import (
    KernelTensor,
    KernelTensors,
    argument_of,
    as_several,
    check_residual,
    check_tensor,
    new_dims,
    new_dtype,
)
from tensor_ops_decode.kinds.kind import Array
from tensor_ops_decode.program import Cache, Limits, Node, Program, Tensor
from tensor_ops_decode.program.builder import Builder
from tensor_ops_decode.program.combined_nodes import nodes_of
from tensor_ops_decode.program.records import new_name
from tensor_ops_decode.weights.arrays import FLOAT_TYPES

__all__ = ["KernelTensor", "Layers"]


class Layers:
    """Describes a model layer by layer.

    The first layer is an `embed_layer`, the last one an `argmax_layer`. Every layer is checked when
    it is added, and one that does not fit leaves the description as it was.

    Parameters
    ----------
    limits : Limits
    cache_dtype : {"float32", "float16", "int8"} or None
        Of the keys and values that attention keeps; None is float32 if the matrices attached so
        far are.
    """

    def __init__(self, limits: Limits, cache_dtype: str | None = None) -> None:
        self._builder = Builder(limits)
        self._cache_dtype = cache_dtype
        self._attached: dict[str, Array] = {}
        self._declared: dict[str, KernelTensor] = {}

    def _check_describing(self, where: str) -> None:
        """Raise an error if nothing can be added any more."""

    def attach_input(self, array: object, *, name: str) -> KernelTensor:
        """Attach a weight.

        Parameters
        ----------
        array : ndarray or array with DLPack
            On the host, C-contiguous, with one or two dimensions, of float32, float16 or bfloat16.
            It is not copied, and must not change.
        name : str
        """
        self._check_name("attach_input", name)
        given = attached_array(name, array)
        tensor = KernelTensor(name, given.shape, str(given.dtype))
        source = {"attached": True}
        self._builder.tensor(name, Tensor(FLOAT_TYPES[tensor.dtype], tensor.dims, source))
        self._attached[name] = given
        return self._declared.setdefault(name, tensor)

    def new_tensor(
        self, dims: Sequence[int], dtype: DTypeLike = "float32", *, name: str
    ) -> KernelTensor:
        """Declare a value, which one layer writes.

        Parameters
        ----------
        dims : (int, int)
            Rows and columns. There are ``max_num_batched_tokens`` rows, or after a `select_layer`
            one for each request, ``max_num_batched_requests``.
        dtype : dtype, optional
            float32, or int32 for the output of `argmax_layer`.
        name : str

        Returns
        -------
        KernelTensor
        """
        self._check_name("new_tensor", name)
        given, shape = new_dtype(name, dtype), new_dims(name, dims, self._builder.limits)
        return self._declared.setdefault(name, KernelTensor(name, shape, given))

    def embed_layer(
        self, *, weight: KernelTensor, output: KernelTensor, input: KernelTensor | None = None
    ) -> KernelTensor:
        """Add ``weight[tokens]``; the tokens are those of the step, so that `input` stays None."""
        if input is not None:
            where = self._checked("embed", output)
            raise ProgramError(
                f"{where}: input is the tokens of the step; leave it out and give the tokens to "
                "add_request()"
            )
        return self._add("embed", {}, {"weight": weight}, output)

    def rmsnorm_layer(
        self, *, input: KernelTensor, weight: KernelTensor, output: KernelTensor, eps: float = 1e-6
    ) -> KernelTensor:
        """Add ``weight * input / sqrt(mean(input**2) + eps)``."""
        return self._add("rms_norm", {"x": input}, {"weight": weight}, output, {"eps": eps})

    def linear_layer(
        self,
        *,
        input: KernelTensor,
        weight: KernelTensors,
        output: KernelTensor,
        bias: KernelTensors | None = None,
    ) -> KernelTensor:
        """Add ``input @ weight.T + bias``; several weights are stacked along their rows."""
        return self._add("linear", {"x": input}, {"weight": weight, "bias": bias}, output)

    def linear_with_residual_layer(
        self,
        *,
        input: KernelTensor,
        weight: KernelTensors,
        residual: KernelTensor,
        output: KernelTensor,
        bias: KernelTensors | None = None,
    ) -> KernelTensor:
        """Add ``input @ weight.T + bias + residual``."""
        inputs = {"x": input, "residual": residual}
        return self._add("linear", inputs, {"weight": weight, "bias": bias}, output)

    def rmsnorm_linear_layer(
        self,
        *,
        input: KernelTensor,
        weight_norm: KernelTensor,
        weight_linear: KernelTensors,
        output: KernelTensor,
        bias: KernelTensors | None = None,
        eps: float = 1e-6,
    ) -> KernelTensor:
        """Add a `rmsnorm_layer` and a `linear_layer` in one."""
        weights = {"norm": weight_norm, "weight": weight_linear, "bias": bias}
        return self._add("rms_norm_linear", {"x": input}, weights, output, {"eps": eps})

    def attention_layer(
        self,
        /,
        *,
        input: KernelTensor,
        output: KernelTensor,
        num_heads: int,
        num_kv_heads: int,
        **settings: Any,
    ) -> KernelTensor:
        """Add attention whose cache has room for the longest sequence of every request.

        The parameters are those of `paged_attention_layer`.
        """
        check_known("attention_layer", settings, Layers._add_attention.__kwdefaults__ or ())
        return self._add_attention(False, input, output, num_heads, num_kv_heads, **settings)

    def paged_attention_layer(
        self,
        /,
        *,
        input: KernelTensor,
        output: KernelTensor,
        num_heads: int,
        num_kv_heads: int,
        **settings: Any,
    ) -> KernelTensor:
        """Add attention whose cache is in pages, which requests share.

        Parameters
        ----------
        input : KernelTensor
            A row has the queries of all heads, then the keys, then the values.
        output : KernelTensor
        num_heads, num_kv_heads : int
        cos_pos_embed, sin_pos_embed : KernelTensor, optional
            What rotates queries and keys: ``max_seq_length`` rows, and a column for each pair of
            elements.
        q_norm, k_norm : KernelTensor, optional
            KernelTensors of the norms of each head's query and key.
        scale : float, optional
            Of the scores; without it, one over the root of the head's size.
        window : int, optional
            How many tokens a token attends to, itself included; 0 is all.
        soft_cap : float, optional
            The bound that the scores are capped to; 0 is none.
        rotation : {"halves", "interleaved"}, optional
            Which elements make a pair: i and i + half, or 2 i and 2 i + 1.
        eps : float, optional
            Of the norms.
        """
        check_known("paged_attention_layer", settings, Layers._add_attention.__kwdefaults__ or ())
        return self._add_attention(True, input, output, num_heads, num_kv_heads, **settings)

    def silu_mul_layer(self, *, input: KernelTensor, output: KernelTensor) -> KernelTensor:
        """Add ``silu(gate) * up``, where a row of `input` is gate and up."""
        return self._add("silu_mul", {"x": input}, {}, output)

    def silu_mul_linear_with_residual_layer(
        self,
        *,
        input: KernelTensor,
        weight: KernelTensors,
        residual: KernelTensor,
        output: KernelTensor,
        bias: KernelTensors | None = None,
    ) -> KernelTensor:
        """Add a `silu_mul_layer` and a `linear_with_residual_layer` in one."""
        kind, inputs = "silu_mul_linear_with_residual", {"x": input, "residual": residual}
        return self._add(kind, inputs, {"weight": weight, "bias": bias}, output)

    def gelu_mul_layer(
        self, *, input: KernelTensor, output: KernelTensor, approximate: str = "tanh"
    ) -> KernelTensor:
        """Add ``gelu(gate) * up``, where a row of `input` is gate and up."""
        return self._add("gelu_mul", {"x": input}, {}, output, {"approximate": approximate})

    def elementwise_add_layer(
        self, *, input_a: KernelTensor, input_b: KernelTensor, output: KernelTensor
    ) -> KernelTensor:
        """Add ``input_a + input_b``."""
        return self._add("add", {"a": input_a, "b": input_b}, {}, output)

    def allreduce_layer(self, *, input: KernelTensor, output: KernelTensor) -> KernelTensor:
        """Add the sum over all ranks."""
        return self._add("allreduce", {"x": input}, {}, output)

    def select_layer(self, *, input: KernelTensor, output: KernelTensor) -> KernelTensor:
        """Keep the last token of each request, so that no logits are computed for the others."""
        return self._add("select", {"x": input}, {}, output)

    def argmax_layer(self, *, input: KernelTensor, output: KernelTensor) -> KernelTensor:
        """Add the choice of the next token: the index of the largest of the logits `input`."""
        if self._chosen:
            where = self._checked("argmax", output)
            raise ProgramError(f"{where}: {self._chosen[1]!r} is one already")
        return self._add("argmax", {"x": input}, {}, output)

    def _described_program(self) -> tuple[Program, str, str]:
        """Return the program, and the names of its logits and its tokens.

        Raises
        ------
        ProgramError
            If a tensor dangles, or nothing chooses a token.
        """
        nodes = self._builder.nodes
        for name in self._declared:
            if name not in self._attached and name not in self._builder.names:
                raise ProgramError(f"tensor {name!r} is declared, and no layer writes it")
        if not self._chosen:
            raise ProgramError("a program ends with argmax_layer(), which chooses the next token")
        logits, tokens = self._chosen
        read = {tokens}.union(*(node.inputs.values() for node in nodes))
        read.update(*(names for node in nodes for names in node.weights.values()))
        for name in self._declared:
            if name not in read:
                raise ProgramError(f"tensor {name!r} is used by no layer")
        return self._builder.program([logits, tokens]), logits, tokens

    @property
    def _chosen(self) -> tuple[str, ...]:
        """The logits and the tokens of the `argmax_layer`, if there is one."""
        nodes = [node for node in self._builder.nodes if node.kind == "argmax"]
        return tuple(name for node in nodes for name in (node.inputs["x"], node.name))

    def _check_name(self, where: str, name: str) -> None:
        self._check_describing(where)
        if not isinstance(name, str) or name in self._declared or name == "tokens":
            raise ProgramError(f"{where}: name must be a new one, got {name!r}")
        if name in self._builder.names:  # of a value within a layer, which can have another
            self._builder.rename(name, new_name(name, self._declared, self._builder.names))

    def _add_attention(
        self,
        paged: bool,
        input: KernelTensor,
        output: KernelTensor,
        num_heads: int,
        num_kv_heads: int,
        *,
        cos_pos_embed: KernelTensor | None = None,
        sin_pos_embed: KernelTensor | None = None,
        q_norm: KernelTensor | None = None,
        k_norm: KernelTensor | None = None,
        scale: float | None = None,
        window: int = 0,
        soft_cap: float = 0.0,
        rotation: str = "halves",
        eps: float = 1e-6,
    ) -> KernelTensor:
        where = self._checked("attention", output)
        check_tensor(where, "input", input, self._declared)
        tables = {"cos": cos_pos_embed, "sin": sin_pos_embed}
        for what, count in (("num_heads", num_heads), ("num_kv_heads", num_kv_heads)):
            if not isinstance(count, int) or isinstance(count, bool) or count < 1:
                raise ProgramError(f"{where}: {what} must be a positive integer, got {count!r}")
        head_size, rest = divmod(input.dims[-1], num_heads + 2 * num_kv_heads)
        if rest or not head_size:
            raise ProgramError(
                f"{where}: input must have a head's size for each of {num_heads} queries, "
                f"{num_kv_heads} keys and {num_kv_heads} values, got {input.dims[-1]} columns"
            )
        length = self._builder.limits.max_seq_length
        for slot, table in tables.items():
            if table is not None:
                check_tensor(where, argument_of("attention", slot), table, self._declared)
            if table is not None and table.dims[0] < length:
                raise ProgramError(
                    f"{where}: {table.name!r} must have a row for each of the {length} positions "
                    f"of max_seq_length, got {table.dims[0]}"
                )
        cache = Cache(num_kv_heads, head_size, self._dtype_of_caches(), paged)
        attributes = {
            "num_heads": num_heads,
            "num_kv_heads": num_kv_heads,
            "head_size": head_size,
            "scale": head_size**-0.5 if scale is None else scale,
            "window": window,
            "soft_cap": soft_cap,
            "rotation": rotation,
            "eps": eps,
            "cache": self._builder.cache(f"{output.name}.cache", cache),
        }
        weights = {**tables, "q_norm": q_norm, "k_norm": k_norm}
        return self._add("attention", {"qkv": input}, weights, output, attributes)

    def _dtype_of_caches(self) -> str:
        matrices = (array for array in self._attached.values() if array.ndim == 2)
        are_float32 = all(array.dtype == np.float32 for array in matrices)
        return self._cache_dtype or ("float32" if are_float32 else "float16")

    def _add(
        self,
        kind: str,
        inputs: Mapping[str, KernelTensor],
        weights: Mapping[str, KernelTensors | None],
        output: KernelTensor,
        attributes: Mapping[str, Any] | None = None,
    ) -> KernelTensor:
        where = self._checked(kind, output)

        def name_of(slot: str, given: object) -> str:
            return check_tensor(where, argument_of(kind, slot), given, self._declared).name

        names = {
            slot: tuple(name_of(slot, each) for each in as_several(given))
            for slot, given in weights.items()
            if given is not None
        }
        read = {slot: name_of(slot, each) for slot, each in inputs.items()} or {"tokens": "tokens"}
        check_residual(where, inputs.get("residual"), output)
        node = Node(kind, output.name, read, names, {"output": output.name}, attributes or {})
        nodes, declared = nodes_of(node, self._declared, self._builder.names), {}
        for each in nodes:
            if each.kind == "linear" or each is nodes[-1]:  # a sum has the sizes of its product
                declared[each.name] = (*output.dims, output.dtype)
        self._builder.add_nodes(nodes, declared)
        return output

    def _checked(self, kind: str, output: KernelTensor) -> str:
        """Return how errors name a layer, if it can be added with this output."""
        if not isinstance(output, KernelTensor):
            raise ProgramError(f"{kind}: output must be a new_tensor(), got {output!r:.80}")
        where = f"{kind} {output.name!r}"
        self._check_describing(where)
        if output.name in self._attached or self._declared.get(output.name) != output:
            raise ProgramError(f"{where}: output must be a new_tensor() of this kernel")
        return where
