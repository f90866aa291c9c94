"""PersistentKernel: a model's decode step, compiled once and called for each token."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from tensor_ops_decode.arguments import check_progress
from tensor_ops_decode.errors import ProgramError
from tensor_ops_decode.executors.choice import ExecutorChoice
from tensor_ops_decode.executors.sources import TensorArrays
from tensor_ops_decode.kernel import stand_in
from tensor_ops_decode.kernel.arguments import KernelSettings, check_names
from tensor_ops_decode.kernel.embedding_session import EmbeddingSession
from tensor_ops_decode.kernel.explanation import KernelExplanation, rounded_options
from tensor_ops_decode.kernel.export import export_model
from tensor_ops_decode.kernel.layers import Layers
from tensor_ops_decode.kernel.opening import KernelModel, described_model, open_model
from tensor_ops_decode.kernel.prompt_file import (
    KeptPrompt,
    facts_of,
    read_prompt_file,
    write_prompt_file,
)
from tensor_ops_decode.kernel.rank_facts import facts_of_ranks
from tensor_ops_decode.kernel.session import Session
from tensor_ops_decode.program.phases import kinds_together
from tensor_ops_decode.program.step_reads import StepReads
from tensor_ops_decode.ranks.choice import chosen_ranks
from tensor_ops_decode.ranks.communicator import Facts
from tensor_ops_decode.scheduling.request import check_lengths, checked_tokens
from tensor_ops_decode.scheduling.requests import Requests
from tensor_ops_decode.weights import Weights

__all__ = ["PersistentKernel"]


class PersistentKernel(EmbeddingSession, Layers):
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
        How many ranks share the model, and which of them this one is, from 0 on. By default what
        ``mpiexec`` or ``torchrun`` has started; without them, 1 and 0.
    communicator : {"mpi", "torch", "local"}, optional
        What the ranks exchange values by: MPI, ``torch.distributed``, or the memory of this
        process, of which each rank is a kernel then. Also a communicator of mpi4py, or a group of
        ``torch.distributed``. By default what has started the process decides.
    model : path-like, optional
        A GGUF file, or a folder of Hugging Face; or one that `open_weights` has opened, or the
        `ArrayWeights` of a model in memory.
    adapter : path-like, optional
        The folder of a LoRA adapter as peft saves it, which all requests use: its products are
        added to those of the model, whose weights stay as they are. Only beside `model`, and with
        one rank.
    num_workers : int, optional
        Threads, by default one for each core, which ranks of a machine share; of ``cuda`` blocks,
        one for each multiprocessor.
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
        Without it, the pages of a model take at most half of the memory that the weights leave.
    page_size : int, optional
        Tokens per page.
    num_speculative_tokens : int, optional
        How many tokens a request may guess in a step, by the layer that the model brings for that,
        or else those that followed its last three where they stood before. The step computes them
        too, and right ones save steps; the tokens are the same as without. Only beside `model`.
    draft_vocab_size : int, optional
        Among how many of the first tokens of the vocabulary the layer for guesses looks for one: a
        guess then takes so much less time, and tokens behind them are never guessed. By default
        among all.
    embeddings : bool, optional
        Whether steps leave what embeddings are pooled from, by default where the model's files say
        how to pool. The last layer then computes all tokens of a prompt, and not the last one
        alone. Only beside `model`.
    max_num_snapshots : int, optional
        How many states of a model with states are kept behind pages, so that prompts that begin
        alike, and the next turn of a conversation, go on from there: by default two, and two for
        each of `max_num_batched_requests`, if a quarter of the memory that is left has room for
        them. Only beside `model`.
    eos_token_id : int or sequence of int, optional
        The tokens that end a request; by default what the model's files say.
    activations : {"int8x2", "int8", "bfloat16", "float32"}, optional
        The type that activations are rounded to beside quantised weights, if the backend has that.
        With ``"bfloat16"`` that is int8x2, and beside weights in bfloat16 they are rounded to it:
        the default beside `ArrayWeights` that say so, where the backend multiplies it faster.
    cache_dtype : {"float32", "float16", "int8"}, optional
        Of keys and values; by default float32 for a model whose matrices are all float32.
    quantize : {"q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "mxfp4"}, optional
        The type that floating-point matrices are packed as; the matrix of the logits as q8_0.
    quantize_head : {"q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "mxfp4"}, optional
        The type that the matrix of the logits is packed as, of whatever type it is.
    cache : path-like or bool, optional
        The folder in which packed weights are kept, or True for the model's own folder: the next
        kernel of the same model maps them instead of packing. Damaged ones are packed again, with a
        warning. Only beside `model`, and with a backend that packs weights.
    use_cutlass_kernel : bool, optional
        An option of the backend ``cuda``: whether products are those of tensor cores, which is the
        default, or of CUDA cores in float32.

    Raises
    ------
    NoExecutorError
        If no backend can run it; this is a `BackendUnavailableError` and a ValueError.
    RankError
        If there is no such communicator here, or another rank has failed.
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
        world_size: int | None = None,
        mpi_rank: int | None = None,
        communicator: object = None,
        model: str | os.PathLike[str] | Weights | None = None,
        adapter: str | os.PathLike[str] | None = None,
        num_workers: int | None = None,
        max_seq_length: int | None = None,
        max_num_batched_requests: int = 8,
        max_num_batched_tokens: int = 256,
        max_num_pages: int | None = None,
        page_size: int = 16,
        num_speculative_tokens: int = 0,
        draft_vocab_size: int | None = None,
        embeddings: bool | None = None,
        max_num_snapshots: int | None = None,
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
        self._settings = settings = KernelSettings(
            mode=mode,
            model=model,
            adapter=adapter,
            num_workers=num_workers,
            max_seq_length=max_seq_length,
            max_num_batched_requests=max_num_batched_requests,
            max_num_batched_tokens=max_num_batched_tokens,
            max_num_pages=max_num_pages,
            page_size=page_size,
            num_speculative_tokens=num_speculative_tokens,
            draft_vocab_size=draft_vocab_size,
            embeddings=embeddings,
            max_num_snapshots=max_num_snapshots,
            eos_token_id=eos_token_id,
            activations=activations,
            cache_dtype=cache_dtype,
            quantize=quantize,
            quantize_head=quantize_head,
            cache=cache,
            use_cutlass_kernel=use_cutlass_kernel,
        )
        ranks = chosen_ranks(communicator, world_size, mpi_rank, settings.name_among_ranks)
        Session.__init__(self, ranks)
        Layers.__init__(self, settings.limits, cache_dtype)
        self._choice = ExecutorChoice(
            backend, fallback_backends, settings.refusal, among_ranks=ranks.world_size > 1
        )
        self._model: KernelModel | None = None
        if model is None:
            self._executor = self._choice.executor()
        else:
            self._model = open_model(model, settings, self._choice, ranks)
            self._executor = self._model.planned.executor
        self._name = "the layers described by hand"
        self._packed_file: str | None = None

    def compile(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Make the program ready to run: nothing is allocated after that.

        Parameters
        ----------
        progress : callable, optional
            Called with the bytes of weights that are packed, and of all. Without it, and without
            `cache`, a backend may pack the weights of a file while the first steps run: the first
            token comes sooner, and the next ones take longer. The results are the same bits.

        Raises
        ------
        ProgramError
            If layers were added that make no whole program.
        NoExecutorError
            If no backend can run the program, with these arguments.
        ConfigError
            If others can write the file of packed weights in `cache`.
        RankError
            If another rank has another program, backend or version, or has failed.
        """
        check_progress(progress)
        with self._held():
            self._check_compilable("compile")
            executable = self._ranks.compiled(self._described, lambda: self._compiled(progress))
            self._start(executable)
            self._attached = {}  # the executable holds what it has not copied

    def _check_describing(self, where: str) -> None:
        self._check_compilable(where)
        if self._model is not None and self._model.weights is not None:
            raise ProgramError(f"{where}: the kernel runs {self._model.name}; leave model= out")

    def _described(self) -> Facts:
        """Describe the model if it is one of layers, and return what all ranks must have alike."""
        if self._model is None or self._model.weights is None:
            if not self._declared:
                stand_in.add_layers(self, self._settings.limits)
                self._name = stand_in.DESCRIPTION
            described = self._described_program()
            self._model = described_model(
                self._name, described, self._settings, self._choice, self._ranks
            )
        self._executor = self._model.planned.executor
        return facts_of_ranks(self._model, self._settings) if self.world_size > 1 else {}

    def _compiled(self, progress: Callable[[int, int], None] | None) -> Any:
        """Return the executable of this rank."""
        executable, self._packed_file = self._known_model().compiled(self._attached, progress)
        return executable

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
            If the kernel has no ``model``, is closed, or shares it with other ranks.
        OSError
            If the folder cannot be written, or exists.
        """
        with self._held():
            model = self._model
            if model is None or model.weights is None:
                raise ValueError("export() writes the model of a file; make the kernel with model=")
            if self.world_size > 1:
                raise ValueError(
                    f"export() writes a whole model, and this kernel has the part of rank "
                    f"{self.mpi_rank} of {self.world_size}; make one with world_size=1"
                )
            self._check_head()
            weights = model.weights
            program = model.planned.program.without_draft()  # which the decoder of C++ does not run
            if self._settings.max_num_snapshots is None:  # the decoder of C++ keeps none
                limits = dataclasses.replace(program.limits, extra_states=0)
                program = dataclasses.replace(program, limits=limits)

            def report(done: int, size: int) -> None:
                weights.release_memory()  # what is written is not read again
                progress(done, size)

            export_model(folder, program, TensorArrays(program, {}, weights), model.facts, report)

    def save_prompt(self, path: str | os.PathLike[str], tokens: Sequence[int]) -> int:
        """Write what the caches have of a prompt's full pages into a file, for `load_prompt`.

        What they do not have yet is computed; requests take no step meanwhile. A file that is there
        is replaced when the new one is whole.

        Parameters
        ----------
        path : path-like
        tokens : sequence of int
            The prompt, or what many prompts begin with.

        Returns
        -------
        int
            How many of its first tokens the file has: those of full pages.

        Raises
        ------
        TypeError, ValueError
            If there are fewer tokens than a page has, others than the model's, or too many; if as
            many requests are active as the kernel takes, or too few pages are free; or if the
            kernel cannot keep prompts: its caches are not paged, its states have no snapshots, its
            backend cannot read them, or ranks share the model.
        OSError
            If the file cannot be written.

        Examples
        --------
        >>> import os, tempfile, tensor_ops
        >>> path = os.path.join(tempfile.mkdtemp(), "prompt")
        >>> with tensor_ops.PersistentKernel(backend="python", page_size=4) as kernel:
        ...     kernel.compile()
        ...     kernel.save_prompt(path, [1, 2, 3, 4, 5, 6])
        ...     kernel.reset()
        ...     kernel.load_prompt(path)
        4
        4
        """
        with self._in_use() as requests:
            self._check_keeps_prompts("save_prompt", requests)
            given = checked_tokens(self.program, tokens, "the prompt")
            check_lengths(self.program, len(given), None)
            size = self.program.limits.page_size
            whole = given[: len(given) // size * size]
            if not whole:
                raise ValueError(
                    f"save_prompt: a page has {size} tokens, and the prompt {len(given)}; full "
                    "pages are kept alone"
                )
            model = self._known_model()
            facts = facts_of(model, self._executable.options)
            write_prompt_file(path, KeptPrompt(whole, *requests.read_prompt(whole)), model, facts)
            return len(whole)

    def load_prompt(self, path: str | os.PathLike[str]) -> int:
        """Bring the pages that `save_prompt` has written into the caches.

        A request that begins with the same tokens goes on from there, as after another request
        that began so. The answers have the bits that they have without.

        Returns
        -------
        int
            How many tokens they hold.

        Raises
        ------
        FileFormatError
            If the file is damaged, or was written for another model, backend, kind of processor,
            page size or type of caches.
        ConfigError
            If others can write the file.
        ValueError
            If there are not as many free pages, or as of `save_prompt`.
        OSError
            If the file cannot be read.
        """
        with self._in_use() as requests:
            self._check_keeps_prompts("load_prompt", requests)
            model = self._known_model()
            facts = facts_of(model, self._executable.options)
            tokens, pages, states = read_prompt_file(path, model, facts)
            checked_tokens(self.program, tokens, os.fspath(path))
            check_lengths(self.program, len(tokens), None)
            requests.write_prompt(tokens, pages, states)
            return len(tokens)

    def _check_keeps_prompts(self, where: str, requests: Requests) -> None:
        if self.world_size > 1:
            raise ValueError(
                f"{where}: each of {self.world_size} ranks has a part of the caches; make the "
                "kernel with world_size=1"
            )
        if not requests.keeps_prompts:
            raise ValueError(
                f"{where}: the kernel keeps no prompts: it takes paged caches, snapshots where the "
                "model has states (max_num_snapshots), and a backend that can read them, such as "
                f"'cpp' and 'python'; this is {self.backend!r}"
            )

    def __reduce__(self) -> NoReturn:
        raise TypeError("a PersistentKernel cannot be pickled or copied; make a new one")

    def __enter__(self) -> PersistentKernel:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def explain(self) -> KernelExplanation:
        """Return which backend runs the kernel and why, its limits, its memory, what it reads."""
        executor, executable, settings = self._executor, self._executable, self._settings
        model, decided = self._model, settings if self._model is None else self._model
        program = None if model is None else model.planned.program
        name = self._name if self._declared else stand_in.DESCRIPTION
        options = decided.options if executable is None else executable.options
        options, activations_by = rounded_options(options, decided.activations_by, program)
        return KernelExplanation(
            executor.backend,
            name if model is None else model.name,
            executor.decided_by,
            executor.mode,
            executor.steps,
            settings.limits if program is None else program.limits,
            decided.length_by,
            options,
            activations_by,
            settings.num_workers if executable is None else executable.num_workers,
            {} if executable is None else executable.memory,
            self._packed_file,
            None if program is None else StepReads.of(program),
            getattr(executor.module, "program_note", lambda: None)(),
            None if model is None else model.planned.shares,
            {} if program is None else kinds_together(program, executable),
            self._guesses_by(),
            None if model is None else model.adapter,
        )

    def _guesses_by(self) -> str | None:
        if self._model is not None and self._model.guesses_by is not None:
            return self._model.guesses_by
        return "prompt lookup" if self._settings.limits.guesses_per_request else None


# Python names a method so in its own errors of wrong arguments.
for _method in (*vars(Session).values(), *vars(Layers).values()):
    if inspect.isfunction(_method):
        _method.__qualname__ = f"PersistentKernel.{_method.__name__}"
