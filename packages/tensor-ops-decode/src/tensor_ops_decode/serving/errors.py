"""What a client is told of a request that has no answer, as OpenAI's clients read it."""

from __future__ import annotations

from typing import Any

__all__ = ["BusyError", "RequestError"]


class RequestError(Exception):
    """A request that has no answer, and the status that says so.

    `param` is the field that is wrong, and `code` the word by which clients know some errors.
    """

    def __init__(
        self, message: str, status: int = 400, *, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code = status, param, code

    @property
    def headers(self) -> dict[str, str]:
        """What the response has beside its body."""
        return {}

    def body(self) -> dict[str, Any]:
        """Return the body of the response."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        said = {"message": str(self), "type": kind, "param": self.param, "code": self.code}
        return {"error": said}


class BusyError(RequestError):
    """A request that comes when as many as may wait do so already."""

    def __init__(self, message: str) -> None:
        super().__init__(message, 429, code="rate_limit_exceeded")

    @property
    def headers(self) -> dict[str, str]:
        return {"retry-after": "1"}
