"""How long a decode step takes on a GPU, by what the kernel's machine code and data sheets say.

A prediction: no part of it was measured. Weights stream at a rate of their own, ahead of the
products into the rings of all warps, until these are full. A product ends when the slowest block
has multiplied its tiles, and no sooner than its weights have arrived. Between products there are
times in which no block multiplies, and the rings fill. The constants below are assumptions.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from decode_cuda.gpus import LATENCY, Gpu
from decode_cuda.kernel import Kernel, RingStep

__all__ = [
    "BARRIER",
    "CLOCKS",
    "ISSUE",
    "L2",
    "SCHEDULERS",
    "SHAPES",
    "STORE",
    "Prediction",
    "Product",
    "Shape",
    "fits",
    "panel_count",
    "predict",
    "weight_bytes",
]

ISSUE = 0.7  # of the slots for instructions: a scheduler has two warps here
BARRIER = 1.5e-6  # of all blocks
L2 = 0.2e-6  # a load from the L2 cache, until it is used
CLOCKS = 4  # of an instruction that needs the result of the one before
REDUCTION = 0.3e-6  # of a sum over a block, with two of its barriers
# Estimated from the source, not counted: what a warp does with the sums of a tile, of the last
# panel and of one before; and the arithmetic of a span of attention.
STORE, KEEP = 200, 40
SPAN = 1.5e-6
SCHEDULERS, BLOCK_THREADS, SPAN_POSITIONS, TILE_ROWS = 4, 256, 64, 16
# With MANY_TOKENS tokens, or MANY_SPANS spans of attention, the blocks divide the preparation of
# activations, as native/decode/kernels/prepare.cuh has it. Each block then fetches PREPARED_BYTES
# for a panel from L2, at L2_BYTES a clock.
MANY_TOKENS, MANY_SPANS, PREPARED_BYTES, L2_BYTES = 4, 3, 34 * 1024, 64
FULL = 0.95  # of a GPU's memory that a model may take


@dataclass(frozen=True)
class Product:
    """A matrix, and what its activations come from."""

    rows: int
    columns: int
    has_norm: bool = False
    is_attended: bool = False


@dataclass(frozen=True)
class Shape:
    """A model of the Llama family."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    intermediate: int
    words: int
    has_own_head: bool

    @property
    def of_layer(self) -> tuple[Product, Product, Product, Product]:
        """The products of a layer: qkv, o, gate and up, down."""
        all_heads = (self.heads + 2 * self.kv_heads) * self.head_size
        return (
            Product(all_heads, self.hidden, has_norm=True),
            Product(self.hidden, self.heads * self.head_size, is_attended=True),
            Product(2 * self.intermediate, self.hidden, has_norm=True),
            Product(self.hidden, self.intermediate),
        )

    @property
    def head(self) -> Product:
        """The product that gives the logits."""
        return Product(self.words, self.hidden, has_norm=True)

    def cache_bytes(self, positions: int) -> int:
        """Return the bytes of the keys and values of a layer, in float16."""
        return 2 * 2 * self.kv_heads * self.head_size * positions


SHAPES = (
    Shape("1B", 16, 2048, 32, 8, 64, 8192, 128256, has_own_head=False),
    Shape("8B", 32, 4096, 32, 8, 128, 14336, 128256, has_own_head=True),
    Shape("70B", 80, 8192, 64, 8, 128, 28672, 128256, has_own_head=True),
)


@dataclass(frozen=True)
class Prediction:
    """The seconds of a step, and what they would be if there were nothing else to wait for."""

    bytes: float
    stream: float  # all bytes at the attainable bandwidth
    multiply: float  # the slowest block's instructions, with all weights in shared memory
    pauses: float  # barriers, activations, the choice of the token: in which nothing is multiplied
    attention: float  # as well
    seconds: float  # all of it, as far as it does not go on at once

    @property
    def share(self) -> float:
        """The part of the attainable bandwidth that is used."""
        return self.stream / self.seconds


@dataclass(frozen=True)
class Panel:
    """Columns of a product that are multiplied at once; seconds of the slowest block."""

    bytes: float
    before: float  # in which nothing is multiplied
    multiply: float


@dataclass(frozen=True)
class Pause:
    """A phase without weights."""

    seconds: float
    bytes: float = 0


def weight_bytes(shape: Shape, step: RingStep) -> int:
    """Return the bytes of weights that a step reads, as they are packed."""
    products = [*shape.of_layer * shape.layers, shape.head]
    return sum(_tiles(p) * sum(_steps(p, step)) * step.bytes for p in products)


def fits(gpu: Gpu, shape: Shape, step: RingStep) -> bool:
    """Return whether a model has room in a GPU's memory."""
    table = shape.words * shape.hidden / step.columns / TILE_ROWS * step.bytes
    return weight_bytes(shape, step) + shape.has_own_head * table <= FULL * gpu.memory


def predict(
    gpu: Gpu, shape: Shape, kernel: Kernel, format_: str, positions: int, tokens: int = 1
) -> Prediction:
    """Predict a step of `tokens` tokens, each with `positions` positions in its cache."""

    phases = [*_phases(gpu, shape, kernel, format_, positions, tokens)]
    panels = [each for each in phases if isinstance(each, Panel)]
    pauses = [each for each in phases if isinstance(each, Pause)]
    read = sum(each.bytes for each in phases)
    return Prediction(
        read,
        read / gpu.attainable,
        sum(each.multiply for each in panels),
        sum(each.before for each in panels) + sum(p.seconds for p in pauses if not p.bytes),
        sum(each.seconds for each in pauses if each.bytes),
        _run(gpu, kernel.in_flight(format_) * gpu.multiprocessors, phases),
    )


def _run(gpu: Gpu, room: float, phases: Sequence[Panel | Pause]) -> float:
    """Return the seconds of a step that follows another one; the rings have room for so much."""
    rate, ahead, total = gpu.attainable, 0.0, 0.0
    for _ in range(2):
        total = 0.0
        for phase in phases:
            pause = phase.seconds if isinstance(phase, Pause) else phase.before
            other = phase.bytes if isinstance(phase, Pause) else 0
            ahead = min(room, ahead + max(0.0, pause * rate - other))
            total += pause
            if isinstance(phase, Panel):
                lasts = max(phase.multiply, (phase.bytes - ahead) / rate)
                ahead = min(room, ahead + lasts * rate - phase.bytes)
                total += lasts
    return total


def _phases(
    gpu: Gpu, shape: Shape, kernel: Kernel, format_: str, positions: int, tokens: int
) -> Iterator[Panel | Pause]:
    yield Pause(BARRIER + 3 * LATENCY)  # the embedding: a token, its row, the row's scale
    for _ in range(shape.layers):
        for product in shape.of_layer:
            if product.is_attended:
                yield _attention(gpu, shape, positions, tokens)
            yield from _panels(gpu, product, kernel, format_, positions, tokens)
    yield from _panels(gpu, shape.head, kernel, format_, positions, tokens)
    # Lanes read the best logits of all blocks, and exchange them.
    yield Pause(BARRIER + ceil(gpu.multiprocessors / 32 / 4) * L2 + REDUCTION)


def _attention(gpu: Gpu, shape: Shape, positions: int, tokens: int) -> Pause:
    """Return the time of the block that has the most spans, which wait for few loads at once."""
    heads_at_once = 2 if shape.head_size > 128 else 4
    turns = ceil(shape.heads / shape.kv_heads / heads_at_once)
    items = _spans(positions) * shape.kv_heads * turns * tokens
    # A lane has two loads of 16 bytes of a key in flight, which four lanes share, and two of
    # values, which as many lanes share as it has vectors of 16 bytes; a warp has 8 positions.
    keys = ceil(shape.head_size / 8 / 4 / 2)
    values = ceil(shape.head_size / 8 * 8 / 32 / 2)
    of_span = (keys + values - 1) * LATENCY + SPAN
    seconds = BARRIER + ceil(items / gpu.multiprocessors) * of_span
    return Pause(seconds, tokens * shape.cache_bytes(positions))


def _panels(
    gpu: Gpu, product: Product, kernel: Kernel, format_: str, positions: int, tokens: int
) -> Iterator[Panel]:
    step = kernel.steps[format_]
    tiles, panels = _tiles(product), _steps(product, step)
    split = _log2_split(tiles, panels[0], kernel.warps, len(panels) > 1)
    is_shared = tokens >= MANY_TOKENS or (product.is_attended and _spans(positions) >= MANY_SPANS)
    own = 1 if is_shared else tokens  # rows that a block prepares
    first = BARRIER
    if product.has_norm:
        first += own * (ceil(product.columns / (4 * BLOCK_THREADS * 4)) * L2 + REDUCTION)
    if is_shared:  # of each panel a warp has 32 vectors at most, and all blocks meet
        first += BARRIER + len(panels) * _prepare(gpu, product, step, 1, positions)
    for number, steps in enumerate(panels):
        if is_shared:
            before = 2 * L2 + PREPARED_BYTES / (L2_BYTES * gpu.clock)
        else:
            rounds = ceil(own * steps * step.columns / (4 * BLOCK_THREADS))
            before = _prepare(gpu, product, step, rounds, positions)
        if number == 0:
            before += first
        together = kernel.warps >> split
        passes = ceil(tiles / (gpu.multiprocessors * together))
        of_warp = ceil(steps / 2**split)
        finish = STORE if number + 1 == len(panels) else KEEP
        issued = kernel.warps * (of_warp * step.instructions + step.join) + together * finish
        issue = passes * issued / (SCHEDULERS * ISSUE * gpu.clock)
        through = passes * kernel.warps * of_warp * (step.shared_passes + step.bytes / 128)
        # A block with more tiles than others reads no faster than what it has in flight.
        read = passes * together * steps * step.bytes / (kernel.in_flight(format_) / LATENCY)
        multiply = max(issue, through / gpu.clock, read)
        yield Panel(tiles * steps * step.bytes, before, multiply)


def _prepare(gpu: Gpu, product: Product, step: RingStep, rounds: int, positions: int) -> float:
    """Return the time in which threads prepare four columns of activations `rounds` times."""
    loads = 1 + 2 * ceil(_spans(positions) / 2) if product.is_attended else 1
    return rounds * (loads * L2 + step.prepare * CLOCKS / gpu.clock)


def _spans(positions: int) -> int:
    return ceil(positions / SPAN_POSITIONS)


def panel_count(product: Product, step: RingStep) -> int:
    """Return how many panels the columns of a product are."""
    return len(_steps(product, step))


def _tiles(product: Product) -> int:
    return ceil(product.rows / TILE_ROWS)


def _steps(product: Product, step: RingStep) -> list[int]:
    """Return the steps of a tile in each panel."""
    whole, rest = divmod(product.columns, step.panel_columns)
    panels = [step.panel_columns] * whole + [rest] * (rest > 0)
    return [ceil(columns / step.columns) for columns in panels]


def _log2_split(tiles: int, steps: int, warps: int, is_followed: bool) -> int:
    """Return 2^how many warps share a tile, as native/decode/executor/packing.cpp has it."""
    times = {}
    for log2_split in range(int(is_followed), 4):
        if 1 << log2_split <= min(warps, steps):
            passes = ceil(tiles / (132 * (warps >> log2_split)))
            times[log2_split] = passes * (ceil(steps / 2**log2_split) + (log2_split > 0) / 6)
    return min(times, key=lambda split: times[split])
