"""Sessions of ONNX Runtime that run where tensor_ops would, or say why they do not."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from tensor_ops import BackendError, BackendFallbackWarning, BackendUnavailableError, extension
from tensor_ops.extension import (
    AUTO,
    AUTOMATIC,
    DEFAULT_PRIORITY,
    Decision,
    Step,
    did_you_mean,
    one_line,
    warn_caller,
)
from tensor_ops_devices.devices.device import resolve_torch_device
from tensor_ops_devices.devices.providers import (
    CPU,
    ORDER,
    PROVIDERS,
    available_providers,
    choose_provider,
    onnxruntime,
    ordered,
)
from tensor_ops_devices.pytorch import is_usable, torch

__all__ = ["SessionExplanation", "create_session", "explain_session"]

_RECORD = "session.record_ep_graph_assignment_info"


class SessionExplanation(NamedTuple):
    """Where a session runs, and how that was decided.

    Attributes
    ----------
    backend : str or None
        The backend whose provider comes first; None if there would be an error.
    providers : tuple of str
        What ONNX Runtime is asked for, in order.
    decided_by : str
        The level that decided: the call, the context, the default, a variable or the file.
    mode : str
        ``force`` and ``named`` allow one backend, ``preferred`` and ``auto`` fall back.
    steps : tuple of Step
        Every backend looked at, with the reason for which it was passed over.
    running : tuple of str or None
        The providers that the session says it has; None before there is one.
    nodes : dict of str to dict of str to int, or None
        How many nodes of which operator each provider runs; None where ONNX Runtime does not
        tell, or before there is a session.
    """

    backend: str | None
    providers: tuple[str, ...]
    decided_by: str
    mode: str
    steps: tuple[Step, ...]
    running: tuple[str, ...] | None = None
    nodes: dict[str, dict[str, int]] | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the same facts as plain values."""
        plain = self._asdict() | {"steps": [step._asdict() for step in self.steps]}
        return {key: list(each) if isinstance(each, tuple) else each for key, each in plain.items()}

    def __str__(self) -> str:
        runs = f"{self.backend} by {self.providers[0]}" if self.backend else "no backend can run"
        lines = [f"ONNX Runtime: {runs}", f"  decided by {self.decided_by} ({self.mode})"]
        lines += [f"  {step.backend}: {step.reason or 'chosen'}" for step in self.steps]
        if self.providers:
            lines.append(f"  provider order: {', '.join(self.providers)}")
        if self.running is not None:
            lines.append(f"  in the session: {', '.join(self.running)}")
        for provider, operators in (self.nodes or {}).items():
            lines.append(f"  nodes of {provider}: {_counted(operators)}")
        return "\n".join(lines)


def explain_session(
    backend: str | None = AUTO, available: Iterable[str] | None = None
) -> SessionExplanation:
    """Explain where `create_session` would run a model, without making a session.

    Parameters
    ----------
    backend : str or None, optional
        As for `create_session`.
    available : iterable of str, optional
        The providers to choose from; by default those of the installed ONNX Runtime.

    Returns
    -------
    SessionExplanation
        Prints as text; `as_dict()` has the same facts. That of a session, with the nodes that
        each provider got, is its attribute `explanation`.

    Raises
    ------
    ConfigError
        If no backend has that name.
    BackendUnavailableError
        If ONNX Runtime is not installed and `available` not given.

    Examples
    --------
    >>> import tensor_ops_devices
    >>> print(tensor_ops_devices.explain_session("cpp", ["CPUExecutionProvider"]))
    ONNX Runtime: cpp by CPUExecutionProvider
      decided by backend= of create_session() (named)
      cpp: chosen
      provider order: CPUExecutionProvider
    """
    return _explain(_decision(backend), available_providers(available), {})


def create_session(
    model: Any,
    backend: str | None = AUTO,
    *,
    sess_options: Any = None,
    provider_options: Mapping[str, Mapping[str, Any]] | None = None,
    cpu_nodes: Literal["allow", "warn", "raise"] = "warn",
) -> Any:
    """Make a session of ONNX Runtime that runs where tensor_ops would.

    Parameters
    ----------
    model : path, bytes or onnx.ModelProto
        A file, a serialized model, or the model itself.
    backend : str or None, optional
        A backend of tensor_ops: `cuda` and `cudnn` are CUDAExecutionProvider, `rocm`
        ROCMExecutionProvider or MIGraphXExecutionProvider, `mps` CoreMLExecutionProvider,
        `mkldnn` DnnlExecutionProvider, `cpp`, `python` and `torch` CPUExecutionProvider; the
        others have none. By default, ``"auto"`` or None, `use_backend`, `set_default_backend`, the
        environment and ``backend.json`` decide as they do for an op. Where nobody has set anything,
        the first of `cuda`, `rocm`, `mps` and the CPU that ONNX Runtime has.
    sess_options : onnxruntime.SessionOptions, optional
        Passed on. The recording of the nodes' providers is turned on in it.
    provider_options : mapping of str to mapping, optional
        Options by the name of the provider; those of one that does not run have no effect.
    cpu_nodes : {"warn", "allow", "raise"}, optional
        What to do about nodes that ONNX Runtime puts on the CPU beside another provider.

    Returns
    -------
    onnxruntime.InferenceSession
        Its attribute `explanation` is a `SessionExplanation`, with the order of the providers,
        the reasons, and the nodes that each provider runs.

    Raises
    ------
    BackendUnavailableError
        If ONNX Runtime is not installed, or a backend is forced or named and ONNX Runtime was
        built without its provider or cannot bring it up.
    BackendError
        If `cpu_nodes` is ``"raise"`` and there are such nodes.
    ConfigError
        If no backend has that name.
    FileNotFoundError
        If there is no such file.
    TypeError, ValueError
        If `model` or an option is none.

    Warns
    -----
    BackendFallbackWarning
        If a backend is only preferred, or found, and cannot run; if PyTorch finds a GPU for which
        ONNX Runtime has no provider; and about `cpu_nodes`.

    Notes
    -----
    ONNX Runtime by itself goes on with the CPU where a provider cannot be brought up, and says so
    in its log or on the standard output only.

    Examples
    --------
    >>> from onnx import TensorProto, helper
    >>> from tensor_ops_devices import create_session
    >>> x, y = (helper.make_tensor_value_info(each, TensorProto.FLOAT, [3]) for each in "xy")
    >>> graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    >>> opset = helper.make_opsetid("", 20)
    >>> model = helper.make_model(graph, opset_imports=[opset], ir_version=10)
    >>> session = create_session(model, "cpu")
    >>> session.get_providers()
    ['CPUExecutionProvider']
    >>> session.explanation.nodes
    {'CPUExecutionProvider': {'Relu': 1}}
    """
    if cpu_nodes not in _CPU_NODES:
        expected = ", ".join(map(repr, _CPU_NODES))
        raise ValueError(f"cpu_nodes is {cpu_nodes!r}, expected one of {expected}")
    runtime = onnxruntime()
    source = _source(model)
    options = _checked_options(runtime, provider_options or {})
    if sess_options is None:
        sess_options = runtime.SessionOptions()
    sess_options.add_session_config_entry(_RECORD, "1")
    decision = _decision(backend)
    available = available_providers()
    failed: dict[str, str] = {}  # the providers that could not be brought up, and why
    cause: Exception | None = None
    while True:
        explanation = _explain(decision, available, failed)
        if explanation.backend is None:
            raise _unavailable(explanation) from cause
        providers = list(explanation.providers)
        try:
            session = runtime.InferenceSession(
                source,
                sess_options,
                providers=providers,
                provider_options=[dict(options.get(each, {})) for each in providers],
                enable_fallback=0,  # which would go on with the CPU, and print so
            )
        except Exception as error:
            if providers[0] == CPU:
                raise  # about the model, not about where it runs
            failed[providers[0]] = f"ONNX Runtime could not make the session: {one_line(error)}"
            cause = error
            continue
        running = tuple(session.get_providers())
        if providers[0] in running:
            break
        instead = ", ".join(running)
        failed[providers[0]] = (
            f"ONNX Runtime dropped it and would run on {instead}; its log has the cause, often a "
            "library of the device that is missing or of another version"
        )
    session.explanation = explanation._replace(running=running, nodes=_nodes(session))
    _warn_of_fallback(session.explanation, decision, failed, cpu_nodes)
    return session


_CPU_NODES = ("allow", "warn", "raise")


def _decision(backend: str | None) -> Decision:
    return extension.decision(None if backend == AUTO else backend, "backend= of create_session()")


def _explain(
    decision: Decision, available: list[str], failed: Mapping[str, str]
) -> SessionExplanation:
    working = [each for each in available if each not in failed]
    # The backends are those that ONNX Runtime has where nobody has set a priority.
    is_unset = decision.mode in AUTOMATIC and decision.priority == DEFAULT_PRIORITY
    choice = choose_provider(ORDER if is_unset else decision.candidates, working)
    steps = []
    for step in choice.steps:
        reasons = [failed[each] for each in PROVIDERS.get(step.backend, ()) if each in failed]
        steps.append(
            Step(step.backend, "; ".join(reasons) if step.reason and reasons else step.reason)
        )
    providers = () if choice.backend is None else ordered(choice.backend, working)
    return SessionExplanation(
        choice.backend, tuple(providers), decision.source, decision.mode, tuple(steps)
    )


def _unavailable(explanation: SessionExplanation) -> BackendUnavailableError:
    if len(explanation.steps) == 1:
        ((name, reason),) = explanation.steps
        verb = "forced" if explanation.mode == "force" else "named"
        message = f"backend {name!r} ({verb} by {explanation.decided_by}) is unavailable: {reason}"
        return BackendUnavailableError(message, name)
    reasons = "; ".join(f"{name}: {reason}" for name, reason in explanation.steps)
    return BackendUnavailableError(
        f"ONNX Runtime has no provider for any backend ({explanation.mode} by "
        f"{explanation.decided_by}): {reasons}",
        explanation.steps[-1].backend,
    )


def _warn_of_fallback(
    explanation: SessionExplanation, decision: Decision, failed: Mapping[str, str], cpu_nodes: str
) -> None:
    """Warn of everything that does not run where it should, or raise."""
    passed_over = {step.backend: step.reason for step in explanation.steps if step.reason}
    reasons = [
        f"backend {name!r} cannot run: {passed_over[name]}"
        for name in passed_over
        if (decision.mode == "preferred" and name == decision.candidates[0])
        or any(each in failed for each in PROVIDERS.get(name, ()))
        or (decision.mode in AUTOMATIC and name == _gpu_here())
    ]
    if reasons:
        instead = f"The session runs on {explanation.providers[0]} instead"
        warn_caller(f"{'; '.join(reasons)}. {instead}", BackendFallbackWarning)
    strays = {} if explanation.providers[0] == CPU else (explanation.nodes or {}).get(CPU, {})
    if strays and cpu_nodes != "allow":
        total = sum(sum(each.values()) for each in (explanation.nodes or {}).values())
        message = (
            f"{sum(strays.values())} of {total} nodes run on the CPU, not on "
            f"{explanation.providers[0]}: {_counted(strays)}"
        )
        if cpu_nodes == "raise":
            raise BackendError(message)
        advice = "cpu_nodes='allow' accepts that, 'raise' does not"
        warn_caller(f"{message}; {advice}", BackendFallbackWarning)


def _gpu_here() -> str | None:
    """Return the backend of the GPU that PyTorch finds, if PyTorch is there."""
    if not is_usable():
        return None
    kind = resolve_torch_device(AUTO).type
    return {"cuda": "rocm" if torch.version.hip else "cuda", "mps": "mps"}.get(kind)


def _nodes(session: Any) -> dict[str, dict[str, int]] | None:
    ask = getattr(session, "get_provider_graph_assignment_info", None)
    if ask is None:  # ONNX Runtime before 1.24
        return None
    nodes: dict[str, Counter[str]] = {}
    for part in ask():
        counts = nodes.setdefault(part.ep_name, Counter())
        counts.update(node.op_type for node in part.get_nodes())
    return {provider: dict(sorted(counts.items())) for provider, counts in nodes.items()}


def _source(model: Any) -> str | bytes:
    """Return what InferenceSession takes for a model."""
    if isinstance(model, (bytes, bytearray, memoryview)):
        return bytes(model)
    if isinstance(model, (str, os.PathLike)):
        path = os.fspath(model)
        if not os.path.isfile(path):
            raise FileNotFoundError(f"create_session: there is no model file {path!r}")
        return os.fsdecode(path)
    if not hasattr(model, "SerializeToString"):
        raise TypeError(
            f"create_session: model must be a path, bytes or an onnx.ModelProto, got "
            f"{type(model).__module__}.{type(model).__qualname__}"
        )
    try:
        return bytes(model.SerializeToString())
    except Exception as error:  # protobuf's own, beyond 2 GiB
        raise ValueError(
            "create_session: the model cannot be serialized; write it with onnx.save(model, path, "
            f"save_as_external_data=True) and pass the path: {one_line(error)}"
        ) from error


def _checked_options(
    runtime: Any, options: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, Mapping[str, Any]]:
    known = {*runtime.get_all_providers(), *sum(PROVIDERS.values(), ())}
    for name, values in options.items():
        if name not in known:
            raise ValueError(
                f"create_session: provider_options names {name!r}, which is no execution provider; "
                f"{did_you_mean(str(name), known)}it maps providers to their options"
            )
        if not isinstance(values, Mapping):
            raise TypeError(
                f"create_session: provider_options[{name!r}] must be a mapping, got {values!r}"
            )
    return options


def _counted(operators: Mapping[str, int]) -> str:
    return ", ".join(f"{name} x{count}" if count > 1 else name for name, count in operators.items())
