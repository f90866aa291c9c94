"""Calls made from bytes, and what the NumPy backend says about them."""

from fractions import Fraction

import ml_dtypes
import numpy as np
from choices import Choices

from tensor_ops.op import accuracy
from tensor_ops.op.arguments import DTYPES, is_half
from tensor_ops.op.checks import check_outputs, check_values
from tensor_ops.ops import OPS

__all__ = [
    "GOOD_COUNTS",
    "Call",
    "WrongCallError",
    "accepted_arguments",
    "in_float64",
    "judge",
    "judge_memory",
    "told",
]

NAMES = sorted(OPS)
DTYPE_NAMES = sorted(DTYPES)
SIZES = [1, 2, 3, 0, 4, 5, 6, 8, 15, 16, 17, 31, 32, 33, 64, 66, 130, 258, 1030]
MOST = 5000  # elements
FOREIGN = ["i4", "u1", "?", "c8", "O", "U1", "M8[s]", ">f4", ">f8", "<f2", "V4", "f4", "f8"]
NEVER, ALWAYS = 2**62, 1


class WrongCallError(AssertionError):
    """A result or an error that a call must not have."""


class Raises:
    """A number that is none once it is asked for."""

    def __float__(self):
        raise ZeroDivisionError("asked")

    __index__ = __bool__ = __float__


class Word(str):
    pass


class Number(float):
    pass


class Subclass(np.ndarray):
    pass


ODD_SCALARS = [
    None, True, 0, 1, -1, 2, 10**400, 0.0, -0.0, 1e-45, 1e150, -1e-9, float("nan"), float("inf"),
    -1e305, 1e308, 1e-308, 1j, "", "x", "tanh", "none", b"tanh", "tanh\0", "t\udc80", (), [], {},
    Word("none"), Number(1.0), Raises(), object(), Fraction(1, 3), np.float32(1e-5), np.float16(1),
    np.float64(1e-6), np.longdouble(1e-6), np.int8(1), np.bool_(True), np.array(1e-5),
    np.array([1.0]), np.str_("none"), ml_dtypes.bfloat16(1), float, NotImplemented,
]  # fmt: skip
NO_ARRAYS = [
    None, 1.0, [1.0, 2.0], "x", b"\0" * 64, bytearray(64), memoryview(bytes(64)), np.float32(1),
    np.ma.zeros(3, np.float32), np.zeros(3, np.float32).view(Subclass), object(), (), np.zeros,
]  # fmt: skip
COUNTS = [1, 2, 3, 8, 0, -1, 10**30, True, None, 1.5, "2", np.int64(2), Raises()]
GOOD_COUNTS = [1, 2, 3, 8]


def _pool(dtype, special):
    """Return values to draw arrays from: of moderate size, or with the edges of the dtype."""
    random = np.random.default_rng(1)
    values = 3 * random.standard_normal(2 * MOST)
    if special:
        info = ml_dtypes.finfo(dtype)
        largest = min(float(info.max), 1e150)
        edges = [0.0, 1.0, largest, float(info.smallest_normal), float(info.smallest_subnormal)]
        edges = np.array([*edges, *(-edge for edge in edges), np.inf, -np.inf, np.nan])
        chosen = random.random(values.shape) < 0.05
        values[chosen] = random.choice(edges, chosen.sum())
    with np.errstate(all="ignore"):
        return values.astype(dtype)


POOLS = {
    (name, special): _pool(dtype, special)
    for name, dtype in DTYPES.items()
    for special in (False, True)
}
UNITS = {
    name: np.random.default_rng(2).uniform(-1, 1, 2 * MOST).astype(dtype)
    for name, dtype in DTYPES.items()
}


class Call:
    """One call: the arrays, each a view of memory of its own, and what holds them."""

    def __init__(self, data):
        choices = Choices(data)
        self.memory = []
        self.op = OPS[choices.pick(NAMES)]
        mixture, place = divmod(choices.byte(), len(DTYPE_NAMES))
        self.dtype = DTYPE_NAMES[place]
        mixtures = [(), *self.op.mixtures] if is_half(DTYPES[self.dtype]) else [()]
        self.wide = mixtures[mixture % len(mixtures)]
        self.streaming_threshold = choices.pick([NEVER, ALWAYS])
        self.shape = self._shape(choices)
        self.kwargs = {}
        self.args = []
        for name, kind in self.op.kinds.items():
            self._argument(choices, name, kind)
        self._out(choices)
        self._count(choices)
        self._break(choices)

    def _shape(self, choices):
        shape = []
        size = 1
        for _ in range(choices.pick([2, 1, 3, 4, 0])):
            extent = choices.pick(SIZES)
            shape.append(extent if size * extent <= MOST else 1)
            size *= max(shape[-1], 1)  # strides are made as if there were one
        halves = any(kind.role == "half_rows" for kind in self.op.kinds.values())
        if halves and shape and shape[-1] % 2 and not choices.rarely():
            shape[-1] += 1 if size * 2 <= MOST else -1
        return tuple(shape)

    def _argument(self, choices, name, kind):
        if not kind.is_array:
            if choices.byte() < 128:  # the default
                return
            if choices.rarely():
                self.kwargs[name] = choices.pick(ODD_SCALARS)
            elif kind.role == "real":
                self.kwargs[name] = choices.pick([1e-6, 0.0, 1e-5, 1.0, 0.125, 4, np.float32(0.5)])
            elif kind.role == "choice":
                self.kwargs[name] = choices.pick(kind.choices)
            else:
                self.kwargs[name] = choices.pick([False, True])
            return
        if kind.optional and choices.byte() < 64:
            return
        if choices.rarely():
            self.kwargs[name] = choices.pick(NO_ARRAYS)
            return
        own = self._dtype_of(name)
        dtype = np.dtype(choices.pick(FOREIGN)) if choices.rarely() else own
        self.kwargs[name] = self._array(choices, self._shape_of(choices, kind), dtype, kind)

    def _dtype_of(self, name):
        return DTYPES["float32" if name in self.wide else self.dtype]

    def _shape_of(self, choices, kind):
        if choices.rarely():
            return self._shape(choices)
        n = self.shape[-1] if self.shape else 1
        if kind.role == "row_vector":
            return (n,)
        if kind.role == "half_rows":
            rows = [size if choices.byte() < 160 else 1 for size in self.shape[:-1]]
            halves = (*rows, n // 2)
            return halves[choices.below(len(halves)) if choices.byte() < 64 else 0 :]
        return self.shape

    def _array(self, choices, shape, dtype, kind=None):
        """Return an array of this shape, laid out as the bytes say, at the end of its memory."""
        item = dtype.itemsize
        order = list(range(len(shape)))
        layout = choices.pick(["dense", "gaps", "swapped", "zero strides", "unaligned"])
        if layout == "swapped":
            order.insert(choices.below(len(shape) + 1), order.pop() if order else 0)
            order = order[: len(shape)]
        strides = [0] * len(shape)
        step = item
        for axis in reversed(order):
            if layout == "zero strides" and kind is not None and choices.byte() < 128:
                continue
            if layout == "gaps":
                step += item * choices.pick([0, 1, 0, 3, 16])
            strides[axis] = step
            step *= max(shape[axis], 1)
        extent = item + sum(s * (size - 1) for s, size in zip(strides, shape, strict=True) if size)
        before = choices.pick([0, item, 3 * item, 32])
        if layout == "unaligned":
            before += 1 + choices.below(7)
        memory = np.empty(before + extent, np.uint8)
        start = before
        for axis, size in enumerate(shape):  # some backwards
            if layout in ("gaps", "zero strides") and size and choices.byte() >= 192:
                start += strides[axis] * (size - 1)
                strides[axis] = -strides[axis]
        self._fill(choices, memory[before % item if item else 0 :], dtype, kind)
        self.memory.append(memory)
        if dtype.hasobject:
            return np.zeros(shape, dtype)
        array = np.ndarray(shape, dtype, memory, start, strides)
        if kind is not None and choices.rarely():
            array.flags.writeable = False
        return array

    def _fill(self, choices, memory, dtype, kind):
        own = (self.dtype, "float32") if self.wide else (self.dtype,)
        if kind is None or not dtype.isnative or dtype.name not in own:
            memory[...] = 0x3A
            return
        special = kind.is_full and choices.byte() >= 160
        pool = UNITS[dtype.name] if kind.role == "half_rows" else POOLS[dtype.name, special]
        first = choices.below(MOST)
        count = memory.size // dtype.itemsize
        source = np.resize(pool[first:], count).view(np.uint8)
        memory[: source.size] = source
        memory[source.size :] = 0

    def _out(self, choices):
        what = choices.pick(["none", "fresh", "input", "shifted", "twisted", "odd"])
        if what == "none":
            return
        self.kwargs["out"] = (
            tuple(self._one_out(choices, what, like) for like in self.op.results_like)
            if self.op.outputs > 1
            else self._one_out(choices, what, self.op.first)
        )

    def _one_out(self, choices, what, like):
        dtype = self._dtype_of(like)
        # A result that is not like rows is a sum over all of them.
        shape = self.shape if self.op.kinds[like].is_full else self.shape[-1:]
        arrays = [value for value in self.kwargs.values() if type(value) is np.ndarray]
        source = choices.pick(arrays) if arrays else np.empty(0, np.float32)
        if what == "input" and arrays:
            return source
        if what == "shifted" and arrays and not source.dtype.hasobject:
            return self._shifted(choices, shape, dtype)
        if what == "twisted" and arrays and source.ndim:
            return source[::-1] if choices.byte() < 128 else np.moveaxis(source, 0, -1)
        if what == "odd":
            if choices.byte() < 128:
                return choices.pick([*NO_ARRAYS[1:], ()])
            return self._array(choices, self._shape(choices), np.dtype(choices.pick(FOREIGN)))
        return self._array(choices, shape, dtype)

    def _shifted(self, choices, shape, dtype):
        """Return a view of the memory of an input, anywhere in it."""
        memory = choices.pick(self.memory) if self.memory else np.empty(0, np.uint8)
        strides = [0] * len(shape)
        step = dtype.itemsize * choices.pick([1, 2, 0])
        for axis in reversed(range(len(shape))):
            strides[axis] = step
            step *= max(shape[axis], 1)
        extent = dtype.itemsize + sum(
            s * (size - 1) for s, size in zip(strides, shape, strict=True) if size
        )
        room = memory.size - extent
        if room < 0:
            return self._array(choices, shape, dtype)
        return np.ndarray(shape, dtype, memory, choices.below(room + 1), strides)

    def _count(self, choices):
        self.count = choices.pick(COUNTS) if choices.byte() >= 160 else 1

    def _break(self, choices):
        """Pass leading arguments by position; now and then too many, too few, or unknown ones."""
        names = list(self.op.kinds)
        for name in names[: choices.below(4)]:
            if name not in self.kwargs or self.op.signature.parameters[name].kind.name == (
                "KEYWORD_ONLY"
            ):
                break
            self.args.append(self.kwargs.pop(name))
        if not choices.rarely():
            return
        what = choices.below(4)
        if what == 0:
            self.kwargs[choices.pick(["y", "Out", "", "x\0", "\udc80", names[0]])] = None
        elif what == 1 and self.kwargs:
            self.kwargs.pop(choices.pick(list(self.kwargs)))
        elif what == 2 and self.args:
            self.args.pop()
        else:
            self.args += [None] * choices.pick([1, 5, 20])


def accepted_arguments(call):
    """Return every argument by name, or None if the NumPy backend refuses the call."""
    try:
        values = call.op.bind(tuple(call.args), call.kwargs)
        out = values.pop("out")
        check_values(call.op.name, call.op.kinds, values)
        check_outputs(call.op.name, call.op.results_like, call.op.kinds, values, out)
    except (TypeError, ValueError, ZeroDivisionError):  # the last is an argument's own
        return None
    return values


def in_float64(values):
    """Return arguments by name with their arrays in float64."""
    with np.errstate(all="ignore"):
        return {
            name: value.astype(np.float64) if isinstance(value, np.ndarray) else value
            for name, value in values.items()
        }


def judge(call, backend, values, wide, result):
    """Hold results to the bounds of the op on a backend, against its body in float64."""
    results = result if isinstance(result, tuple) else (result,)
    references = call.op.numpy(**wide)
    references = references if isinstance(references, tuple) else (references,)
    terms = call.op.terms_of(wide)
    if call.op.name == "layer_norm":
        terms = (_terms(wide),)
    out = call.kwargs.get("out")
    if out is not None and result is not out and not isinstance(out, tuple):
        raise WrongCallError(f"{told(call)}: returned something else than out")
    for got, wanted, of_terms, like in zip(
        results, references, terms, call.op.results_like, strict=True
    ):
        if type(got) is not np.ndarray and out is None:
            raise WrongCallError(f"{told(call)}: returned a {type(got).__name__}")
        # An array may have been given another dtype than was drawn.
        if got.dtype != values[like].dtype:
            raise WrongCallError(f"{told(call)}: returned {got.dtype}")
        if not got.size and got.shape == wanted.shape:
            continue
        bound = call.op.bound(got.dtype.name, backend)
        measured = accuracy.measure(got, wanted, bound, of_terms)
        if not measured.within:
            raise WrongCallError(
                f"{told(call)}: {measured.problem or f'error {measured.error:.3g}'}, allowed are "
                f"{measured.limit:.3g} ({bound})"
            )


def _terms(values):
    """Return for each element of layer_norm the magnitudes of what is added up to it.

    The normalised row is rounded relative to its largest element, weighted elements and bias each
    to their own digits. What is left where they cancel may be far smaller than these errors, and
    with few columns, or one weight that dwarfs the others, so may be all of the row.
    """
    rows = values["x"]
    normal = OPS["layer_norm"].numpy(
        x=rows, weight=np.ones(rows.shape[-1]), bias=None, eps=values["eps"]
    )
    with np.errstate(all="ignore"):
        terms = abs(normal).max(axis=-1, keepdims=True, initial=0) * abs(values["weight"])
    return terms if values["bias"] is None else terms + abs(values["bias"])


def judge_memory(call, before, result):
    """Nothing but the output may have changed."""
    results = result if isinstance(result, tuple) else (result,)
    if call.kwargs.get("out") is not None and result is not None:
        # Back to what was there before; all the rest must be as it was.
        for out in results:
            for memory, old in zip(call.memory, before, strict=True):
                if np.may_share_memory(out, memory):
                    first = out.__array_interface__["data"][0]
                    start = first - memory.__array_interface__["data"][0]
                    out[...] = np.ndarray(out.shape, out.dtype, old, start, out.strides)
                    break
    for memory, old in zip(call.memory, before, strict=True):
        if memory.tobytes() != old.tobytes():
            raise WrongCallError(f"{told(call)}: changed memory that is not its output")


def told(call):
    def tell(value):
        if isinstance(value, np.ndarray):
            return f"<{value.dtype} {value.shape} strides {value.strides}>"
        if isinstance(value, tuple):
            return f"({', '.join(map(tell, value))})"
        return ascii(value)

    words = [
        *map(tell, call.args),
        *(f"{name!a}={tell(value)}" for name, value in call.kwargs.items()),
    ]
    return f"{call.op.name}({', '.join(words)}; num_threads={call.count!a})"
