"""From requests to answers on their way: the model that is served, and the settings of requests."""

from __future__ import annotations

import asyncio
import secrets
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from tensor_ops import TensorOpsError
from tensor_ops_decode.generation.model import Model
from tensor_ops_decode.serving.answer_thread import AnswerThread, Reply
from tensor_ops_decode.serving.errors import RequestError
from tensor_ops_decode.serving.formats.find_format import answer_format

if TYPE_CHECKING:
    from tensor_ops_decode.completion import Completion
    from tensor_ops_decode.serving.formats.answer_format import AnswerFormat
    from tensor_ops_decode.serving.metrics import Metrics
    from tensor_ops_decode.serving.protocol import Generation
    from tensor_ops_decode.text import Tokenizer
    from tensor_ops_decode.text.arguments import Prompt

__all__ = ["MOST_NEW_TOKENS", "ServedModel", "in_thread", "new_id", "token_text", "usage_of"]

# As many as the model allows.
MOST_NEW_TOKENS = 2**31 - 1
_Result = TypeVar("_Result")
_SAMPLED = (
    *("temperature", "top_p", "top_k", "min_p", "typical_p", "xtc_probability", "xtc_threshold"),
    "repetition_penalty",
)
_GIVEN = (
    *(*_SAMPLED, "presence_penalty", "frequency_penalty", "penalty_last_n", "regex", "grammar"),
    *("dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n"),
    "dry_sequence_breakers",
)


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A model, the name by which clients know it, and the thread that computes its answers.

    `most_seconds` is how long a request may take. Constraints are compiled in a thread of their
    own: some take seconds, in which other requests are prepared.
    """

    model: Model
    name: str
    thread: AnswerThread
    metrics: Metrics
    most_seconds: float
    compiling: Executor = field(default_factory=lambda: ThreadPoolExecutor(1, "constraints"))
    created: int = field(default_factory=lambda: int(time.time()))

    @lru_cache(maxsize=2)  # noqa: B019
    def answer_format(self, *, has_tools: bool) -> AnswerFormat:
        """Return how answers have calls of tools and reasoning, by the model's chat template.

        Raises
        ------
        ValueError
            If it has none.
        """
        self.model.tokenizer.check_exists()
        return answer_format(self.model.chat_template(has_tools=has_tools).render)

    def check_name(self, name: str | None) -> None:
        """Raise an error if a request is for another model."""
        if name is not None and name != self.name:
            raise RequestError(
                f"there is no model {name!r:.80}; this server has {self.name!r}",
                404,
                param="model",
                code="model_not_found",
            )

    async def begin(
        self,
        request: Generation,
        prompts: Callable[[], tuple[Sequence[Prompt], Mapping[str, Any]]],
        num_prompts: int = 1,
    ) -> Reply:
        """Let the answers to a request join; the caller lets the reply leave in the end.

        `prompts` returns so many prompts and more arguments of `Model.generate`. It is called in
        another thread, for the tokens of long texts take their time.
        """
        self.check_name(request.model)
        self.thread.check_room(num_prompts * (request.n or 1))
        reply = Reply(self.most_seconds)

        def prepare() -> None:
            texts, more = prompts()
            arguments = {**self._settings_of(request), **more}
            reply.begin(self.model.answering.answers(texts, reply.take, **arguments))

        threads = self.compiling if request.is_constrained else None
        try:
            async with asyncio.timeout(self.most_seconds):
                await in_thread(prepare, threads)
        except TimeoutError:
            raise reply.too_long() from None
        self.thread.submit(reply)
        return reply

    def end(self, reply: Reply) -> None:
        """Let a reply leave that `begin` has returned, and count its tokens."""
        self.thread.leave(reply)
        if reply.seconds_to_first is not None:
            self.metrics.count_first(reply.seconds_to_first)
        for answer in reply.answers:
            if answer.finish_reason is not None:
                self.metrics.count_tokens(answer.completion())

    def _settings_of(self, request: Generation) -> dict[str, Any]:
        """Return arguments of `Model.generate`: a request's, or the model's own, or OpenAI's."""
        known: dict[str, Any] = dict(Model.generate.__kwdefaults__ or {})
        for name in ("stream", "n"):
            del known[name]
        files = {name: value for name, value in self.model.defaults.items() if name in _SAMPLED}
        given = {name: value for name in _GIVEN if (value := getattr(request, name)) is not None}
        return {
            **known,
            "temperature": 1.0,
            **files,
            **given,
            "n": request.n or 1,
            "seed": secrets.randbits(31) if request.seed is None else request.seed % 2**63,
            "stop": request.stop or (),
            "ignore_eos": bool(request.ignore_eos),
            "logit_bias": _bias_of(request.logit_bias),
        }


def _bias_of(given: Mapping[str, float] | None) -> dict[int, float]:
    try:
        return {int(token): bias for token, bias in (given or {}).items()}
    except ValueError:
        raise RequestError(
            f"logit_bias must name tokens by their numbers, got {[*(given or ())]!r:.80}",
            param="logit_bias",
        ) from None


async def in_thread(function: Callable[[], _Result], threads: Executor | None = None) -> _Result:
    """Call a function in another thread, where what is wrong is what the client has sent."""
    try:
        return await asyncio.get_running_loop().run_in_executor(threads, function)
    except (ValueError, TypeError, TensorOpsError) as error:
        raise RequestError(str(error)) from error
    except RecursionError:
        raise RequestError("the request is nested too deeply") from None


def new_id(prefix: str) -> str:
    """Return a name that nothing else has."""
    return f"{prefix}-{uuid.uuid4().hex}"


def usage_of(completions: Sequence[Completion], num_prompts: int = 1) -> dict[str, Any]:
    """Return how many tokens were read and written, where `n` answers belong to each prompt."""
    of_prompts = completions[:: max(len(completions) // num_prompts, 1)]
    prompt = sum(len(each.prompt_tokens) for each in of_prompts)
    written = sum(len(each.tokens) for each in completions)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": written,
        "total_tokens": prompt + written,
        "prompt_tokens_details": {"cached_tokens": sum(each.shared_tokens for each in of_prompts)},
    }


def token_text(tokenizer: Tokenizer, token: int) -> bytes:
    """Return what a token writes; of a special one, or one without a name, what stands for it."""
    if token not in tokenizer:
        return f"<[{token}]>".encode()
    found = tokenizer.token_bytes(token)
    return tokenizer.token(token).encode() if found is None else found
