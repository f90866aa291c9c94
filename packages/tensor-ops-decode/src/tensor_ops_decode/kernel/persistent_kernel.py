"""PersistentKernel: a model's decode step, compiled once and called for each token."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from tensor_ops_decode.arguments import check_progress
from tensor_ops_decode.errors import ProgramError
from tensor_ops_decode.executors import memory_plan
from tensor_ops_decode.executors.choice import ExecutorChoice
from tensor_ops_decode.executors.compilation import compile_program
from tensor_ops_decode.executors.packed_file import cache_folder
from tensor_ops_decode.executors.sources import TensorArrays
from tensor_ops_decode.kernel import stand_in
from tensor_ops_decode.kernel.arguments import (
    check_end_tokens,
    check_model,
    check_names,
    check_setting,
    check_types,
    given_end_tokens,
    limits_of,
    start_token_of,
)
from tensor_ops_decode.kernel.explanation import KernelExplanation
from tensor_ops_decode.kernel.export import ModelFacts, export_model
from tensor_ops_decode.kernel.layers import Layers
from tensor_ops_decode.kernel.measurements import KernelMeasurements
from tensor_ops_decode.kernel.requests import KernelRequests
from tensor_ops_decode.kernel.steps import KernelSteps
from tensor_ops_decode.models import decoder_of
from tensor_ops_decode.models.decoder import program_of
from tensor_ops_decode.models.generation_settings import end_tokens_of
from tensor_ops_decode.program import Limits, Program
from tensor_ops_decode.program.quantized import quantized_program, warn_if_nothing_is_quantized
from tensor_ops_decode.program.step_reads import StepReads
from tensor_ops_decode.serving.requests import Requests
from tensor_ops_decode.serving.sampling import Sampling
from tensor_ops_decode.weights import Weights, open_weights

__all__ = ["PersistentKernel"]

_CUTLASS = "use_cutlass_kernel chooses between kernels of the backend 'cuda'; leave it out"


class PersistentKernel(Layers, KernelSteps, KernelRequests, KernelMeasurements):
    """A language model whose decode step is one native call.

    A kernel runs the model of a file, or one that is described with the ``_layer`` methods, or a
    tiny stand-in with random weights if it is given neither. `compile` it once; then each call runs
    one step of all requests. Methods may be called from several threads, one at a time runs.

    Parameters
    ----------
    mode : {"decode"}, optional
    backend : str, optional
        The backend that runs, or none does. Without it, the configuration decides, as it does for
        the ops.
    fallback_backends : sequence of str, optional
        What is tried, in order, where `backend` cannot run the program.
    world_size, mpi_rank : int, optional
        How many ranks share the model, and which one this is: 1 and 0.
    model : path-like, optional
        A GGUF file, or a folder of Hugging Face; or one that `open_weights` has opened.
    num_workers : int, optional
        Threads; the executor's default is one for each core.
    max_seq_length : int, optional
        The longest sequence, prompt included, but for the last token, which is not computed with:
        an answer may come to one token more. By default the longest that model and memory have room
        for, up to 2**20; 2048 for layers by hand, and where the system does not tell its memory.
    max_num_batched_requests : int, optional
        How many requests may be active.
    max_num_batched_tokens : int, optional
        How many tokens a step takes; longer prompts take several steps.
    max_num_pages : int, optional
        An upper bound of the pages of the caches; no more are reserved than the other limits need.
        Without it, those of a model take half of the memory that the weights leave, at most.
    page_size : int, optional
        Tokens per page.
    num_speculative_tokens : int, optional
        How many tokens a request may guess in a step: those that followed its last three where they
        stood before. The step computes them too, and right ones save steps; the tokens are the same
        as without. Only beside `model`.
    eos_token_id : int or sequence of int, optional
        What ends a request; by default what the model's files say.
    activations : {"int8x2", "int8", "bfloat16", "float32"}, optional
        What activations are rounded to where weights are quantised, if the backend has that option.
        With ``"bfloat16"`` that is int8x2, and beside weights in bfloat16 they are rounded to it.
    cache_dtype : {"float32", "float16", "int8"}, optional
        Of keys and values; by default float32 for a model whose matrices are all float32.
    quantize : {"q4_0", "q4_1", "q5_0", "q5_1", "q8_0"}, optional
        What floating-point matrices of the model are packed as; that of the logits as q8_0.
    quantize_head : {"q4_0", "q4_1", "q5_0", "q5_1", "q8_0"}, optional
        What the matrix of the logits is packed as, of whatever type it is.
    cache : path-like or bool, optional
        The folder in which packed weights are kept, or True for that of the model: the next kernel
        of the same model maps them instead of packing. Damaged ones are packed again, with a
        warning. Only beside `model`, and with a backend that packs weights.
    use_cutlass_kernel : bool, optional
        An option of the backend ``cuda``.

    Raises
    ------
    NoExecutorError
        If no backend can run it; this is a `BackendUnavailableError` and a ValueError.
    FileFormatError
        If the model's files are damaged or not supported.
    TypeError, ValueError
        If an argument is unknown or wrong.
    MemoryError
        If more memory is needed than the process may have.

    Examples
    --------
    >>> import tensor_ops
    >>> with tensor_ops.PersistentKernel(backend="python") as kernel:
    ...     kernel.compile()
    ...     request = kernel.add_request([1, 2, 3], max_new_tokens=2)
    ...     steps = [kernel(), kernel()]
    ...     kernel.tokens(request) == [step[request] for step in steps]
    True
    """

    def __init__(
        self,
        *,
        mode: str = "decode",
        backend: str | None = None,
        fallback_backends: Sequence[str] = (),
        world_size: int = 1,
        mpi_rank: int = 0,
        model: str | os.PathLike[str] | Weights | None = None,
        num_workers: int | None = None,
        max_seq_length: int | None = None,
        max_num_batched_requests: int = 8,
        max_num_batched_tokens: int = 256,
        max_num_pages: int | None = None,
        page_size: int = 16,
        num_speculative_tokens: int = 0,
        eos_token_id: int | Sequence[int] | None = None,
        activations: str | None = None,
        cache_dtype: str | None = None,
        quantize: str | None = None,
        quantize_head: str | None = None,
        cache: str | os.PathLike[str] | bool | None = None,
        use_cutlass_kernel: bool | None = None,
        **unknown: object,
    ) -> None:
        check_names(unknown, PersistentKernel.__init__.__kwdefaults__ or ())
        check_setting(mode, world_size, mpi_rank, num_workers)
        check_types(cache_dtype, quantize, quantize_head)
        given = {"num_speculative_tokens": num_speculative_tokens, "cache": cache}
        check_model(model, {**given, "quantize": quantize, "quantize_head": quantize_head})
        end_tokens = None if eos_token_id is None else given_end_tokens(eos_token_id)

        def limits(length: int) -> Limits:
            most = max_num_batched_requests, max_num_batched_tokens, max_num_pages
            return limits_of(length, *most, page_size, num_speculative_tokens)

        length = memory_plan.DEFAULT_SEQ_LENGTH if max_seq_length is None else max_seq_length
        super().__init__(limits(length), cache_dtype)
        self._length_by = "the default" if max_seq_length is None else "max_seq_length"
        self._activations = activations
        options = {"activations": activations, "use_cutlass_kernel": use_cutlass_kernel}
        options = {name: value for name, value in options.items() if value is not None}
        self._settings: dict[str, Any] = {"num_workers": num_workers, "options": options}
        self._choice = ExecutorChoice(
            backend,
            fallback_backends,
            refusal=lambda name: None if use_cutlass_kernel is None or name == "cuda" else _CUTLASS,
        )
        self._executor = self._choice.executor()
        self._model = "the layers described by hand"
        self._weights: Weights | None = None
        self._cache: Path | None = None
        self._packed_file: str | None = None
        self._program: Program | None = None
        self._logits, self._tokens = "logits", "next"
        metadata: Mapping[str, Any] = {}
        self._end_tokens = end_tokens or frozenset()
        if model is not None:
            self._weights = open_weights(model) if isinstance(model, (str, os.PathLike)) else model
            self._model, metadata = str(self._weights.path), self._weights.metadata
            self._cache = cache_folder(cache, self._weights.path)
            decoder, files = decoder_of(self._weights), self._weights
            check_end_tokens(self._end_tokens, decoder.vocabulary)
            if end_tokens is None:  # of those that the model can choose
                found = end_tokens_of(files)
                self._end_tokens = frozenset(t for t in found if t < decoder.vocabulary)

            def program(bounds: Limits) -> Program:
                made = program_of(decoder, files, bounds, cache_dtype)
                return quantized_program(made, quantize, quantize_head)

            def needed(made: Program) -> dict[str, int]:
                text = made.to_json()
                executor = self._executor = self._choice.executor(text)
                return memory_plan.memory_needed(executor, made, text, num_workers=num_workers)

            self._program, self._length_by = memory_plan.program_that_fits(
                limits, program, decoder.usual_context, max_seq_length, max_num_pages, needed
            )
            warn_if_nothing_is_quantized(self._program, quantize, quantize_head)
            memory_plan.require_bytes(self._program.limits, needed(self._program))
        self._start_token = start_token_of(metadata)

        self._lock = threading.RLock()
        self._process = os.getpid()
        self._executable: Any = None
        self._is_closed = False
        self._requests: Requests | None = None

    def compile(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Make the program ready to run: nothing is allocated after that.

        Parameters
        ----------
        progress : callable, optional
            Called with the bytes of weights that are done, and of all.

        Raises
        ------
        ProgramError
            If layers were added that make no whole program.
        NoExecutorError
            If no backend can run the program.
        ConfigError
            If others can write the file of packed weights in `cache`.
        """
        self._check_describing("compile")
        check_progress(progress)
        with self._lock:
            self._check_describing("compile")
            if self._weights is None:
                if not self._declared:
                    self._model = stand_in.DESCRIPTION
                    stand_in.add_layers(self, self._builder.limits)
                self._program, self._logits, self._tokens = self.described_program()
            program = self.program
            check_end_tokens(self._end_tokens, program.values[self._logits].columns)
            text = program.to_json()
            self._executor = self._choice.executor(text)
            taken = memory_plan.memory_needed(self._executor, program, text, **self._settings)
            memory_plan.require_bytes(program.limits, taken)
            compiled = compile_program(
                self._executor,
                program,
                text,
                self._attached,
                self._weights,
                self._cache,
                progress=progress,
                **self._settings,
            )
            self._packed_file = compiled.packed_file
            self._attached = {}  # the executable holds what it has not copied
            self._requests = Requests(program, compiled.executable, self._logits, self._tokens)
            self._executable = compiled.executable

    def export(
        self,
        folder: str | os.PathLike[str],
        progress: Callable[[int, int], None] = lambda done, size: None,
    ) -> None:
        """Write the model into a new folder, which programs without Python can run.

        It has the program, the tensors as it wants them, and what else a runner must know. The
        kernel need not be compiled.

        Parameters
        ----------
        folder : path-like
            It must not exist yet, and appears when it is whole.
        progress : callable, optional
            Called with the bytes of tensors that are written, and of all.

        Raises
        ------
        ValueError
            If the kernel has no ``model``, or is closed.
        OSError
            If the folder cannot be written, or exists.
        """
        self._check_process()
        with self._lock:
            self._check_open()
            weights = self._weights
            if weights is None:
                raise ValueError("export() writes the model of a file; make the kernel with model=")

            def report(done: int, size: int) -> None:
                weights.release_memory()  # what is written is not read again
                progress(done, size)

            facts = ModelFacts(
                Path(weights.path).name,
                self._logits,
                self._tokens,
                self._start_token,
                self._end_tokens,
                self._activations,
            )
            arrays = TensorArrays(self.program, {}, weights)
            export_model(folder, self.program, arrays, facts, report)

    def close(self) -> None:
        """Free the memory; everything after that is an error, except for closing again."""
        if self._process != os.getpid():  # where the lock may be held by a thread that is gone
            self._executable, self._is_closed = None, True
            return
        with self._lock:
            executable, self._executable, self._is_closed = self._executable, None, True
            if executable is not None:
                executable.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a PersistentKernel cannot be pickled or copied; make a new one")

    def __enter__(self) -> PersistentKernel:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def program(self) -> Program:
        """What runs, as a plain value; of layers by hand, once they are compiled."""
        if self._program is None:
            raise RuntimeError("the program is known once compile() has been called")
        return self._program

    @property
    def backend(self) -> str:
        """The backend that runs the kernel."""
        return self._executor.backend

    def explain(self) -> KernelExplanation:
        """Return which backend runs the kernel and why, its limits, its memory, what it reads."""
        executor, executable = self._executor, self._executable
        return KernelExplanation(
            executor.backend,
            self._model,
            executor.decided_by,
            executor.mode,
            executor.steps,
            self._limits,
            self._length_by,
            self._settings["options"] if executable is None else executable.options,
            self._settings["num_workers"] if executable is None else executable.num_workers,
            {} if executable is None else executable.memory,
            self._packed_file,
            None if self._program is None else StepReads.of(self._program),
        )

    @property
    def _limits(self) -> Limits:
        return self._builder.limits if self._program is None else self._program.limits

    @contextmanager
    def _in_use(self) -> Iterator[Requests]:
        """Hold the lock and give the requests, if the kernel can run them."""
        self._check_process()  # first: a thread of the parent may have held the lock
        with self._lock:
            self._check_open()
            if self._requests is None:
                raise RuntimeError("the kernel is not compiled: call compile() first")
            yield self._requests

    @contextmanager
    def _in_step(self) -> Iterator[Requests]:
        """Hold the lock and give the requests, with the default one if none was added."""
        with self._in_use() as requests:
            if not requests.were_added:
                requests.add([self._start_token], frozenset(), None, Sampling())
            yield requests

    def _check_process(self) -> None:
        if self._process != os.getpid():
            raise RuntimeError(
                f"the kernel belongs to the process {self._process}, from which this one was "
                "forked; make a kernel of its own here"
            )

    def _check_open(self) -> None:
        if self._is_closed:
            raise ValueError("the kernel is closed; make a new one")

    def _check_describing(self, where: str) -> None:
        self._check_process()
        self._check_open()
        if self._executable is not None:
            raise ProgramError(f"{where}: the kernel is compiled already")
        if self._weights is not None and where != "compile":
            raise ProgramError(f"{where}: the kernel runs {self._model}; leave model= out")
