"""Comparing the code of a module with that of a form."""

from __future__ import annotations

import ast
import builtins
import difflib
import functools
import inspect
import math
import types
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from tensor_ops_torch.modules import forms
from tensor_ops_torch.modules.forms import FORMS, FUNCTIONS, Activation, Form
from tensor_ops_torch.modules.source import RefusedError, definition_of

__all__ = ["Match", "check_calls", "held_in", "match", "nearest", "stored_in"]

_MISSING = object()
_UNCOMPARED = {"ctx", "type_comment", "annotation", "returns", "kind", "type_params"}
_LEAST_LIKENESS = 0.6
# Names of PyTorch as forms mean them, whatever is put there later. Modules of other names may
# have the same functions, and others tomorrow.
_MODULES: dict[Any, dict[str, Any]] = {
    each: dict(vars(each)) for each in (torch, nn, nn.functional, math)
}
# The ``super().forward`` of a class, by its base.
_INHERITED = {nn.LayerNorm: nn.LayerNorm.forward}


@dataclass
class Match:
    """A module whose code is that of a form."""

    form: Form
    names: dict[str, str] = field(default_factory=dict)  # the module's attributes, by the form's
    # The attributes that decide what is computed, with their values.
    watched: dict[str, Any] = field(default_factory=dict)
    # The functions that it runs, as what attributes of which classes.
    functions: set[tuple[type, str, Any]] = field(default_factory=set)
    held: set[str] = field(default_factory=set)  # the parameters and children that it uses
    activation: Activation | None = None  # that of a function that it holds
    width: int | None = None  # the length that a row must have, where a number says so


def match(module: nn.Module) -> Match | None:
    """Return what a module is known by, None if its code is that of no form.

    Raises RefusedError if its code is a form's and its attributes are not.
    """
    kind = type(module)
    forward = stored_in(kind, "forward")
    try:
        check_calls(kind)
        definition = definition_of(forward)
    except RefusedError:
        return None
    refused = None
    for each in FORMS:
        found = Match(each)
        try:
            comparison = _Comparison(module, found)
            if comparison.method("forward", "forward", forward, definition):
                comparison.check_values()
                return found
        except RefusedError as error:
            refused = error
    if refused is not None:
        raise refused
    return None


def check_calls(kind: type[nn.Module]) -> None:
    """Refuse a class whose attributes and calls are not those of every module."""
    if stored_in(kind, "__getattribute__") is not object.__getattribute__ or (
        stored_in(kind, "__getattr__") is not nn.Module.__getattr__
    ):
        raise RefusedError(f"its class {kind.__name__} has attributes of its own making")
    if stored_in(kind, "__call__") is not nn.Module.__call__:
        raise RefusedError(f"its class {kind.__name__} has a __call__ of its own")


def stored_in(kind: type, name: str) -> Any:
    """Return an attribute of a class as it is stored."""
    return next((vars(each)[name] for each in kind.__mro__ if name in vars(each)), _MISSING)


def held_in(module: nn.Module, name: str) -> Any:
    """Return a plain attribute of a module, or its parameter or child.

    Raises RefusedError if its class computes it, or if something hides it.
    """
    stored = stored_in(type(module), name)
    if hasattr(type(stored), "__get__") and not isinstance(stored, types.FunctionType):
        raise RefusedError(f"its {name} is computed by its class")
    if name in vars(module):
        return vars(module)[name]
    if stored is not _MISSING:
        return stored
    for held in (module._parameters, module._modules):
        if name in held:
            return held[name]
    raise RefusedError(f"it has no {name}")


def nearest(kind: type[nn.Module], gated: bool) -> str | None:
    """Return the name of the form that a forward is most like, None if it is like none."""
    own = _tokens(definition_of(kind.forward))
    ratios = [
        (
            difflib.SequenceMatcher(
                None, own, _tokens(_definitions()[each.code]["forward"])
            ).ratio(),
            each.code.__name__,
        )
        for each in FORMS
        if bool(each.projections) is gated
    ]
    ratio, name = max(ratios)
    return name if ratio >= _LEAST_LIKENESS else None


def _tokens(definition: ast.FunctionDef) -> list[str]:
    """Return the tokens of a function's code, with one name for all variables and attributes."""
    found = []
    for statement in _body(definition):
        for each in ast.walk(statement):
            word = type(each).__name__
            if isinstance(each, ast.Attribute):
                of_self = isinstance(each.value, ast.Name) and each.value.id == "self"
                word = "self." if of_self else each.attr
            elif isinstance(each, ast.Constant):
                word = repr(each.value)
            found.append(word)
    return found


@functools.cache
def _definitions() -> dict[type, dict[str, ast.FunctionDef]]:
    """Return the functions of every form."""
    tree = ast.parse(inspect.getsource(forms))
    classes = {each.name: each for each in tree.body if isinstance(each, ast.ClassDef)}
    return {
        form.code: {
            each.name: each
            for kind in form.code.__mro__
            if kind.__module__ == forms.__name__
            for each in classes[kind.__name__].body
            if isinstance(each, ast.FunctionDef)
        }
        for form in FORMS
    }


def _body(definition: ast.FunctionDef) -> list[ast.stmt]:
    """Return the statements of a function without its docstring."""
    return definition.body[ast.get_docstring(definition, clean=False) is not None :]


@dataclass
class _Comparison:
    """A module's code beside that of a form."""

    module: nn.Module
    found: Match

    def method(self, wanted: str, given: str, function: Any, definition: ast.FunctionDef) -> bool:
        """Return whether a function of the module has the code of a form's."""
        form = _definitions()[self.found.form.code][wanted]
        code = function.__code__
        if function.__defaults__ or function.__kwdefaults__ or not self._inherits(wanted, function):
            return False
        frame = _Frame(self, function, code.co_varnames)
        if not frame.same(form.args, definition.args):
            return False
        if not frame.same(_body(form), _body(definition)):
            return False
        self.found.functions.add((type(self.module), given, function))
        return True

    def attribute(self, wanted: str, given: str) -> bool:
        """Return whether an attribute of the module may be one of the form's."""
        names = self.found.names
        if names.get(wanted, given) != given or (wanted not in names and given in names.values()):
            return False
        if given.startswith("__"):
            return False
        names[wanted] = given
        return wanted in self.found.form.roles or self._function(wanted, given)

    def check_values(self) -> None:
        """Refuse attributes that are not what those of the form stand for."""
        for wanted, role in self.found.form.roles.items():
            self._value(role, self.found.names[wanted])

    def _inherits(self, wanted: str, function: Any) -> bool:
        """Return whether ``super()`` in a function is the class that it is in the form's."""
        form = self.found.form.code
        if getattr(form, wanted).__code__.co_freevars != function.__code__.co_freevars:
            return False
        if not function.__code__.co_freevars:
            return True
        order, parent = type(self.module).__mro__, form.__mro__[1]
        owner = function.__closure__[0].cell_contents
        if owner not in order or order[order.index(owner) + 1] is not parent:
            return False
        self.found.functions.add((parent, "forward", _INHERITED[parent]))
        return vars(parent)["forward"] is _INHERITED[parent]

    def _function(self, wanted: str, given: str) -> bool:
        function = stored_in(type(self.module), given)
        if given in vars(self.module) or not isinstance(function, types.FunctionType):
            return False
        if any(name == given for _, name, _ in self.found.functions):
            return True
        try:
            definition = definition_of(function)
        except RefusedError as error:
            raise RefusedError(f"its {given} {error}") from None
        return self.method(wanted, given, function, definition)

    def _value(self, role: str, name: str) -> None:
        """Refuse a value that is not what the form's attribute stands for."""
        if role == "Unread":
            return
        value = held_in(self.module, name)
        if role in ("Weight", "Bias"):
            if _has_no(self.module._parameters, name):
                raise RefusedError(f"its {name} is no parameter")
            if value.ndim != 1:
                shape = tuple(value.shape)
                raise RefusedError(f"its {name} has shape {shape}, expected one axis")
            self.found.held.add(name)
        elif role == "Child":
            if _has_no(self.module._modules, name):
                raise RefusedError(f"its {name} is no module")
            self.found.held.add(name)
        elif role == "Eps":
            if type(value) not in (int, float):
                raise RefusedError(f"its {name} is of type {type(value).__name__}, expected float")
        elif role == "RowShape":
            if not (isinstance(value, tuple) and len(value) == 1 and type(value[0]) is int):
                raise RefusedError(f"its {name} is {value!r}, expected the length of a row")
            self.found.width = value[0]
            self.found.watched[name] = value
        elif role == "Function":
            self.found.activation = _activation_of(value)
            if self.found.activation is None:
                raise RefusedError(f"its {name} is no activation that an op computes")
            self.found.watched[name] = value
        else:
            wanted = ast.literal_eval(role.removeprefix("Literal[").removesuffix("]"))
            kinds = (int, float) if type(wanted) is int else (type(wanted),)
            if type(value) not in kinds or value != wanted:
                raise RefusedError(f"its {name} is {value!r}, expected {wanted!r}")
            self.found.watched[name] = value


def _has_no(held: dict[str, Any], name: str) -> bool:
    return held.get(name) is None


def _activation_of(value: Any) -> Activation | None:
    if type(value) is functools.partial:
        keywords = value.keywords
        if value.args or keywords.keys() != {"approximate"}:
            return None
        return FUNCTIONS.get((value.func, keywords["approximate"]))
    try:
        return FUNCTIONS.get((value, None))
    except TypeError:  # it cannot be hashed
        return None


@dataclass
class _Frame:
    """A function of a form beside one of the module, whose variables have other names."""

    comparison: _Comparison
    function: Any
    variables: tuple[str, ...]
    names: dict[str, str] = field(default_factory=dict)

    def same(self, wanted: Any, given: Any) -> bool:
        """Return whether two parts of syntax trees are the same but for names."""
        if isinstance(wanted, list):
            return (
                isinstance(given, list)
                and len(wanted) == len(given)
                and all(map(self.same, wanted, given))
            )
        if not isinstance(wanted, ast.AST):
            return type(wanted) is type(given) and bool(wanted == given)
        if isinstance(wanted, ast.Name) and self._is_variable(wanted.id):
            return isinstance(given, ast.Name) and self._variable(wanted.id, given.id)
        if isinstance(wanted, ast.arg):
            return isinstance(given, ast.arg) and self._variable(wanted.arg, given.arg)
        if isinstance(wanted, ast.Attribute) and ast.unparse(wanted.value) == "self":
            return (
                isinstance(given, ast.Attribute)
                and self.same(wanted.value, given.value)
                and self.comparison.attribute(wanted.attr, given.attr)
            )
        known = self._object(wanted, vars(forms))
        if known is not _MISSING:
            return self._object(given, self.function.__globals__) is known
        if type(wanted) is not type(given):
            return False
        return all(
            self.same(getattr(wanted, name), getattr(given, name, None))
            for name in wanted._fields
            if name not in _UNCOMPARED
        )

    def _is_variable(self, name: str) -> bool:
        return name not in vars(forms) and not hasattr(builtins, name)

    def _variable(self, wanted: str, given: str) -> bool:
        if given not in self.variables:
            return False
        if wanted not in self.names and given in self.names.values():
            return False
        return self.names.setdefault(wanted, given) == given

    def _object(self, node: Any, names: dict[str, Any]) -> Any:
        """Return what a name, or one of a module of PyTorch, stands for outside of a function."""
        of_form = names is vars(forms)
        if isinstance(node, ast.Name):
            # One that begins with two underscores means another name in a class.
            if not of_form and (node.id in self.variables or node.id.startswith("__")):
                return _MISSING
            return names.get(node.id, getattr(builtins, node.id, _MISSING))
        if isinstance(node, ast.Attribute):
            owner = self._object(node.value, names)
            for module, known in _MODULES.items():
                if owner is module:
                    found = known if of_form else vars(module)
                    return found.get(node.attr, _MISSING)
        return _MISSING
