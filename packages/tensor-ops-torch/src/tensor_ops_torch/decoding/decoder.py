"""`decoder`: a model of transformers, packed for the decode engine."""

from __future__ import annotations

import copy
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from tensor_ops import BackendFallbackWarning, BackendUnavailableError
from tensor_ops.extension import warn_caller
from tensor_ops_torch.decoding.changes import ModelState
from tensor_ops_torch.decoding.errors import UnsupportedModelError
from tensor_ops_torch.decoding.explanation import DecoderExplanation
from tensor_ops_torch.decoding.memory_model import array_weights, check_devices, check_values
from tensor_ops_torch.decoding.named_modules import NamedModule, named_modules_of, weights_of
from tensor_ops_torch.decoding.structure import (
    ExpectedModule,
    check_structure,
    own_model,
    quantization_of,
)

if TYPE_CHECKING:
    from tensor_ops_decode import PersistentKernel

__all__ = ["Decoder", "decoder"]


def decoder(
    model: Any,
    *,
    quantize: str | None = None,
    quantize_head: str | None = None,
    merge: bool = False,
    release: bool = False,
    fallback: bool = False,
    backend: str | None = None,
    fallback_backends: Sequence[str] = (),
    num_workers: int | None = None,
    max_seq_length: int | None = None,
    max_num_batched_requests: int = 8,
    max_num_batched_tokens: int = 256,
    max_num_pages: int | None = None,
    page_size: int = 16,
    num_speculative_tokens: int = 0,
    draft_vocab_size: int | None = None,
    max_num_snapshots: int | None = None,
    activations: str | None = None,
    cache_dtype: str | None = None,
    use_cutlass_kernel: bool | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Decoder:
    """Pack a causal model of transformers, so that a step is one native call.

    The model is taken as it is in memory: its weights, its configuration, its generation
    configuration and the tokens that end an answer. There is no file. The weights are packed before
    the function returns; rows of the embedding are looked up in the model's own memory.

    Parameters
    ----------
    model : PreTrainedModel
        Of a family of the engine, such as Llama or Qwen 3, in float32, bfloat16 or float16. Also
        one that `torch.compile` or peft has wrapped.
    quantize, quantize_head : {"q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "mxfp4"}, optional
        What the matrices, and that of the logits, are packed as.
    merge : bool, optional
        Whether adapters of peft are merged while they are packed. The model keeps its own weights
        and its adapters.
    release : bool, optional
        Whether the model's weights are given up as they are packed: what the model and the kernel
        have in memory is never much more than one of them. The model cannot be used after that,
        nor where packing was interrupted.
    fallback : bool, optional
        Whether what the engine does not support is left to the model's own ``generate``, with a
        warning, instead of being an error.
    activations : {"int8x2", "int8", "bfloat16", "float32"}, optional
        What the inputs of products are rounded to, as `tensor_ops_decode.PersistentKernel` takes
        it. By default it is bfloat16 for a model whose parameters all are, without `quantize`,
        where the backend multiplies it faster: transformers rounds them too, and more. With
        ``"float32"`` nothing is rounded.
    backend, fallback_backends, num_workers, max_seq_length, max_num_batched_requests, \
    max_num_batched_tokens, max_num_pages, page_size, num_speculative_tokens, draft_vocab_size, \
    max_num_snapshots, cache_dtype, use_cutlass_kernel : optional
        As `tensor_ops_decode.PersistentKernel` takes them.
    progress : callable, optional
        Called with the bytes of weights that are packed, and of all.

    Returns
    -------
    Decoder

    Raises
    ------
    UnsupportedModelError
        If the model computes what the engine does not, or its weights are where the backend does
        not compute. With `fallback` this is a warning.
    NoExecutorError
        If no backend can run it. With `fallback` this is a warning.
    BackendUnavailableError
        If `tensor_ops_decode` is not installed.
    TypeError, ValueError
        If an argument is wrong, or `model` is none of transformers.
    MemoryError
        If more memory is needed than the process may have.

    Warns
    -----
    BackendFallbackWarning
        If the model's own ``generate`` runs, or another backend than the one that was asked for.

    Examples
    --------
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2}
    >>> config = LlamaConfig(**sizes, num_hidden_layers=1, vocab_size=64)
    >>> model = LlamaForCausalLM(config).eval()
    >>> with decoder(model, max_seq_length=32) as fast:
    ...     print(fast.explain().model)
    LlamaForCausalLM
    """
    if release and fallback:
        raise ValueError(
            "release=True takes the weights from the model, and fallback=True needs them: leave "
            "one of them out"
        )
    decode = _engine()
    options: dict[str, Any] = {
        "quantize": quantize,
        "quantize_head": quantize_head,
        "backend": backend,
        "fallback_backends": fallback_backends,
        "num_workers": num_workers,
        "max_seq_length": max_seq_length,
        "max_num_batched_requests": max_num_batched_requests,
        "max_num_batched_tokens": max_num_batched_tokens,
        "max_num_pages": max_num_pages,
        "page_size": page_size,
        "num_speculative_tokens": num_speculative_tokens,
        "draft_vocab_size": draft_vocab_size,
        "max_num_snapshots": max_num_snapshots,
        "activations": activations,
        "cache_dtype": cache_dtype,
        "use_cutlass_kernel": use_cutlass_kernel,
    }
    try:
        own, modules, expected, kernel = _open(decode, model, options, merge=merge, release=release)
    except (UnsupportedModelError, decode.NoExecutorError) as error:
        if not fallback:
            raise
        message = f"the engine cannot run the model, whose own generate() runs instead: {error}"
        warn_caller(message, BackendFallbackWarning)
        return Decoder(model, own_model(model, of_weights=False), fallback=True, reason=str(error))
    state = None if release else ModelState(model, own, modules, expected)
    merged = tuple(sorted({adapter for named in modules for adapter in named.adapters}))
    made = Decoder(model, own, kernel, state, merged=merged, fallback=fallback)
    try:
        kernel.compile(progress)
    except BaseException:
        made.close()
        raise
    return made


def _open(
    decode: Any, model: Any, options: dict[str, Any], *, merge: bool, release: bool
) -> tuple[Any, list[NamedModule], dict[str, ExpectedModule], PersistentKernel]:
    """Return a caller's model of transformers, its modules, what they should be, and a kernel.

    Nothing is packed yet.
    """
    own = own_model(model)
    modules = named_modules_of(own, merge=merge)
    try:
        expected = check_structure(own, modules)
        weights = weights_of(modules)
        check_values(weights)
        stored = array_weights(own, weights, release=release)
    except (UnsupportedModelError, decode.FileFormatError) as error:
        quantization = quantization_of(own)
        if quantization is None:
            raise UnsupportedModelError(str(error)) from error
        raise UnsupportedModelError(
            f"weights quantized by {quantization} are not read: load the model that they were "
            f"made from, and give quantize= ({error})"
        ) from error
    try:
        kernel: PersistentKernel = decode.PersistentKernel(model=stored, **options)
    except decode.FileFormatError as error:
        raise UnsupportedModelError(str(error)) from error
    try:
        check_devices(weights, kernel.backend)
    except UnsupportedModelError:
        kernel.close()
        raise
    return own, modules, expected, kernel


def _engine() -> Any:
    """Return the module `tensor_ops_decode`, or raise an error that says how to install it."""
    try:
        import tensor_ops_decode
    except ModuleNotFoundError as error:
        if error.name != "tensor_ops_decode":
            raise
        raise BackendUnavailableError(
            "decoder() needs tensor_ops_decode, which is not installed; install it with: pip "
            "install 'tensor-ops-torch[decode]' (from a clone: pip install "
            "./packages/tensor-ops-decode)",
            "tensor_ops_decode",
        ) from error
    return tensor_ops_decode


class Decoder:
    """A model of transformers whose steps a kernel runs; `decoder` makes it.

    It holds the kernel, and no model: where nothing else does, the model's memory is freed, but for
    the embedding. Only with ``fallback=True`` it keeps the model.

    Attributes
    ----------
    kernel : PersistentKernel or None
        What runs; None where the model's own ``generate`` does.
    config : PretrainedConfig
    generation_config : GenerationConfig
        A copy of the model's, which may be changed.
    dtype : torch.dtype
    device : torch.device
        Where the model was: results are there.
    fallback : bool
        Whether what is refused is left to the model's own ``generate``, with a warning.
    lock : threading.RLock
        Held by the thread that generates.

    Examples
    --------
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2}
    >>> config = LlamaConfig(**sizes, num_hidden_layers=1, vocab_size=64, eos_token_id=None)
    >>> model = LlamaForCausalLM(config).eval()
    >>> with decoder(model, max_seq_length=32) as fast:
    ...     fast.generate([[1, 2, 3]], max_new_tokens=4, do_sample=False).shape
    torch.Size([1, 7])
    """

    def __init__(
        self,
        model: Any,
        own: Any,
        kernel: PersistentKernel | None = None,
        state: ModelState | None = None,
        *,
        merged: tuple[str, ...] = (),
        fallback: bool = False,
        reason: str | None = None,
    ) -> None:
        self.kernel, self.config = kernel, own.config
        self.generation_config = copy.deepcopy(own.generation_config)
        self.dtype, self.device = own.dtype, own.device
        self.fallback, self.lock = fallback, threading.RLock()
        self._name = type(own).__name__
        self._model = (lambda: model) if fallback else weakref.ref(model)
        self._state, self._merged, self._reason = state, merged, reason
        self._is_released = kernel is not None and state is None

    @property
    def model(self) -> Any:
        """The model that the decoder was made from, None where nothing holds it any more."""
        return self._model()

    def generate(self, inputs: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Continue prompts, as ``generate`` of transformers does.

        Parameters
        ----------
        inputs : tensor or lists of int, optional
            The prompts, a row each; also as ``input_ids=``. Lists of different lengths are padded
            at the left; a tensor with padding comes with its ``attention_mask``. Without any, an
            answer begins with the token that begins a text.
        *args, **kwargs
            As ``generate`` of transformers takes them; the guide says what is refused.

        Returns
        -------
        tensor of int64, shape (rows, length)
            Prompts and answers, padded at the right; or with ``return_dict_in_generate`` what
            transformers returns.

        Raises
        ------
        WeightsChangedError
            If the model is not what it was when its weights were packed.
        RefusedSettingError
            If a setting asks for what the kernel does not do. With ``fallback=True`` this is a
            warning, and the model's own ``generate`` runs.
        TypeError, ValueError
            If these are no prompts of the model, or the kernel has no room for answers so long.
        LogitsError
            If the logits of a row are NaN, or all minus infinity.
        """
        from tensor_ops_torch.decoding.generation import generate

        return generate(self, inputs, *args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the loop of ``model.generate(..., custom_generate=decoder)``."""
        from tensor_ops_torch.decoding.generation import decode

        return decode(self, *args, **kwargs)

    def check_unchanged(self) -> None:
        """Raise a WeightsChangedError if a step of the model would not be the kernel's any more.

        Each call of ``generate`` does this first. The guide lists what is not noticed, such as a
        write to few elements through ``.data`` of a parameter.
        """
        if self._state is not None:
            self._state.check()

    def explain(self) -> DecoderExplanation:
        """Return what runs the model and where its weights are, or why the kernel does not run."""
        kernel = self.kernel
        weights: Counter[str] = Counter()
        if kernel is not None:
            tensors = kernel.program.tensors.values()
            weights.update(tensor.type for tensor in tensors if "tensor" in tensor.source)
        return DecoderExplanation(
            self._name,
            "transformers" if kernel is None else "kernel",
            self._reason,
            dict(weights),
            self._merged,
            self._is_released,
            None if kernel is None else kernel.explain(),
        )

    def close(self) -> None:
        """Free the memory of the kernel; everything after that but closing again is an error."""
        if self.kernel is not None:
            self.kernel.close()

    def __enter__(self) -> Decoder:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Decoder cannot be pickled or copied; make a new one of the model")
