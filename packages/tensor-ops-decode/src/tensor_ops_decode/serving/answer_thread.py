"""The thread that runs a model's steps for all clients, and what it tells the event loop."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tensor_ops_decode.serving.errors import BusyError, RequestError

if TYPE_CHECKING:
    from tensor_ops_decode.completion import Completion, TokenLogprob
    from tensor_ops_decode.generation.answer import Answer
    from tensor_ops_decode.generation.model import Model

__all__ = ["AnswerThread", "Progress", "Reply"]

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")


class Progress(NamedTuple):
    """How far an answer has come since the last time; the last time with its completion."""

    number: int
    text: str
    logprobs: list[TokenLogprob]
    completion: Completion | None


def _failed(failure: Exception) -> RequestError:
    return RequestError(f"the model has failed: {failure}", 503)


class Reply:
    """The answers to a request, as the thread hands them to the event loop.

    `take` is their ``stream``. Texts are kept until the client has read those before, so that a
    slow one holds up nobody. The answers may take `most_seconds`.
    """

    def __init__(self, most_seconds: float) -> None:
        self.answers: list[Answer] = []
        self.seconds_to_first: float | None = None
        self._most_seconds, self._start = most_seconds, time.perf_counter()
        # What the thread alone uses: texts that the event loop has not got yet, and how many
        # log-probabilities it has got, -1 where the answer has ended; both by answer.
        self._texts: dict[int, str] = {}
        self._num_logprobs: dict[int, int] = {}
        # What the event loop alone uses.
        self._num_left = 0
        self._arrived: deque[Progress] = deque()
        self._error: Exception | None = None
        self._has_news = asyncio.Event()

    def take(self, index: int, text: str) -> None:
        """Note a piece of an answer's text."""
        self._texts[index] = self._texts.get(index, "") + text

    def begin(self, answers: list[Answer]) -> None:
        """Note the answers, before any of them is begun."""
        self.answers, self._num_left = answers, len(answers)

    def news(self) -> list[Progress]:
        """Return how far the answers have come since the last call, in the thread."""
        found = []
        for answer in self.answers:
            text = self._texts.pop(answer.number, "")
            seen = self._num_logprobs.get(answer.number, 0)
            if seen < 0:
                continue
            logprobs = [] if answer.logprobs is None else answer.logprobs[seen:]
            has_ended = answer.finish_reason is not None
            if text or logprobs or has_ended:
                ended = answer.completion() if has_ended else None
                found.append(Progress(answer.number, text, logprobs, ended))
                self._num_logprobs[answer.number] = -1 if has_ended else seen + len(logprobs)
        return found

    def arrive(self, progress: list[Progress], error: Exception | None = None) -> None:
        """Give the event loop what is new."""
        if self.seconds_to_first is None:
            self.seconds_to_first = time.perf_counter() - self._start
        self._arrived.extend(progress)
        self._error = self._error or error
        self._has_news.set()

    def too_long(self) -> RequestError:
        """Return the error of answers that take too long."""
        words = f"the answer took longer than the server's {self._most_seconds:g} s"
        return RequestError(words, 504)

    async def progress(self) -> AsyncIterator[Progress]:
        """Yield what has come of the answers, until all have ended.

        Raises
        ------
        RequestError
            If the model failed, or the answers took too long.
        """
        while self._num_left:
            while not self._arrived:
                if self._error is not None:
                    raise self._error
                self._has_news.clear()
                left = self._start + self._most_seconds - time.perf_counter()
                try:
                    await asyncio.wait_for(self._has_news.wait(), left)
                except TimeoutError:
                    raise self.too_long() from None
            each = self._arrived.popleft()
            if each.completion is not None:
                self._num_left -= 1
                error = self.answers[each.number].error
                if error is not None:
                    raise RequestError(f"answer {each.number}: {error}", 500)
            yield each


class AnswerThread:
    """Takes requests from an event loop, and runs the steps of all of them in a thread.

    Requests join and leave between calls of the kernel, each of which is a step, or as many as take
    30 ms. `most_waiting` is how many answers may wait for a place among those that the model
    computes at the same time.
    """

    def __init__(self, model: Model, most_waiting: int) -> None:
        self._running, self._kernel = model.answering.running(), model.kernel
        self._lock = model.answering.lock
        self.most_answers = model.kernel.program.limits.max_requests + most_waiting
        self._most_waiting = most_waiting
        self._condition = threading.Condition()
        # Both queues are filled by the event loop and emptied by the thread, under the condition:
        # all commands between two steps, and one call.
        self._commands: deque[Callable[[], None]] = deque()
        self._calls: deque[Callable[[], None]] = deque()
        # Replies with answers that have not ended: the thread's list, and the event loop's numbers
        # of these answers.
        self._replies: list[Reply] = []
        self._submitted: dict[Reply, int] = {}
        self._is_closing = False
        self._failure: Exception | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="tensor-ops-serve", daemon=True)

    def start(self) -> None:
        """Begin, for the event loop that calls this."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def close(self) -> None:
        """End the thread; answers that have not ended are dropped."""
        self._is_closing = True
        self._command(lambda: None)
        await asyncio.to_thread(self._thread.join)

    @property
    def failure(self) -> Exception | None:
        """Why no request can be answered any more, if so."""
        return self._failure

    @property
    def num_running(self) -> int:
        """How many answers take part in steps."""
        return self._running.num_running

    @property
    def num_waiting(self) -> int:
        """How many answers wait for a place."""
        return max(self.num_answers - self._running.num_running, 0)  # some may be leaving

    @property
    def num_answers(self) -> int:
        """How many answers have not ended."""
        return sum(self._submitted.values())

    def check_room(self, count: int) -> None:
        """Raise an error unless so many answers may join."""
        if self._failure is not None:
            raise _failed(self._failure)
        if count > self.most_answers:
            raise RequestError(
                f"the request asks for {count} answers, and the server computes or keeps waiting "
                f"at most {self.most_answers}",
                param="n",
            )
        if self.num_answers + count > self.most_answers:
            raise BusyError(
                f"{self.num_answers} answers are computed or wait already; try again later"
            )

    def submit(self, reply: Reply) -> None:
        """Let the answers of a reply join.

        Raises
        ------
        BusyError
            If as many as may wait do so.
        """
        self.check_room(len(reply.answers))
        self._submitted[reply] = len(reply.answers)

        def join() -> None:
            self._replies.append(reply)
            for answer in reply.answers:
                self._running.add(answer)

        self._command(join)

    def leave(self, reply: Reply) -> None:
        """Forget a reply, and cancel those of its answers that have not ended."""
        if self._submitted.pop(reply, None) is None:
            return

        def leave() -> None:
            if reply in self._replies:
                self._replies.remove(reply)
                with self._lock:
                    for answer in reply.answers:
                        self._running.cancel(answer)

        self._command(leave)

    async def call(self, function: Callable[[], _Result]) -> _Result:
        """Call a function that uses the kernel, between its steps, and return the result.

        No two are called without steps between them, if there are answers to be computed.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_Result] = loop.create_future()

        def settle(set_it: Callable[[Any], None], value: Any) -> None:
            if not future.done():
                set_it(value)

        def run() -> None:
            if future.cancelled():
                return
            try:
                if self._failure is not None:
                    raise _failed(self._failure)
                result = function()
            except Exception as error:
                loop.call_soon_threadsafe(settle, future.set_exception, error)
            else:
                loop.call_soon_threadsafe(settle, future.set_result, result)

        self.check_room(0)
        if len(self._calls) > self._most_waiting:
            raise BusyError(f"{len(self._calls)} requests for embeddings wait; try again later")
        with self._condition:
            self._calls.append(run)
            self._condition.notify()
        return await future

    def _command(self, command: Callable[[], None]) -> None:
        with self._condition:
            self._commands.append(command)
            self._condition.notify()

    def _run(self) -> None:
        try:
            while not self._is_closing:
                self._take_commands()
                self._running.advance()
                self._tell()
        except Exception as error:  # of the model as a whole: each request finds its own
            _log.exception("the model has failed; the server answers no more requests")
            self._failure = error
            self._refuse(error)
        finally:
            self._running.close()

    def _refuse(self, failure: Exception) -> None:
        """Tell all requests of the failure, with those that were on their way to the thread."""
        while True:
            self._send([(reply, [], _failed(failure)) for reply in self._replies])
            self._replies.clear()
            if self._is_closing:
                return
            self._take_commands()

    def _take_commands(self) -> None:
        """Do what the event loop has asked for; wait for it where no answer is to be computed."""
        with self._condition:
            while not self._commands and not self._calls and not self._replies:
                self._condition.wait()
            commands = [*self._commands]
            self._commands.clear()
            can_call = bool(self._calls) and self._has_room()
            self._running.is_held = bool(self._calls) and not can_call
            if can_call:
                commands.append(self._calls.popleft())
        for command in commands:
            command()

    def _has_room(self) -> bool:
        """Return whether what a call computes has room beside the answers.

        Without, the call would run their steps until there is, of which no client would be told.
        """
        if self._failure is not None or not self._running.num_running:
            return True
        return self._kernel.has_room(self._kernel.program.limits.longest)

    def _tell(self) -> None:
        """Tell the event loop how far the answers have come."""
        news = [(reply, found, None) for reply in self._replies if (found := reply.news())]
        if news:
            self._replies = [
                reply
                for reply in self._replies
                if any(answer.finish_reason is None for answer in reply.answers)
            ]
            self._send(news)

    def _send(self, news: list[tuple[Reply, list[Progress], Any]]) -> None:
        def deliver() -> None:
            for reply, progress, error in news:
                reply.arrive(progress, error)
                num_ended = sum(each.completion is not None for each in progress)
                if reply in self._submitted:  # the client is still there
                    self._submitted[reply] -= num_ended

        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(deliver)
