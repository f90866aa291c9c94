"""A stream: the pieces of an answer's text, for loops that wait for them."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import TYPE_CHECKING

from tensor_ops_decode.errors import LogitsError
from tensor_ops_decode.generation.running_answers import completions_of

if TYPE_CHECKING:
    from tensor_ops_decode.completion import Completion
    from tensor_ops_decode.generation.answer import Answer
    from tensor_ops_decode.generation.running_answers import RunningAnswers

__all__ = ["TextStream"]


class TextStream:
    """The pieces of an answer's text as soon as they are certain; `Model.stream` makes one.

    It is an iterator and an asynchronous one, and a context manager of both kinds, at whose end the
    request is cancelled if the answer has not ended. So it is when nothing refers to the stream.
    Several threads may wait for its pieces, of which each goes to one.
    """

    def __init__(self, running: RunningAnswers, answer: Answer, pieces: deque[str]) -> None:
        self._completion: Completion | None = None
        self._errors: deque[LogitsError] = deque()  # one at most, behind the pieces
        self._running, self._answer, self._pieces = running, answer, pieces
        self._lock = threading.RLock()
        self._has_ended = False

    def __iter__(self) -> TextStream:
        return self

    def __next__(self) -> str:
        while True:
            self._wait()
            try:
                return self._pieces.popleft()
            except IndexError:  # another thread may have taken it
                if self._has_ended:
                    raise self._end(StopIteration) from None

    def __aiter__(self) -> TextStream:
        return self

    async def __anext__(self) -> str:
        while True:
            # What is cancelled while it waits has taken no piece.
            await asyncio.get_running_loop().run_in_executor(None, self._wait)
            try:
                return self._pieces.popleft()
            except IndexError:
                if self._has_ended:
                    raise self._end(StopAsyncIteration) from None

    @property
    def completion(self) -> Completion | None:
        """The whole answer, once its last piece has been taken."""
        return None if self._pieces else self._completion

    def close(self) -> None:
        """Cancel the request, if it has not ended, and drop the pieces that are left.

        A step that is running ends before that.
        """
        self._has_ended = True  # so that who waits for a piece leaves the lock after a step
        with self._lock:
            self._running.close()
            self._errors.clear()
            if self._pieces:
                self._completion = None
                self._pieces.clear()

    async def aclose(self) -> None:
        """Do what `close` does, without holding up the event loop."""
        await asyncio.get_running_loop().run_in_executor(None, self.close)

    def __enter__(self) -> TextStream:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    async def __aenter__(self) -> TextStream:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        self._running.abandon()

    def _wait(self) -> None:
        """Wait for a piece, or for the end of the answer."""
        with self._lock:
            while not self._pieces and not self._has_ended:
                self._advance()

    def _end(self, without_error: type[Exception]) -> Exception:
        """Return what is raised where no piece is left: once, the error that ended the answer."""
        try:
            return self._errors.popleft()
        except IndexError:
            return without_error()

    def _advance(self) -> None:
        try:
            if not self._running.advance():
                self._has_ended = True
                (self._completion,) = completions_of([self._answer])
        except LogitsError as error:  # all requests have ended
            self._errors.append(error)
        except BaseException:
            self._has_ended = True
            self._running.close()
            raise
