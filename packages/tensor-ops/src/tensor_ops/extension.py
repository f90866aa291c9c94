"""The interface for packages that build on tensor_ops: plug-ins, bindings, other wheels.

Everything here is public and keeps its meaning within a minor version; other modules of tensor_ops
are its own.

>>> from tensor_ops import extension
>>> route = extension.Route(extension.OPS["silu"], "cpu")
>>> function = extension.function_of(route, "float32", "float32")
>>> callable(function)
True
"""

from collections.abc import Callable, Hashable
from typing import Any

from tensor_ops import backends, machine
from tensor_ops.backends import FAILURES, Backend, one_line, runs_programs
from tensor_ops.backends.contract import Capabilities
from tensor_ops.backends.names import (
    AUTO,
    AUTOMATIC,
    CPU,
    DEFAULT_PRIORITY,
    did_you_mean,
    not_a_name,
)
from tensor_ops.config import selection, state
from tensor_ops.config.selection import Choice, Decision, Step, choose
from tensor_ops.dispatch.foreign import numpy_view
from tensor_ops.dispatch.resolution import Route
from tensor_ops.errors import warn_caller
from tensor_ops.files.output import figure_class_for, whole_file
from tensor_ops.files.regular import WrongFileError, open_regular
from tensor_ops.files.trusted import check_owner
from tensor_ops.op import OPS, Op
from tensor_ops.op.accuracy import Bound, measure
from tensor_ops.op.arguments import DTYPES
from tensor_ops.op.checks import check_outputs, check_values
from tensor_ops.progress import ProgressBar
from tensor_ops.timing import format_time

__all__ = [
    "AUTO",
    "AUTOMATIC",
    "CPU",
    "DEFAULT_PRIORITY",
    "DTYPES",
    "FAILURES",
    "OPS",
    "Backend",
    "Bound",
    "Capabilities",
    "Choice",
    "Decision",
    "Op",
    "ProgressBar",
    "Route",
    "Step",
    "WrongFileError",
    "check_outputs",
    "check_owner",
    "check_values",
    "choose",
    "choose_backend",
    "decision",
    "did_you_mean",
    "exchanging_finder",
    "exchanging_function",
    "figure_class_for",
    "format_time",
    "function_of",
    "load_backend",
    "machine",
    "measure",
    "not_a_name",
    "numpy_view",
    "one_line",
    "open_regular",
    "runs_programs",
    "warn_caller",
    "whole_file",
]


def decision(backend: str | None = None, source: str = "") -> Decision:
    """Return which backends may run here, in which order, and who said so.

    Parameters
    ----------
    backend : str, optional
        A backend that the call names.
    source : str, optional
        How it names it, in words, as in ``"backend= of create_session()"``.

    Raises
    ------
    ConfigError
        If no backend has that name.
    BackendError
        If another one is forced.

    Examples
    --------
    >>> decision("python", "an example").candidates
    ('python',)
    """
    table = state.current() if backend is None else state.table_for(backend, source)
    return table.decision


def choose_backend(decision: Decision, reason: Callable[[Backend], str | None]) -> Choice:
    """Return the choice for work that is no op, among the candidates of a decision.

    Parameters
    ----------
    decision : Decision
    reason : callable
        Returns why a backend that is available cannot do the work, None if it can.

    Raises
    ------
    ConfigError
        If a setting of a candidate's own is wrong.

    Examples
    --------
    >>> choose_backend(decision("python", "an example"), lambda backend: None).backend
    'python'
    """

    def why_not(name: str) -> str | None:
        unavailable = backends.reason_against(name)
        return reason(backends.load(name)) if unavailable is None else unavailable

    return selection.choose_for(decision, why_not, backends.kind_of_device)


def function_of(route: Route, dtype: Hashable, name: str) -> Callable[..., Any] | None:
    """Return the function of the backend that runs an op here.

    Parameters
    ----------
    route : Route
        What is asked for, made once.
    dtype : hashable
        The dtype of the arrays in their own library; what is found is kept for it.
    name : str
        The name of that dtype, such as ``float32``.

    Returns
    -------
    callable or None
        None if the route exchanges arrays and the backend does not take them as they are.

    Raises
    ------
    BackendUnavailableError
        If a backend is forced or named and unavailable.
    BackendError
        If no backend can run it.
    """
    return route.function(state.current(), dtype, name)


def load_backend(name: str) -> Backend:
    """Return what is known of a backend, imported and probed: its module, its capabilities.

    Examples
    --------
    >>> load_backend("python").capabilities.devices
    ('cpu',)
    """
    return backends.load(name)


def exchanging_function(op: Op, name_of: Callable[[str, str, Any], str]) -> Callable[..., Any]:
    """Return a function that gives CPU arrays of another library to a backend as they are.

    It takes as little time on the way as can be. It raises TypeError, ValueError or LookupError
    before computing where the backend does not take them, so that the caller may go another way.

    Parameters
    ----------
    op : Op
    name_of : callable
        Returns the name of an array's dtype, such as ``float32``, of the op's name, the name of its
        first argument and that array; it raises TypeError for a dtype that no op takes.
    """
    find = exchanging_finder(op, name_of)

    def call(x: Any, *rest: Any) -> Any:
        return find(x.dtype, x)(x, *rest)

    return call


def exchanging_finder(
    op: Op, name_of: Callable[[str, str, Any], str]
) -> Callable[[Hashable, Any], Callable[..., Any]]:
    """Return what finds the function that `exchanging_function` calls, of the first array's dtype.

    It takes the dtype and the array, and raises TypeError where the backend takes no such arrays.
    The function is right until the configuration changes, so that it is asked before every call.

    Parameters
    ----------
    op : Op
    name_of : callable
        As `exchanging_function` takes it.
    """
    route = Route(op, CPU, in_place=True, exchanges_arrays=True)
    key, context_name, current = route.key, state.context_name.get, state.current

    def find(dtype: Hashable, x: Any) -> Callable[..., Any]:
        try:
            # `state.current` written out: the call takes as long as these look-ups.
            table = state.tables[None] if context_name() is None else current()
            function = table.functions[key][dtype]
        except LookupError:
            function = route.function(current(), dtype, name_of(op.name, op.first, x))
        if function is None:
            raise TypeError(f"{op.name}: the backend takes NumPy arrays only")
        return function

    return find
