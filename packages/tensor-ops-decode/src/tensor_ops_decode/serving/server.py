"""A server: a socket, uvicorn, and the application of one model."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
import socket
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import uvicorn

from tensor_ops import TensorOpsError
from tensor_ops.extension import ProgressBar
from tensor_ops_decode.commands.options import show_bytes
from tensor_ops_decode.generation.model import describe
from tensor_ops_decode.serving.application import ServerLimits, application

__all__ = ["listening", "run_server"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run_server(
    arguments: argparse.Namespace, name: str, api_key: str | None, options: dict[str, Any]
) -> None:
    """Serve a model until a signal comes, by the arguments of the command."""
    limits = ServerLimits(
        arguments.max_waiting, int(arguments.max_body_mib * 2**20), arguments.max_seconds
    )
    with (
        listening(arguments.host, arguments.port) as listener,
        describe(arguments.model, arguments.backend, **options) as model,
    ):
        model.tokenizer.check_exists()
        with ProgressBar(sys.stderr) as bar:
            model.kernel.compile(show_bytes(bar, "packing"))
        app = application(
            model, name, api_key=api_key, cors_origins=arguments.cors_origin, limits=limits
        )
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=arguments.access_log,
            server_header=False,
            ws="none",
            lifespan="on",
        )
        logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
        logging.getLogger("uvicorn.access").setLevel(logging.INFO)
        logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns of clients that went away
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        print(
            f"{name} on {model.kernel.backend}: http://{shown}:{port}/v1",
            file=sys.stderr,
            flush=True,
        )
        with _ends_quietly():
            _Server(config).run(sockets=[listener])


class _Server(uvicorn.Server):
    """A server that finishes what runs at the first signal, and drops it at the second."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take a signal."""
        if not self.should_exit:
            super().handle_exit(sig, frame)
            return
        with contextlib.suppress(RuntimeError):  # the event loop has ended
            asyncio.get_running_loop().call_soon_threadsafe(self._drop)

    def _drop(self) -> None:
        """Close all connections, so that requests end as they do when clients go away."""
        for connection in list(self.server_state.connections):
            connection.transport.abort()


@contextlib.contextmanager
def _ends_quietly() -> Iterator[None]:
    """Let nothing happen at signals, which uvicorn raises again when what ran has finished."""
    before = {each: signal.signal(each, lambda *_: None) for each in _SIGNALS}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens, before a model is opened for nothing."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise TensorOpsError(
            f"cannot listen at {host}, port {port}: {error.strerror or error}; "
            "give another --host or --port"
        ) from None
    # The sockets of connections inherit it. The event loop sets it only where sockets are made for
    # this protocol by name; without it the end of a response waits 40 ms for the client.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
