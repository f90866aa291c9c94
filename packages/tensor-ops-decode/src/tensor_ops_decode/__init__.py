"""Text generation with a model's whole decode step in one native call.

>>> import tensor_ops_decode
>>> model = tensor_ops_decode.load("SmolLM2-135M-Instruct.Q4_1.gguf")  # doctest: +SKIP
>>> model.generate("The capital of France is", max_new_tokens=2)[0].text  # doctest: +SKIP
' Paris.'
"""

from tensor_ops_decode.completion import Completion, TokenLogprob
from tensor_ops_decode.errors import CapacityError, LogitsError, ProgramError, RankError
from tensor_ops_decode.executors.choice import NoExecutorError
from tensor_ops_decode.generation.model import Model, load
from tensor_ops_decode.generation.perplexity import Perplexity, perplexity
from tensor_ops_decode.generation.text_stream import TextStream
from tensor_ops_decode.kernel.persistent_kernel import PersistentKernel
from tensor_ops_decode.kinds.kind import Kind
from tensor_ops_decode.nodes import KINDS
from tensor_ops_decode.program import Cache, Draft, Limits, Node, Program, State, Tensor, Value
from tensor_ops_decode.program.builder import Builder
from tensor_ops_decode.scheduling.constraint import TokenConstraint
from tensor_ops_decode.scheduling.sampling import Sampling
from tensor_ops_decode.scheduling.step_times import StepProfile
from tensor_ops_decode.sharding.shard import shard
from tensor_ops_decode.weights import (
    ArrayWeights,
    DeferredArray,
    FileFormatError,
    open_weights,
)

__version__ = "0.1.0"

__all__ = [
    "KINDS",
    "ArrayWeights",
    "Builder",
    "Cache",
    "CapacityError",
    "Completion",
    "DeferredArray",
    "Draft",
    "FileFormatError",
    "Kind",
    "Limits",
    "LogitsError",
    "Model",
    "NoExecutorError",
    "Node",
    "Perplexity",
    "PersistentKernel",
    "Program",
    "ProgramError",
    "RankError",
    "Sampling",
    "State",
    "StepProfile",
    "Tensor",
    "TextStream",
    "TokenConstraint",
    "TokenLogprob",
    "Value",
    "__version__",
    "load",
    "open_weights",
    "perplexity",
    "shard",
]
