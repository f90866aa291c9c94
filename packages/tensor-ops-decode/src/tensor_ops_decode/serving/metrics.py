"""What a server counts, as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

if TYPE_CHECKING:
    from tensor_ops_decode.completion import Completion

__all__ = ["Metrics"]

_SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)


class Metrics:
    """The counters of one server."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        given: dict[str, Any] = {"registry": self._registry, "namespace": "tensor_ops"}
        self._requests = Counter(
            "requests", "Requests that have ended", ["path", "status"], **given
        )
        self._tokens = Counter(
            "tokens",
            "Tokens of prompts, those of them found in the caches, generated ones, and those of "
            "them that had been guessed",
            ["kind"],
            **given,
        )
        self._first = Histogram(
            "first_token_seconds",
            "Seconds from a request's arrival to the first piece of its answer",
            buckets=_SECONDS,
            **given,
        )
        self._whole = Histogram(
            "request_seconds",
            "Seconds from a request's arrival to its end",
            ["path"],
            buckets=_SECONDS,
            **given,
        )
        self._running = Gauge("running_answers", "Answers that take part in steps", **given)
        self._waiting = Gauge("waiting_answers", "Answers that wait for a place", **given)

    def watch(self, running: Callable[[], int], waiting: Callable[[], int]) -> None:
        """Read the numbers of answers from these functions."""
        self._running.set_function(running)
        self._waiting.set_function(waiting)

    def count_request(self, path: str, status: int, seconds: float) -> None:
        """Note a request that has ended."""
        self._requests.labels(path, str(status)).inc()
        self._whole.labels(path).observe(seconds)

    def count_first(self, seconds: float) -> None:
        """Note the first piece of an answer."""
        self._first.observe(seconds)

    def count_tokens(self, completion: Completion) -> None:
        """Note the tokens of an answer that has ended."""
        for kind, count in (
            ("prompt", len(completion.prompt_tokens)),
            ("shared", completion.shared_tokens),
            ("generated", len(completion.tokens)),
            ("accepted", completion.accepted_tokens),
        ):
            self._tokens.labels(kind).inc(count)

    def text(self) -> bytes:
        """Return all numbers in Prometheus' format."""
        found: bytes = generate_latest(self._registry)
        return found
