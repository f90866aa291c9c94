"""The decode steps that are timed: those of models, and those that tell assumptions apart.

docs/decode_cuda_predictions.md says what each is compared with. Tested by
tests/benchmarks/test_gpu_decode.py and packages/tensor-ops-cuda/tests/test_decode_timed.py.
"""

from dataclasses import dataclass

from decode_cuda.model import SHAPES, Shape

__all__ = ["LLAMA", "MODELS", "Model"]

# The sizes of the files "1B ..." of decode_peers, which llama.cpp opens. Those of the predictions
# have a longer table.
LLAMA = Shape("1B", 16, 2048, 32, 8, 64, 8192, 32000, has_own_head=False)


@dataclass(frozen=True)
class Model:
    """A model, and which of its steps are timed.

    Attributes
    ----------
    shape : Shape
    cases : tuple of (int, int)
        Requests, and the positions in the cache of each.
    fewer_blocks : tuple of float
        Parts of the multiprocessors on which the first case is timed again: what is latency stays
        as it is then, and what is instructions takes longer.
    """

    shape: Shape
    cases: tuple[tuple[int, int], ...]
    fewer_blocks: tuple[float, ...] = ()


MODELS = {
    each.shape.name: each
    for each in (
        # Barriers and what follows them: 82 phases with hardly any weights, all in the L2 cache.
        Model(
            Shape("null", 16, 64, 2, 1, 32, 64, 512, has_own_head=False), ((1, 64),), (0.5, 0.25)
        ),
        # Instructions: in Q4_0 its 22 MB of weights stay in the L2 cache of these GPUs.
        Model(
            Shape("L2", 1, 2048, 32, 8, 64, 4096, 2048, has_own_head=False),
            ((1, 64), (8, 64)),
            (0.5,),
        ),
        # At 64 positions attention has 8 items, at 512 it has 64, and at 4096 it has 512.
        Model(LLAMA, ((1, 64), (1, 512), (8, 512), (1, 4096))),
        Model(SHAPES[1], ((1, 512), (8, 512))),
        Model(Shape("SmolLM2", 30, 576, 9, 3, 64, 1536, 49152, has_own_head=False), ((1, 512),)),
    )
}
