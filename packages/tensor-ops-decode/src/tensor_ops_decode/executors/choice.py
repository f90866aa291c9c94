"""Which backend runs a program, by the selection of tensor_ops, and why not the others.

A backend runs programs if its ``CAPABILITIES`` say so and its module has ``supports_program`` and
``compile_program``. The executor of the backend ``python`` is in this package.
"""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tensor_ops import BackendError, BackendFallbackWarning, BackendUnavailableError
from tensor_ops.extension import (
    AUTOMATIC,
    FAILURES,
    Backend,
    Decision,
    Step,
    choose_backend,
    decision,
    load_backend,
    one_line,
    runs_programs,
    warn_caller,
)
from tensor_ops_decode import reference

__all__ = ["Executor", "ExecutorChoice", "NoExecutorError"]

_RUNS_NONE = "it computes single ops and runs no programs"


class NoExecutorError(BackendUnavailableError, ValueError):
    """No backend that may run a program can; the message gives the reason of each."""


@dataclass(frozen=True)
class Executor:
    """A backend that runs programs, the level that decided on it, and all that were considered.

    Its module has ``compile_program``. The steps say why backends were passed over.
    """

    backend: str
    module: Any
    decided_by: str
    mode: str
    steps: tuple[Step, ...]


class ExecutorChoice:
    """The choice of a backend for programs, as it was asked for at one place of the code.

    Without a `backend`, context, default, environment and file decide. The fallback backends are
    tried after it, in order. Raises ConfigError if no backend has one of the names.

    `refusal` returns why the caller cannot use a backend, of a name and with a module, None if it
    can. Its last argument is whether options have a say: they do where the caller names what to
    fall back on; elsewhere the executor itself says what it does not take. With `among_ranks` it
    must run shards, whose ranks exchange values.
    """

    def __init__(
        self,
        backend: str | None = None,
        fallback_backends: Iterable[str] = (),
        refusal: Callable[[str, Any, bool], str | None] = lambda name, module, options: None,
        *,
        among_ranks: bool = False,
    ) -> None:
        is_name = isinstance(fallback_backends, str)
        is_list = not is_name and isinstance(fallback_backends, Iterable)
        names = list(fallback_backends) if is_list else []
        if not is_list or not all(isinstance(name, str) for name in names):
            advice = f"; write [{fallback_backends!r}]" if is_name else ""
            raise TypeError(
                f"fallback_backends must be a list of names, got {fallback_backends!r:.80}{advice}"
            )
        self._refusal, self._among_ranks = refusal, among_ranks
        self._found: str | None = None
        # The configuration in force now counts, though the program may be known only later.
        self._ways = [_way(backend, "backend= of PersistentKernel()")]
        self._ways += [_way(name, "fallback_backends= of PersistentKernel()") for name in names]

    def executor(self, program: str | None = None) -> Executor:
        """Return the first executor that can run a program, or that there is if none is given.

        Raises NoExecutorError if there is none. If it is another than the one that was asked for,
        there is a BackendFallbackWarning, once.
        """
        steps: list[Step] = []
        for way in self._ways:
            if isinstance(way, Step):
                steps.append(way)
                continue
            with_options = len(self._ways) > 1 and way.mode not in AUTOMATIC
            choice = choose_backend(way, partial(self._reason, program, with_options))
            steps += map(_without_vain_advice, choice.steps)
            if choice.backend is not None:
                self._warn_of_fallback(steps, choice.backend)
                module = _module_of(load_backend(choice.backend))
                return Executor(choice.backend, module, way.source, way.mode, tuple(steps))
        message = "no backend can run the program: "
        message += "; ".join(f"{step.backend}: {step.reason}" for step in steps)
        raise NoExecutorError(message + self._advice(steps), steps[0].backend)

    def _reason(self, program: str | None, with_options: bool, backend: Backend) -> str | None:
        """Return why an available backend cannot run a program, or not for the caller."""
        module = _module_of(backend)
        if module is None:
            return _RUNS_NONE
        reason = self._refusal(backend.name.partition(":")[0], module, with_options)
        if reason is None and self._among_ranks and not _takes_ranks(module):
            return "its executor runs no programs that are divided among ranks"
        if reason is not None or program is None:
            return reason
        try:
            reason = module.supports_program(program)
        except FAILURES as error:
            return f"its supports_program() failed: {one_line(error)}"
        if reason is None or (isinstance(reason, str) and reason):
            return reason
        return f"its supports_program() returned {reason!r}, expected None or a reason"

    def _advice(self, steps: list[Step]) -> str:
        """Return what to do where no backend can run a program, which a force leaves no other of.

        The reason against a backend that a force does not allow says how to lift it.
        """
        decisions = [way for way in self._ways if isinstance(way, Decision)]
        if len(decisions) < len(self._ways):
            return ""
        forced = next((way for way in decisions if way.mode == "force"), None)
        if forced is not None:
            name = forced.candidates[0]
            return f"; {forced.source} forces {name!r}; to lift it, {forced.lift}"
        if any(step.reason == _RUNS_NONE for step in steps):
            return "; tensor_ops.get_available_backends() lists those that do"
        return ""

    def _warn_of_fallback(self, steps: list[Step], chosen: str) -> None:
        """Warn if what was asked for does not run, or if something that is installed is broken."""
        if self._found == chosen:
            return
        self._found = chosen
        first = self._ways[0]
        is_asked_for = isinstance(first, Step) or first.mode not in AUTOMATIC
        problems = [
            f"backend {step.backend!r}: {step.reason}"
            for step in steps[:-1]
            if is_asked_for or (step.reason != _RUNS_NONE and load_backend(step.backend).is_broken)
        ]
        if problems:
            message = f"{'; '.join(problems)}. Running the program on {chosen!r} instead"
            warn_caller(message, BackendFallbackWarning)


def _way(name: str | None, source: str) -> Decision | Step:
    """Return the decision if a backend is named so, or why a force does not allow it."""
    try:
        return decision(name, source)
    except BackendError as error:
        return Step(str(name), str(error))


def _takes_ranks(module: Any) -> bool:
    """Return whether an executor exchanges values with those of other ranks."""
    try:
        return "ranks" in inspect.signature(module.compile_program).parameters
    except (TypeError, ValueError):  # what is written in C need not tell
        return False


def _without_vain_advice(step: Step) -> Step:
    """Return a step whose reason does not say how to get a backend that runs no programs."""
    if step.reason is None or runs_programs(step.backend):
        return step
    return step._replace(reason=_RUNS_NONE)


def _module_of(backend: Backend) -> Any:
    """Return the module that runs the programs of a backend, None if nothing does."""
    if backend.name.partition(":")[0] == "python":
        return reference
    return backend.module if backend.capabilities.runs_programs else None
