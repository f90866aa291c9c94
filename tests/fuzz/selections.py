"""Backends, settings and calls of any kind: what runs is what the rules say, or an error.

selection_rules.py has the rules once more. A forced backend that is not used, an order that is not
heeded or a file that is taken for none would be a difference.
"""

import importlib.metadata
import json
import os
import sys
import tempfile
import warnings
from contextlib import ExitStack
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import numpy as np
from choices import Choices
from selection_rules import AUTOMATIC, Machine, RefusedError, Settings, expected

import tensor_ops
from tensor_ops import backends

__all__ = ["try_input"]

BACKENDS = ("cuda", "opencl", "cpp", "alpha", "beta")
# More than one state, so that most are usable.
STATES = (
    "available", "available", "available", "not installed", "not installed", "no device",
    "import fails", "wrong version", "probe fails", "wrong declaration", "two claims",
    "wrong setting", "exits",
)  # fmt: skip
KINDS = ("cpu", "gpu", "accelerator", None)
DTYPES = (("float32", "float64"), ("float32",), ("float64",), ())
NAMES = (
    "cuda", "opencl", "cpp", "python", "alpha", "beta", "numpy", "cpu", "openmp", "opencl:gpu",
    "opencl:cpu", "cpp:cpu", "alpha:gpu", "cpu:gpu", "python:cpu", "torch", "mps",
)  # fmt: skip
WRONG_NAMES = ("gpu", "CUDA", "cudda", "", "opencl:", "opencl:gpus", "a b", "cpp:cpu:cpu", "\n")
# Where something stands that no file of settings may be.
WRONG_FILES = ("{", "[]", "null", '{"force_backend": "cpp", "force_backend": "cuda"}', "\ufeff{}")
ERRORS = {
    tensor_ops.ConfigError: "config",
    tensor_ops.BackendUnavailableError: "unavailable",
    tensor_ops.BackendError: "backend",
}
RUNS = 250
OPTIONS = ["-max_len=400"]
_folder = tempfile.TemporaryDirectory(prefix="fuzz-selections-")
FILE = Path(_folder.name, "backend.json")
VARIABLES = ("FORCE_BACKEND", "BACKEND", "BACKEND_PRIORITY", "CONFIG")


def try_input(data):
    choices = Choices(data)
    with ExitStack() as stack:
        stack.callback(_restore, dict(os.environ), importlib.metadata.entry_points)
        for name in [name for name in os.environ if name.startswith("TENSOR_OPS_")]:
            del os.environ[name]
        os.environ["XDG_CACHE_HOME"] = _folder.name
        machine = _install(choices)
        _clear()
        FILE.write_text("{}")
        os.environ["TENSOR_OPS_CONFIG"] = str(FILE)
        tensor_ops.set_default_backend(None)
        tensor_ops.reload_config()
        program = Program(choices, machine)
        for _ in range(1 + choices.below(3)):
            program.configure()
            for _ in range(1 + choices.below(4)):
                program.set_default()
                program.call()


def _restore(environ, entry_points):
    importlib.metadata.entry_points = entry_points
    os.environ.clear()
    os.environ.update(environ)
    backends.loaded.clear()
    os.environ["TENSOR_OPS_CONFIG"] = ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tensor_ops.set_default_backend(None)
        tensor_ops.reload_config()
    os.environ.clear()
    os.environ.update(environ)


# Installed backends


def _install(choices):
    backends.loaded.clear()  # as in a new process
    state, kind, dtypes, points = {}, {}, {}, []
    for name in BACKENDS:
        how = choices.pick(STATES)
        if how == "not installed":
            continue
        kind[name], dtypes[name] = choices.pick(KINDS), choices.pick(DTYPES)
        module = _module(name, how, kind[name], dtypes[name])
        sys.modules[module.__name__] = module
        value = f"no_such_{name}" if how == "import fails" else module.__name__
        points.append(EntryPoint(name, value, backends.ENTRY_POINT_GROUP))
        if how == "two claims":
            points.append(EntryPoint(name, "another", backends.ENTRY_POINT_GROUP))
        told = {"no device": "absent", "available": "available", "wrong setting": "wrong setting"}
        state[name] = told.get(how, "broken")

    def entry_points(group):
        return [point for point in points if point.group == group]

    importlib.metadata.entry_points = entry_points
    return Machine(state, kind, dtypes)


def _module(name, how, kind, dtypes):
    def probe():
        if how == "probe fails":
            raise OSError("no driver")
        if how == "exits":
            sys.exit("no driver")
        wrong = "its setting is wrong" if how == "wrong setting" else None
        usable = how not in ("no device", "wrong setting")
        return {"available": usable, "reason": "no device", "kind": kind, "wrong_setting": wrong}

    module = ModuleType(f"fuzzed_{name}")
    module.API_VERSION = 0 if how == "wrong version" else 1
    if how == "wrong declaration":
        module.CAPABILITIES = {"runs_progams": True}
    module.probe = probe
    module.info = lambda: {"display_name": name}
    module.supports = lambda op, dtype, device: None if dtype in dtypes else f"no {dtype}"
    module.silu = lambda x, *, out=None: name
    return module


class Program:
    """A program that is configured and runs, and what is to be expected of it.

    `told` has the names, of calls and contexts, whose choice may have been made and told already.
    """

    def __init__(self, choices, machine):
        self.choices = choices
        self.machine = machine
        self.levels = []
        self.default = None
        self.told = set()

    def configure(self):
        """Write settings and put them into force, unless they are wrong."""
        settings, is_readable = _settings(self.choices)
        os.environ.update(
            TENSOR_OPS_FORCE_BACKEND=settings.env_force,
            TENSOR_OPS_BACKEND=settings.env_preferred,
            TENSOR_OPS_BACKEND_PRIORITY=settings.env_priority,
        )
        if self.choices.rarely():
            return  # a program keeps what it has read
        try:
            levels = settings.checked(self.machine)
            if not is_readable:
                raise RefusedError("config")
        except RefusedError as refused:
            _fails_as(refused, tensor_ops.reload_config, settings)
            return  # what was in force stays so
        self.levels = levels
        self.told.clear()
        try:
            # A force is looked at when it comes into force, and holds whatever comes of it.
            for _, force, _, _ in levels:
                if force:
                    _check_available(self.machine, force)
                    break
        except RefusedError as refused:
            _fails_as(refused, tensor_ops.reload_config, settings)
        else:
            tensor_ops.reload_config()

    def set_default(self):
        way = self.choices.below(6)
        if way > 1:
            return
        name = resolved = _name(self.choices, *AUTOMATIC) if way == 0 else None
        try:
            if name not in (None, *AUTOMATIC):
                _check_usable(self.machine, self.levels, name)
                resolved = self.machine.resolve(name)
        except RefusedError as refused:
            _fails_as(refused, lambda: tensor_ops.set_default_backend(name), name)
            return
        tensor_ops.set_default_backend(name)
        self.default = resolved
        self.told.clear()

    def call(self):
        choices = self.choices
        context = _name(choices, *AUTOMATIC) if choices.below(4) == 0 else None
        with ExitStack() as stack:
            try:
                if context not in (None, *AUTOMATIC):
                    _check_usable(self.machine, self.levels, context)
            except RefusedError as refused:
                _fails_as(refused, tensor_ops.use_backend(context).__enter__, context)
                context = None
            if context is not None:
                stack.enter_context(tensor_ops.use_backend(context))
            call = _name(choices, *AUTOMATIC) if choices.below(4) == 0 else None
            self._call(call, context, choices.pick(("float32", "float64")))

    def _call(self, call, context, dtype):
        key = ("call", call) if call is not None else ("context", context)
        options = {} if call is None else {"backend": call}
        x = np.ones(3, dtype)
        facts = (self.machine, self.levels, dtype, f"{call=} {context=} {self.default=}")
        is_told = key in self.told
        self.told.add(key)
        try:
            wanted = expected(self.machine, self.levels, dtype, key[1], self.default)
        except RefusedError as refused:
            _fails_as(refused, lambda: tensor_ops.silu(x, **options), facts)
            return
        for may_warn in (not is_told, False):
            with warnings.catch_warnings(record=True) as record:
                warnings.simplefilter("always")
                ran = tensor_ops.silu(x, **options)
            ran = ran if isinstance(ran, str) else "python"
            assert ran == wanted.backend, (ran, wanted, *facts)
            warned = [each.category for each in record]
            told = [tensor_ops.BackendFallbackWarning] if wanted.warns and may_warn else []
            assert warned == told, (record, *facts)
        explained = tensor_ops.explain("silu", x, **options)
        assert explained.backend == ran, (explained, *facts)
        if call is None:
            available = tensor_ops.get_available_backends(runs_programs=False)
            assert tensor_ops.get_backend() in available, (available, *facts)


# Settings


def _name(choices, *others):
    """Return mostly a name of a backend, else one of the others, else one that is wrong."""
    names = (*NAMES, *NAMES, *others)
    return choices.pick(WRONG_NAMES) if choices.rarely() else choices.pick(names)


def _settings(choices):
    """Return settings, and whether the file can be read at all."""
    force = _name(choices) if choices.below(8) == 0 else ""
    preferred = _name(choices, *AUTOMATIC) if choices.below(4) == 0 else " "
    order = ",".join(_names(choices)) if choices.below(4) == 0 else ""
    _clear()
    if choices.rarely():
        if choices.below(2):
            FILE.mkdir()
        else:
            FILE.write_text(choices.pick(WRONG_FILES), encoding="utf-8")
        return Settings(force, preferred, order, None), False
    content = {}
    if choices.below(2):
        content["preferred_backend"] = _name(choices, *AUTOMATIC)
    if choices.below(2):
        content["backend_priority"] = _names(choices)
    if choices.below(6) == 0:
        content["force_backend"] = _name(choices)
    if choices.rarely():
        key = choices.pick(("force", "$schema", "force_backend", "backend_priority"))
        content[key] = choices.pick((None, 1, True, [], {}, "auto", "cpp", [1], [[]]))
    FILE.write_text(json.dumps(content), encoding="utf-8")
    is_open = choices.rarely()
    FILE.chmod(0o666 if is_open else 0o644)
    return Settings(force, preferred, order, content), not is_open


def _clear():
    if FILE.is_dir():
        FILE.rmdir()
    FILE.unlink(missing_ok=True)


def _names(choices):
    return [_name(choices) for _ in range(1 + choices.below(4))]


# Refusals


def _check_available(machine, name):
    state = machine.state_of(name)
    if state != "available":
        raise RefusedError("config" if state == "wrong setting" else "unavailable")


def _check_usable(machine, levels, name):
    """Raise RefusedError where a context or a default of this name is refused."""
    forces = [force for _, force, _, _ in levels if force]
    resolved = machine.resolve(name)
    if forces and resolved.partition(":")[0] != forces[0].partition(":")[0]:
        raise RefusedError("backend")
    if forces and ":" in resolved and ":" in forces[0] and resolved != forces[0]:
        raise RefusedError("backend")
    _check_available(machine, resolved if ":" in resolved or not forces else forces[0])


def _fails_as(refused, function, facts):
    """Check that a function raises the documented error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = function()
        except tensor_ops.TensorOpsError as error:
            raised = error
        else:
            raise AssertionError((result, refused, facts))
    found = next(ERRORS[each] for each in type(raised).__mro__ if each in ERRORS)
    assert found == str(refused), (found, refused, raised, facts)
    str(raised).encode()  # it can be shown
