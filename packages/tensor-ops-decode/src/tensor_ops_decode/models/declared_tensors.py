"""The tensors of a model that its program uses, declared by what they are."""

import itertools
import math
from collections.abc import Mapping, Sequence

from tensor_ops_decode.models.decoder import Decoder
from tensor_ops_decode.program import Limits, Tensor
from tensor_ops_decode.program.builder import Builder
from tensor_ops_decode.weights import FileFormatError, Weights
from tensor_ops_decode.weights.transforms import transformed_shape

__all__ = ["DeclaredTensors"]


class DeclaredTensors:
    """Declares to a builder what files have under the names of a decoder, each with its shape.

    Attributes
    ----------
    known : frozenset of str
        The names of the files' tensors.
    matrix_types : set of str
        The types of the matrices so far.
    passed_over : set of str
        Tensors whose values are part of the program, and those that are not part of the model.
    """

    def __init__(self, decoder: Decoder, files: Weights, limits: Limits) -> None:
        self.decoder, self.files, self.known = decoder, files, frozenset(files.names)
        self.builder = Builder(limits)
        self.matrix_types, self.passed_over = set[str](), set[str]()

    def linear(
        self, fused: str, rows: Mapping[str, int], layer: int, columns: int | None = None
    ) -> dict[str, list[str]]:
        """Return the slots ``weight`` and, if there are any, ``bias`` for some matrices of a layer.

        Each role has so many rows; the file may have them as one matrix, `fused`.
        """
        decoder, columns = self.decoder, columns or self.decoder.hidden
        if fused in decoder.names:
            rows = {fused: sum(rows.values())}
        slots = {"weight": [self.matrix(role, n, columns, layer) for role, n in rows.items()]}
        biases = {role: self.name(role, layer, "bias") for role in rows}
        found = {role for role in rows if decoder.may_have_biases and biases[role] in self.known}
        if not found.union(decoder.biases).isdisjoint(rows):
            # A missing one is an error then.
            slots["bias"] = [self.tensor(biases[role], (rows[role],)) for role in rows]
        return slots

    def stacks(
        self, fused: str, rows: Mapping[str, int], layer: int, columns: int
    ) -> dict[str, list[str]]:
        """Return the slots ``weight`` and ``bias`` for the matrices of all experts.

        The file may have them as one stack, `fused`, as stacks, or each by itself.
        """
        decoder, experts = self.decoder, self.decoder.experts
        assert experts is not None
        count, transforms = experts.count, decoder.transforms
        if fused in decoder.names and self.stack_name(fused, layer) in self.known:
            rows = {fused: sum(rows.values())}
        slots: dict[str, list[str]] = {"weight": []}
        for role, n in rows.items():
            if "{}" in decoder.names[role]:
                each = (self.name(role, layer).format(expert) for expert in range(count))
                found = [self.tensor(name, (n, columns)) for name in each]
            else:
                shape = (count, n, columns)
                name = self.stack_name(role, layer)
                found = [self.tensor(name, shape, transforms.get(role, ()))]
            slots["weight"] += map(self.typed, found)
            bias = f"{role}_bias"
            if bias in decoder.names:
                name = self.whole_name(bias, layer)
                made = self.tensor(name, (count, n), transforms.get(bias, ()))
                slots.setdefault("bias", []).append(made)
        return slots

    def vector(self, role: str, layer: int, length: int) -> str:
        """Return a vector whose name is whole."""
        transforms = self.decoder.transforms.get(role, ())
        return self.tensor(self.whole_name(role, layer), (length,), transforms)

    def row_blocks(self, role: str, layer: int, count: int, sizes: Sequence[int]) -> list[str]:
        """Split a matrix whose rows repeat blocks of these sizes; return the part of each size."""
        ends, found = list(itertools.accumulate(sizes)), []
        for end, size in zip(ends, sizes, strict=True):
            transform = f"row_blocks:{ends[-1]}:{end - size}:{end}"
            shape = (count * size, self.decoder.hidden)
            found.append(self.typed(self.tensor(self.name(role, layer), shape, (transform,))))
        return found

    def matrix(self, role: str, rows: int, columns: int, layer: int | None = None) -> str:
        return self.typed(self.tensor(self.name(role, layer), (rows, columns)))

    def norm(self, role: str, layer: int | None = None, length: int | None = None) -> str:
        shape = (length or self.decoder.hidden,)
        return self.tensor(self.name(role, layer), shape, self.decoder.norm_transform)

    def number(self, name: str) -> float:
        """Return the only value of a tensor."""
        if name not in self.known or self.files.header(name).shape != (1,):
            given = self.files.header(name).shape if name in self.known else "it is missing"
            raise FileFormatError(
                f"{self.files.path}: tensor {name!r} must have one value: {given}"
            )
        (value,) = self.files.tensor(name).values().tolist()
        if not math.isfinite(value):
            raise FileFormatError(f"{self.files.path}: tensor {name!r} must be finite, got {value}")
        return float(value)

    def typed(self, name: str) -> str:
        """Note the type of a matrix."""
        self.matrix_types.add(self.builder.type_of(name))
        return name

    def name(self, role: str, layer: int | None, part: str = "weight") -> str:
        prefix = "" if layer is None else self.prefix(layer)
        if role == "v" and layer is not None and not self.decoder.sizes_of(layer).has_values:
            role = "k"
        return f"{prefix}{self.decoder.names[role]}.{part}"

    def prefix(self, layer: int) -> str:
        """Return what the names of a layer's tensors begin with."""
        names, further = self.decoder.names, layer - self.decoder.layers
        if further >= 0 and "draft_layer" in names:
            return names["draft_layer"].format(further)
        return names["layer"].format(layer)

    def stack_name(self, role: str, layer: int) -> str:
        """Return the name of a stack: the weight of a module, or in memory a name of its own."""
        name = self.whole_name(role, layer)
        is_alone = name in self.known or role in self.decoder.transforms
        return name if is_alone else f"{name}.weight"

    def whole_name(self, role: str, layer: int) -> str:
        return f"{self.prefix(layer)}{self.decoder.names[role]}"

    def tensor(self, name: str, shape: tuple[int, ...], transform: tuple[str, ...] = ()) -> str:
        if name not in self.known:
            raise FileFormatError(f"{self.files.path}: tensor {name!r}, shape {shape}, is missing")
        found = self.files.header(name)
        if shape == (1, *found.shape):  # some files leave out a dimension of 1
            transform = ("row", *transform)
        made = transformed_shape(found.shape, transform)
        if made != shape:
            words = f"{made} by {', '.join(transform)}" if made != found.shape else f"{made}"
            raise FileFormatError(
                f"{found.file}: tensor {name!r} has shape {words}, expected {shape}"
            )
        made_f32 = {"plus_one", "neg_exp", "ones", "dequantize"}
        kind = "f32" if made_f32.intersection(transform) else found.type
        source = {"file": found.file, "tensor": name, "transform": list(transform)}
        is_other = made != found.shape or "ones" in transform
        unique = f"{name}, {transform[-1]}" if is_other else name
        return self.builder.tensor(unique, Tensor(kind, shape, source))
