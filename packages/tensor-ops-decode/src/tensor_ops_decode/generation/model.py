"""Text from prompts and conversations: opens a model, and runs requests until they have answers."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tensor_ops_decode.arguments import check_known, check_progress
from tensor_ops_decode.completion import Completion
from tensor_ops_decode.generation.answering import Answering
from tensor_ops_decode.generation.conversations import (
    REFUSED,
    Conversations,
    Messages,
    check_none_of,
)
from tensor_ops_decode.generation.embedder import Embedder
from tensor_ops_decode.generation.running_answers import completions_of
from tensor_ops_decode.generation.text_stream import TextStream
from tensor_ops_decode.kernel.persistent_kernel import PersistentKernel
from tensor_ops_decode.models.generation_settings import (
    generation_defaults,
    problem_with_end_tokens,
)
from tensor_ops_decode.text.arguments import Prompt, listed_prompts
from tensor_ops_decode.weights import Weights, open_weights

if TYPE_CHECKING:
    from tensor_ops_decode.text import Tokenizer

__all__ = ["Model", "describe", "load"]

MAX_NEW_TOKENS = 128
DRY_SEQUENCE_BREAKERS = ("\n", ":", '"', "*")

_OF_CHAT_PROMPT = ("chat_template", "continue_final_message", "parse_special_tokens")
_OF_TEMPLATES = ("tools", "documents", "add_generation_prompt")


def load(
    path: str | os.PathLike[str],
    backend: str | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> Model:
    """Open a model, and pack its weights for a backend.

    Parameters
    ----------
    path : path-like
        A GGUF file, or a folder of Hugging Face with ``config.json`` and safetensors.
    backend : str, optional
        The backend that must run it; by default the one that tensor_ops chooses.
    progress : callable, optional
        Called with the bytes of weights that are packed, and of all. Without it they may be packed
        while the first steps run; see `PersistentKernel.compile`.
    **options
        As in `PersistentKernel`: ``fallback_backends``, ``num_workers``, ``max_seq_length``,
        ``max_num_batched_requests``, ``embeddings``, ``adapter``, ``world_size`` and others.

    Returns
    -------
    Model
        A folder without ``tokenizer.json`` makes one that takes tokens and gives tokens: text is an
        error then.

    Raises
    ------
    FileFormatError
        If there is no model, or one that is damaged or not supported.
    BackendUnavailableError
        If no backend can run it.
    OSError
        If it cannot be read.

    Examples
    --------
    >>> import tensor_ops_decode
    >>> model = tensor_ops_decode.load("SmolLM2-135M-Instruct.Q4_1.gguf")  # doctest: +SKIP
    >>> model.generate("The capital of France is", max_new_tokens=4)[0].text  # doctest: +SKIP
    ' Paris.\\n\\n'
    """
    check_progress(progress)
    model = describe(path, backend, **options)
    model.kernel.compile(progress=progress)
    return model


def describe(path: str | os.PathLike[str], backend: str | None = None, **options: Any) -> Model:
    """Open a model as `load` does, without packing its weights: it cannot answer yet."""
    from tensor_ops_decode.text import open_tokenizer  # few programs that use a kernel need it

    weights = open_weights(path)
    tokenizer = open_tokenizer(weights)
    weights.end_tokens = tokenizer.end_tokens
    problem = problem_with_end_tokens(weights) if options.get("eos_token_id") is None else None
    return Model(
        PersistentKernel(backend=backend, model=weights, **options), tokenizer, weights, problem
    )


class Model(Conversations, Embedder):
    """A model that answers prompts and embeds texts; `load` makes one.

    Attributes
    ----------
    kernel : PersistentKernel
        What runs its steps.
    tokenizer : Tokenizer
        Where the model's folder has none, its methods raise an error that names the missing file.
    vocabulary : int
        The number of tokens that it can choose from.
    """

    def __init__(
        self, kernel: PersistentKernel, tokenizer: Tokenizer, weights: Weights, problem: str | None
    ) -> None:
        self.kernel = kernel
        self.tokenizer = tokenizer
        self.vocabulary = kernel.program.values["logits"].columns
        self.answering = Answering(kernel, tokenizer, self.vocabulary, problem)
        self._weights = weights

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def defaults(self) -> dict[str, Any]:
        """How its files would have `generate` called: ``model.generate(text, **model.defaults)``.

        Raises
        ------
        FileFormatError
            If a value cannot be; the message names file and key.
        """
        return generation_defaults(self._weights)

    def close(self) -> None:
        """Free the memory of the model."""
        self.kernel.close()

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        *,
        n: int = 1,
        max_new_tokens: int = MAX_NEW_TOKENS,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        typical_p: float = 1.0,
        xtc_probability: float = 0.0,
        xtc_threshold: float = 0.1,
        seed: int = 0,
        repetition_penalty: float = 1.0,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        penalty_last_n: int | None = None,
        logit_bias: Mapping[int, float] | None = None,
        dry_multiplier: float = 0.0,
        dry_base: float = 1.75,
        dry_allowed_length: int = 2,
        dry_penalty_last_n: int | None = None,
        dry_sequence_breakers: str | Sequence[str] = DRY_SEQUENCE_BREAKERS,
        stop: str | Sequence[str] = (),
        ignore_eos: bool = False,
        json_schema: Mapping[str, Any] | str | None = None,
        regex: str | None = None,
        grammar: str | None = None,
        logprobs: int | None = None,
        stream: Callable[[int, str], None] | None = None,
    ) -> list[Completion]:
        """Continue one or several prompts.

        Parameters
        ----------
        prompts : str, sequence of int, or a sequence of these
            Text or tokens. Several are computed together, as many as the model has requests; the
            answer to each is the same as alone on the native backends. A text gets the token that
            begins one, if the model wants it, and the name of a special token in it is text.
        n : int, optional
            How many answers each prompt gets. They stand one behind the other in all that is
            counted, numbered or returned here, as those of so many equal prompts.
        max_new_tokens : int, optional
        temperature : float, optional
            0 takes the likeliest token; larger, up to 1e6, is more random.
        top_k : int, optional
            Sample from so many of the likeliest tokens only; 0 for all.
        top_p : float, optional
            Sample from the likeliest tokens whose probabilities sum to it.
        min_p : float, optional
            Sample from tokens at least so likely beside the likeliest.
        typical_p : float, optional
            Sample from tokens whose information is close to the entropy, until their probabilities
            sum to more than this (locally typical sampling); 1 for all.
        xtc_probability : float, optional
            How often the likeliest tokens are left out (XTC, "exclude top choices"): all those of
            probability `xtc_threshold` or more, but for the least likely of these.
        xtc_threshold : float, optional
            See `xtc_probability`; above 0.5 none is left out.
        seed : int, optional
            Equal seeds give equal answers; prompt i has ``seed + i``.
        repetition_penalty : float, optional
            Positive logits of tokens that the prompt or the answer has are divided by it, negative
            ones multiplied; larger than 1 makes repetitions less likely.
        presence_penalty, frequency_penalty : float, optional
            What is subtracted from the logits of these tokens first: once, and for each time that
            they are there.
        penalty_last_n : int, optional
            Of how many of the last tokens the penalties take note; by default of all.
        logit_bias : mapping of int to float, optional
            What is added to the logits of these tokens; ``-math.inf`` bans one.
        dry_multiplier, dry_base : float, optional
            DRY, "don't repeat yourself": a token that would go on with a repetition of the last `n`
            tokens gets ``dry_multiplier * dry_base ** (n - dry_allowed_length)`` subtracted from
            its logit. A multiplier of 0 changes nothing.
        dry_allowed_length : int, optional
            How long a repetition must be for that.
        dry_penalty_last_n : int, optional
            In how many of the last tokens repetitions are looked for; by default in all.
        dry_sequence_breakers : str or sequence of str, optional
            Up to 64 texts of up to 40 bytes that no repetition goes beyond. A model without a
            tokenizer takes none.
        stop : str or sequence of str, optional
            An answer ends before one of these. The name of a special token in one stands for the
            token, though it is none of the text.
        ignore_eos : bool, optional
            Whether to go on after the model's end tokens.
        json_schema : mapping or str, optional
            A JSON schema, or its text: an answer is JSON that is valid by it. This and the next
            two, of which there is one at most, need llguidance.
        regex : str, optional
            A regular expression as of Rust; an answer matches it as a whole.
        grammar : str, optional
            A grammar as of Lark; an answer is what its rule ``start`` describes.
        logprobs : int, optional
            Give the log-probability of each token of the answers, and so many of the likeliest
            tokens beside it. They are the model's own, before all of the settings above.
        stream : callable, optional
            Called with the number of a prompt and a piece of text as soon as it is certain. The
            pieces of a prompt are its text, and no piece ends within a character.

        Returns
        -------
        list of Completion
            In the order of the prompts.

        Raises
        ------
        ValueError
            If a prompt is empty, longer than the model's sequence, or has a token without a row in
            the embedding, though the tokenizer may know it; if a text has a lone surrogate, or the
            model has no tokenizer for it; if a number is out of its range; or if llguidance refuses
            a schema, a regular expression or a grammar.
        TypeError
            If an argument is of another type. In both cases nothing has been computed.
        LogitsError
            If the logits of a prompt are NaN, or all minus infinity. It is raised when the other
            prompts have their answers, which it has as `LogitsError.completions`.
        """
        answers = self.answering.answers(
            listed_prompts(prompts),
            stream,
            n=n,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            typical_p=typical_p,
            xtc_probability=xtc_probability,
            xtc_threshold=xtc_threshold,
            seed=seed,
            repetition_penalty=repetition_penalty,
            presence_penalty=presence_penalty,
            frequency_penalty=frequency_penalty,
            penalty_last_n=penalty_last_n,
            logit_bias=logit_bias,
            dry_multiplier=dry_multiplier,
            dry_base=dry_base,
            dry_allowed_length=dry_allowed_length,
            dry_penalty_last_n=dry_penalty_last_n,
            dry_sequence_breakers=dry_sequence_breakers,
            stop=stop,
            ignore_eos=ignore_eos,
            json_schema=json_schema,
            regex=regex,
            grammar=grammar,
            logprobs=logprobs,
        )
        running = self.answering.running(answers)
        try:
            while running.advance():
                pass
        finally:
            running.close()
        return completions_of(answers)

    def stream(self, prompt: Prompt, **arguments: Any) -> TextStream:
        """Continue a prompt, and return the pieces of its text one by one.

        Parameters
        ----------
        prompt : str or sequence of int
            As of `generate`; of a conversation, what `chat_prompt` returns.
        **arguments
            As `generate` takes them, such as ``max_new_tokens``, but for ``n`` and ``stream``.

        Returns
        -------
        TextStream
            For ``for`` and ``async for``. Steps run while a piece is waited for, and serve all
            streams and threads that use the model.

        Raises
        ------
        ValueError, TypeError
            As of `generate`, before the first piece.

        Examples
        --------
        >>> import tensor_ops_decode
        >>> model = tensor_ops_decode.load("SmolLM2-135M-Instruct.Q4_1.gguf")  # doctest: +SKIP
        >>> for piece in model.stream("The capital of France is"):  # doctest: +SKIP
        ...     print(piece, end="", flush=True)
         Paris.
        """
        defaults: dict[str, Any] = dict(Model.generate.__kwdefaults__ or {})
        known = [name for name in defaults if name not in ("n", "stream")]
        check_known("stream", arguments, known)
        self.tokenizer.check_exists()
        pieces: deque[str] = deque()
        given = {**defaults, **arguments, "stream": lambda _, piece: pieces.append(piece)}
        (answer,) = self.answering.answers([prompt], **given)
        return TextStream(self.answering.running([answer]), answer, pieces)

    def save_prompt(self, path: str | os.PathLike[str], prompt: Prompt) -> int:
        """Write what the caches have of a prompt into a file, for `load_prompt`.

        What they do not have yet is computed. A long text that many prompts begin with need not be
        read again then, by this process or another.

        Parameters
        ----------
        path : path-like
            A file that is there is replaced.
        prompt : str or sequence of int
            As of `generate`; of a conversation, what `chat_prompt` returns.

        Returns
        -------
        int
            How many of its first tokens the file has: those that fill pages of the caches.

        Raises
        ------
        ValueError, TypeError, OSError
            As of `generate` and `PersistentKernel.save_prompt`.

        Examples
        --------
        >>> import tensor_ops_decode
        >>> model = tensor_ops_decode.load("SmolLM2-135M-Instruct.Q4_1.gguf")  # doctest: +SKIP
        >>> model.save_prompt("story", "Once upon a time, " * 100)  # doctest: +SKIP
        688
        """
        tokens = self.answering.tokens(0, prompt)
        with self.answering.lock:
            self.answering.remove_abandoned()
            return self.kernel.save_prompt(path, tokens)

    def load_prompt(self, path: str | os.PathLike[str]) -> int:
        """Bring what `save_prompt` has written into the caches; return how many tokens it holds.

        `Completion.shared_tokens` says how many of them a prompt went on from.

        Raises
        ------
        FileFormatError, ConfigError, ValueError, OSError
            As of `PersistentKernel.load_prompt`.
        """
        with self.answering.lock:
            self.answering.remove_abandoned()
            return self.kernel.load_prompt(path)

    def logprobs(self, prompt: Prompt, *, first: int = 1) -> list[float]:
        """Return how likely the tokens of a text were, as log-probabilities given those before.

        Parameters
        ----------
        prompt : str or sequence of int
            As a prompt of `generate`.
        first : int, optional
            From which token on: 1 is the second one, and the first that has others before it.

        Returns
        -------
        list of float
            One for each token from `first` on.

        Raises
        ------
        ValueError, TypeError, LogitsError
            As of `generate` and `PersistentKernel.prompt_logprobs`.

        Examples
        --------
        >>> import tensor_ops_decode
        >>> model = tensor_ops_decode.load("SmolLM2-135M-Instruct.Q4_1.gguf")  # doctest: +SKIP
        >>> model.logprobs("One, two, three")  # doctest: +SKIP
        [-2.6, -1.5, -0.2, -0.4]
        """
        tokens = self.answering.tokens(0, prompt)
        with self.answering.lock:
            self.answering.remove_abandoned()
            return self.kernel.prompt_logprobs(tokens, first=first)

    def chat(
        self,
        messages: Messages,
        *,
        template_variables: Mapping[str, Any] | None = None,
        chat_template: str | None = None,
        continue_final_message: bool | str = False,
        parse_special_tokens: bool = False,
        **arguments: Any,
    ) -> Completion:
        """Answer the last message of a conversation.

        Parameters
        ----------
        messages : sequence of mapping
            As `chat_prompt` takes them. The caller adds the answer to them if it goes on.
        template_variables : mapping, optional
            Other values for the chat template, such as ``tools``.
        chat_template, continue_final_message, parse_special_tokens : optional
            As of `chat_prompt`. What continues a message is the answer without its beginning.
        **arguments
            As `generate` takes them, such as ``max_new_tokens`` and ``stream``.

        Returns
        -------
        Completion

        Raises
        ------
        ValueError, TypeError
            As of `chat_prompt` and `generate`.

        Examples
        --------
        >>> import tensor_ops_decode
        >>> model = tensor_ops_decode.load("SmolLM2-135M-Instruct.Q4_1.gguf")  # doctest: +SKIP
        >>> messages = [{"role": "user", "content": "What is the capital of France?"}]
        >>> model.chat(messages).text  # doctest: +SKIP
        'The capital of France is Paris.'
        """
        if not isinstance(template_variables, (Mapping, type(None))):
            raise TypeError(f"template_variables must be a mapping, got {template_variables!r:.80}")
        variables = dict(template_variables or {})
        check_none_of(
            dict.fromkeys(_OF_CHAT_PROMPT, "give it as an argument, not as a variable"), variables
        )
        in_variables = "give it in template_variables, which is what templates see"
        check_none_of({**REFUSED, **dict.fromkeys(_OF_TEMPLATES, in_variables)}, arguments)
        prompt = self.chat_prompt(
            messages,
            chat_template=chat_template,
            continue_final_message=continue_final_message,
            parse_special_tokens=parse_special_tokens,
            **variables,
        )
        (answer,) = self.generate([prompt], **arguments)
        return answer
