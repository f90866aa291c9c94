"""Bodies, streams of events, and clients that go away, over ASGI."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tensor_ops_decode.serving.errors import RequestError

__all__ = ["LAST", "EventStream", "Json", "event", "read_body", "unless_disconnected"]

_Result = TypeVar("_Result")
# How often a stream without news says that it is alive: proxies close connections that are silent.
_SECONDS_OF_SILENCE = 15.0
# For how long a client may send its body.
_SECONDS_OF_BODY = 60.0
# The last event of a stream.
LAST = b"data: [DONE]\n\n"


class Json(Response):
    """A value as JSON."""

    media_type = "application/json"

    def __init__(
        self, value: Any, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(msgspec.json.encode(value), status, headers)


def event(value: Any, name: str | None = None) -> bytes:
    """Return a server-sent event."""
    head = b"" if name is None else b"event: " + name.encode() + b"\n"
    return head + b"data: " + msgspec.json.encode(value) + b"\n\n"


async def read_body(request: Request, most_bytes: int) -> bytes:
    """Return the body of a request.

    Raises
    ------
    RequestError
        If it is longer than so many bytes, or does not come.
    """
    too_long = RequestError(f"the body is longer than {most_bytes} bytes", 413)
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > most_bytes:
        raise too_long
    body = bytearray()
    try:
        async with asyncio.timeout(_SECONDS_OF_BODY):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most_bytes:
                    raise too_long
    except TimeoutError:
        raise RequestError(f"the body took longer than {_SECONDS_OF_BODY:.0f} s", 408) from None
    return bytes(body)


async def unless_disconnected(receive: Receive, work: Coroutine[Any, Any, _Result]) -> _Result:
    """Return what a coroutine does, whose body has been read; cancel it if the client goes away.

    Raises
    ------
    ClientDisconnect
        If the client has gone.
    """

    async def disconnected() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    both: tuple[Coroutine[Any, Any, Any], ...] = work, disconnected()
    tasks = [asyncio.create_task(each) for each in both]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not tasks[0].done():
            raise ClientDisconnect
        result: _Result = tasks[0].result()
        return result
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class EventStream(Response):
    """A response of server-sent events, up to the last one or until the client goes away.

    `close` is called in the end, whether any event was sent or not.
    """

    def __init__(self, events: AsyncGenerator[bytes, None], close: Callable[[], None]) -> None:
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(None, 200, headers, "text/event-stream")
        del self.headers["content-length"]
        self._events, self._close = events, close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""

        async def send_piece(piece: bytes, *, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": piece, "more_body": more})

        async def send_all() -> None:
            start = {"type": "http.response.start", "status": self.status_code}
            await send({**start, "headers": self.raw_headers})
            silence = asyncio.create_task(break_silence())
            try:
                async for piece in self._events:
                    await send_piece(piece)
            finally:
                silence.cancel()
            await send_piece(b"", more=False)

        async def break_silence() -> None:
            with contextlib.suppress(OSError):
                while True:
                    await asyncio.sleep(_SECONDS_OF_SILENCE)
                    await send_piece(b": waiting\n\n")

        try:
            async with contextlib.aclosing(self._events):
                with contextlib.suppress(ClientDisconnect, OSError):
                    await unless_disconnected(receive, send_all())
        finally:
            self._close()
