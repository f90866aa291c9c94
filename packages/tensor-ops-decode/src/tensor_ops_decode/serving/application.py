"""The application: which path answers which request, who may ask, and what is counted.

Tested by tests/decode/serving.
"""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from tensor_ops_decode.serving.answer_thread import AnswerThread, Reply
from tensor_ops_decode.serving.chat import Chat
from tensor_ops_decode.serving.completions import Completions
from tensor_ops_decode.serving.embeddings import embeddings
from tensor_ops_decode.serving.errors import RequestError
from tensor_ops_decode.serving.generation import ServedModel
from tensor_ops_decode.serving.http import EventStream, Json, event, read_body, unless_disconnected
from tensor_ops_decode.serving.metrics import Metrics
from tensor_ops_decode.serving.protocol import (
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
    ResponsesRequest,
    decoded,
)
from tensor_ops_decode.serving.responses import Responses

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from tensor_ops_decode.generation.model import Model

__all__ = ["ServerLimits", "application"]

_log = logging.getLogger(__name__)
_OPEN_PATHS = ("/health",)


@dataclass(frozen=True)
class ServerLimits:
    """What clients may ask for.

    Attributes
    ----------
    most_waiting : int
        How many answers may wait for a place among those that are computed at the same time.
    most_body_bytes : int
        How long a request may be.
    most_seconds : float
        How long the answer to a request may take, with its waiting.
    """

    most_waiting: int = 64
    most_body_bytes: int = 8 << 20
    most_seconds: float = 3600.0


class _Answers(Protocol):
    """The answers to a request for text."""

    async def begin(self) -> Reply: ...

    async def whole(self, reply: Reply) -> dict[str, Any]: ...

    def events(self, reply: Reply) -> AsyncGenerator[bytes, None]: ...


def application(
    model: Model,
    name: str,
    *,
    api_key: str | None = None,
    cors_origins: Sequence[str] = (),
    limits: ServerLimits | None = None,
) -> Starlette:
    """Return an ASGI application that answers for a model, which is open while it runs.

    Parameters
    ----------
    model : Model
    name : str
        By which clients know it.
    api_key : str, optional
        What requests must have as ``Authorization: Bearer``.
    cors_origins : sequence of str, optional
        Sites whose pages may ask, or ``"*"``.
    limits : ServerLimits, optional
    """
    limits = limits or ServerLimits()
    metrics = Metrics()
    thread = AnswerThread(model, limits.most_waiting)
    metrics.watch(lambda: thread.num_running, lambda: thread.num_waiting)
    served = ServedModel(model, name, thread, metrics, limits.most_seconds)
    paths = _Paths(served, limits)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        thread.start()
        try:
            yield
        finally:
            await thread.close()

    routes = paths.routes()
    middleware = [Middleware(_Counted, metrics, [route.path for route in routes])]
    if cors_origins:
        allowed: dict[str, Any] = {"allow_methods": ["*"], "allow_headers": ["*"]}
        middleware.append(Middleware(CORSMiddleware, allow_origins=[*cors_origins], **allowed))
    if api_key is not None:
        middleware.append(Middleware(_WithKey, api_key))
    errors: dict[Any, Any] = {
        RequestError: _on_request_error,
        HTTPException: _on_http_exception,
        RecursionError: _on_recursion,
        ClientDisconnect: _on_disconnect,
        Exception: _on_error,
    }
    return Starlette(
        routes=routes, middleware=middleware, exception_handlers=errors, lifespan=lifespan
    )


class _Paths:
    """What answers each path."""

    def __init__(self, served: ServedModel, limits: ServerLimits) -> None:
        self._served, self._limits = served, limits

    def routes(self) -> list[Route]:
        return [
            Route("/health", self.health),
            Route("/metrics", self.metrics),
            Route("/v1/models", self.models),
            Route("/v1/models/{name:path}", self.one_model),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            Route("/v1/completions", self.completions, methods=["POST"]),
            Route("/v1/embeddings", self.embeddings, methods=["POST"]),
            Route("/v1/responses", self.responses, methods=["POST"]),
        ]

    async def health(self, _: Request) -> Response:
        failure = self._served.thread.failure
        if failure is not None:
            return Json({"status": "failed", "reason": str(failure)}, 503)
        return Json({"status": "ok"})

    async def metrics(self, _: Request) -> Response:
        text = self._served.metrics.text()
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def models(self, _: Request) -> Response:
        return Json({"object": "list", "data": [self._model()]})

    async def one_model(self, request: Request) -> Response:
        self._served.check_name(request.path_params["name"])
        return Json(self._model())

    def _model(self) -> dict[str, Any]:
        served = self._served
        kernel = served.model.kernel
        return {
            "id": served.name,
            "object": "model",
            "created": served.created,
            "owned_by": "tensor-ops",
            "max_model_len": kernel.program.limits.longest,
            "backend": kernel.backend,
        }

    async def chat(self, request: Request) -> Response:
        given = await self._read(request, ChatRequest)
        return await self._answered(request, Chat(self._served, given), given.stream)

    async def completions(self, request: Request) -> Response:
        given = await self._read(request, CompletionRequest)
        return await self._answered(request, Completions(self._served, given), given.stream)

    async def responses(self, request: Request) -> Response:
        given = await self._read(request, ResponsesRequest)
        return await self._answered(request, Responses(self._served, given), given.stream)

    async def embeddings(self, request: Request) -> Response:
        given = await self._read(request, EmbeddingRequest)
        work = embeddings(self._served, given)
        return Json(await unless_disconnected(request.receive, work))

    async def _read(self, request: Request, kind: Any) -> Any:
        return decoded(await read_body(request, self._limits.most_body_bytes), kind)

    async def _answered(
        self, request: Request, answers: _Answers, streams: bool | None
    ) -> Response:
        """Return the response of answers, which are cancelled when the client goes away."""
        if streams:
            reply = await unless_disconnected(request.receive, answers.begin())
            events = _to_their_end(answers.events(reply))
            return EventStream(events, lambda: self._served.end(reply))

        async def whole() -> dict[str, Any]:
            reply = await answers.begin()
            try:
                return await answers.whole(reply)
            finally:
                self._served.end(reply)

        return Json(await unless_disconnected(request.receive, whole()))


async def _to_their_end(events: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield events, of which an error is the last one."""
    async with aclosing(events):
        try:
            async for each in events:
                yield each
        except RequestError as error:
            yield event(error.body())
        except Exception:
            _log.exception("an answer could not be written")
            yield event(_INTERNAL.body())


_INTERNAL = RequestError("the server could not answer; its log says why", 500)


async def _on_request_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return Json(error.body(), error.status, error.headers)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = f"{request.method} {request.url.path}: {error.detail}"
    return Json(RequestError(words, error.status_code).body(), error.status_code, error.headers)


async def _on_recursion(_: Request, __: Exception) -> Response:
    error = RequestError("the request is nested too deeply")
    return Json(error.body(), error.status)


async def _on_disconnect(_: Request, __: Exception) -> Response:
    return Response(status_code=499)  # which nobody reads, but the metrics count


async def _on_error(_: Request, __: Exception) -> Response:
    return Json(_INTERNAL.body(), 500)


class _Counted:
    """Counts the requests of each path, and how long they took."""

    def __init__(self, app: ASGIApp, metrics: Metrics, paths: Sequence[str]) -> None:
        self._app, self._metrics, self._paths = app, metrics, frozenset(paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.perf_counter(), 499

        async def send_and_note(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        except Exception:  # of which the client is told behind this
            status = 500 if status == 499 else status
            raise
        finally:
            path = scope["path"] if scope["path"] in self._paths else "other"
            self._metrics.count_request(path, status, time.perf_counter() - start)


class _WithKey:
    """Lets requests pass that have the key, and those that ask how the server is."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app, self._key = app, key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in _OPEN_PATHS:
            given = dict(scope["headers"]).get(b"authorization", b"")
            scheme, _, key = given.partition(b" ")
            if not hmac.compare_digest(key, self._key) or scheme.lower() != b"bearer":
                words = "the request needs the server's key, as Authorization: Bearer KEY"
                error = RequestError(words, 401, code="invalid_api_key")
                response = Json(error.body(), 401, {"www-authenticate": "Bearer"})
                await response(scope, receive, send)
                return
        await self._app(scope, receive, send)
