"""How long the steps of a kernel take, and how fast its threads read memory."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import AbstractContextManager
from typing import Any

from tensor_ops import BackendError
from tensor_ops_decode.serving.requests import Requests
from tensor_ops_decode.serving.step_profile import StepProfile

__all__ = ["KernelMeasurements"]


class KernelMeasurements:
    """What a kernel measures of itself, if its executor can; others run steps only."""

    _executable: Any

    @property
    @abstractmethod
    def backend(self) -> str:
        """The backend that runs the kernel."""

    @abstractmethod
    def _in_use(self) -> AbstractContextManager[Requests]:
        """Hold the lock and give the requests, if the kernel can run them."""

    @abstractmethod
    def _in_step(self) -> AbstractContextManager[Requests]:
        """Hold the lock and give the requests, with the default one if none was added."""

    def profile(self) -> StepProfile:
        """Run one step as a call does, and measure how long each node takes.

        Returns
        -------
        StepProfile

        Raises
        ------
        CapacityError, RuntimeError
            As of a call.
        BackendError
            If the backend's executor cannot measure.

        Examples
        --------
        >>> import tensor_ops
        >>> with tensor_ops.PersistentKernel(backend="python") as kernel:
        ...     kernel.compile()
        ...     times = kernel.profile()
        ...     times.work.shape == (1, len(kernel.program.nodes))
        True
        """
        with self._in_use():
            self._require("profile")
            with self._in_step() as requests:
                return requests.profile()

    def read_bandwidth(self) -> float:
        """Return the bytes per second at which the threads read the weights, without computing.

        It bounds what decoding can reach: a step reads all weights, whatever it computes.

        Raises
        ------
        BackendError
            If the backend's executor cannot measure.

        Examples
        --------
        >>> import tensor_ops
        >>> with tensor_ops.PersistentKernel(backend="python") as kernel:
        ...     kernel.compile()
        ...     kernel.read_bandwidth() > 0
        True
        """
        with self._in_use():
            self._require("read_bandwidth")
            bandwidth: float = self._executable.read_bandwidth()
            return bandwidth

    def _require(self, method: str) -> None:
        """Raise a BackendError unless the executable has an optional method."""
        if not hasattr(self._executable, method):
            raise BackendError(
                f"the executor of backend {self.backend!r} has no {method}(); measure with "
                "backend='cpp' or 'python'"
            )
