"""Reading the forward of a module as a formula.

The forward is not run: its syntax tree is followed with symbols in the place of tensors. What is
not known to be part of a formula ends the reading: a branch on data, shape, rank or mode, a write,
a global that is none of PyTorch's, a call of anything else. So a forward that has been read to its
end does nothing but compute the formula, as long as what was read does not change.
"""

from __future__ import annotations

import ast
import builtins
import functools
import math
import operator
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tensor_ops_torch.modules.algebra import Formula, function, symbol
from tensor_ops_torch.modules.functions import (
    PURE,
    arithmetic,
    axis_of,
    function_called,
    method_called,
)
from tensor_ops_torch.modules.refusal import RefusedError
from tensor_ops_torch.modules.source import definition_of
from tensor_ops_torch.modules.values import (
    Attribute,
    Child,
    Device,
    Itself,
    LastAxis,
    Method,
    Parent,
    Shape,
    TensorMethod,
    Value,
    X,
)

__all__ = ["Reading", "read"]

_MODULES = (torch, nn, functional, math, torch.special, torch.linalg)
_DEEPEST = 8  # calls of the module's own functions within one another
_SIMPLE = (bool, int, float, str, type(None), torch.dtype)
_MISSING = object()


@dataclass
class Reading:
    """What the forward of a module is for one dtype of its input and its parameters.

    Attributes
    ----------
    dtype : torch.dtype
    formula : Formula
        Of ``x``, the parameters ``self.weight`` and so on, and the numbers ``self.eps`` and so on.
    watched : dict of str to object
        The attributes that it was read under, with their values.
    functions : set of (type, str, object)
        The functions that it runs, as what attributes of which classes.
    calls : list of str
        The children that it calls, in their order.
    width : int or None
        What the length of a row has to be, where a number says so.
    uses_dtypes : bool
        Whether it converts between dtypes or decides on one.
    """

    dtype: torch.dtype
    formula: Formula = X
    watched: dict[str, Any] = field(default_factory=dict)
    functions: set[tuple[type, str, Any]] = field(default_factory=set)
    calls: list[str] = field(default_factory=list)
    width: int | None = None
    uses_dtypes: bool = False

    def known(self, value: Any) -> Any:
        """Return a value that decides something: an attribute is watched from here on."""
        if isinstance(value, Attribute):
            self.watched[value.name] = value.value
            return value.value
        return value


def read(module: nn.Module, dtype: torch.dtype, *, numbers: bool = False) -> Reading:
    """Read the forward of a module for a call with one tensor.

    Parameters
    ----------
    module : torch.nn.Module
    dtype : torch.dtype
        That of the tensor, and of the module's parameters.
    numbers : bool
        Whether attributes that hold numbers are constants, and watched.

    Raises
    ------
    RefusedError
        Naming what is not known, and its line.
    """
    kind = type(module)
    if _in_class(kind, "__getattribute__") is not object.__getattribute__ or (
        _in_class(kind, "__getattr__") is not nn.Module.__getattr__
    ):
        raise RefusedError(f"its class {kind.__name__} has attributes of its own making")
    if _in_class(kind, "__call__") is not nn.Module.__call__:
        raise RefusedError(f"its class {kind.__name__} has a __call__ of its own")
    reading = Reading(dtype)
    x = Value(X, dtype, "rows")
    forward = Method(kind, "forward", kind.forward)
    found = _Frame(module, reading, numbers, forward, ()).run((Itself(), x), {})
    if not isinstance(found, Value) or found.shape != "rows":
        raise RefusedError("its forward does not return a tensor of its input's shape")
    if found.dtype is not dtype and not reading.calls:
        raise RefusedError(f"its forward returns {found.dtype} for {dtype}")
    reading.formula = found.formula
    return reading


@dataclass
class _Frame:
    """A call of a function: the syntax tree is followed statement by statement."""

    module: nn.Module
    reading: Reading
    numbers: bool
    method: Method
    callers: tuple[Any, ...]
    variables: dict[str, Any] = field(default_factory=dict)

    @property
    def function(self) -> Any:
        return self.method.function

    @property
    def name(self) -> str:
        return self.method.name

    def run(self, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
        """Return what the function returns."""
        if self.function in self.callers or len(self.callers) > _DEEPEST:
            raise RefusedError(f"its {self.name} calls itself, or too many others")
        try:
            definition = definition_of(self.function)
            self._bind(definition, args, keywords)
        except RefusedError as error:
            raise RefusedError(f"its {self.name} {error}") from None
        self.reading.functions.add((self.method.owner, self.name, self.function))
        for done in self._statements(definition.body):
            return done.value
        raise RefusedError(f"its {self.name} returns nothing")

    def _bind(
        self, definition: ast.FunctionDef, args: tuple[Any, ...], keywords: Mapping[str, Any]
    ) -> None:
        function, given = self.function, definition.args
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        if cells.keys() - {"__class__"}:
            raise RefusedError(f"uses variables around it: {', '.join(sorted(cells))}")
        names = [each.arg for each in (*given.posonlyargs, *given.args)]
        if len(args) > len(names):
            raise RefusedError(f"takes {len(names)} arguments, {len(args)} were passed")
        defaults = function.__defaults__ or ()
        bound = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
        bound |= function.__kwdefaults__ or {}
        bound |= zip(names, args, strict=False)
        known = {*names, *(each.arg for each in given.kwonlyargs)}
        if keywords.keys() - known:
            raise RefusedError(f"is called with {', '.join(sorted(keywords.keys() - known))}")
        bound |= keywords
        if missing := known - bound.keys():
            raise RefusedError(f"takes more than one tensor: {', '.join(sorted(missing))}")
        for name in bound.keys() - {*names[: len(args)], *keywords}:
            if not isinstance(bound[name], _SIMPLE):
                raise RefusedError(f"has the default {name}={bound[name]!r}, which may change")
        self.variables |= bound

    # Statements. Each yields nothing, or once what the function returns.

    def _statements(self, body: list[ast.stmt]) -> Iterator[_Returned]:
        for statement in body:
            try:
                yield from self._statement(statement)
            except _LocatedError:
                raise
            except RefusedError as error:
                # A function of the module's own has said where already.
                if str(error).startswith("its "):
                    raise
                raise _LocatedError(f"its {self.name} {error}, line {statement.lineno}") from None

    def _statement(self, node: ast.stmt) -> Iterator[_Returned]:
        match node:
            case ast.Return(value=value):
                yield _Returned(None if value is None else self._value(value))
            case ast.Assign(targets=targets, value=value):
                found = self._value(value)
                for target in targets:
                    self._assign(target, found)
            case ast.AnnAssign(target=target, value=value, simple=1) if value is not None:
                self._assign(target, self._value(value))
            case ast.If(test=test, body=body, orelse=orelse):
                yield from self._statements(body if self._truth(test) else orelse)
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                pass
            case ast.AugAssign():
                raise RefusedError("writes to a tensor in place, or looks like it")
            case ast.Assert():
                raise RefusedError("raises an error for some inputs")
            case ast.Raise():
                raise RefusedError("raises an error")
            case _:
                raise RefusedError(f"has a statement of kind {type(node).__name__}")

    def _assign(self, target: ast.expr, value: Any) -> None:
        match target:
            case ast.Name(id=name):
                if not self._is_local(name):
                    raise RefusedError(f"writes to the global {name}")
                self.variables[name] = value
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                if not isinstance(value, tuple) or len(value) != len(targets):
                    raise RefusedError(f"takes a {type(value).__name__} apart")
                for each, part in zip(targets, value, strict=True):
                    self._assign(each, part)
            case ast.Attribute(attr=name):
                raise RefusedError(f"writes to {name}")
            case _:
                raise RefusedError("writes to elements")

    # Expressions

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self._variable(name)
            case ast.Attribute(value=owner, attr=name):
                return self._attribute(self._value(owner), name)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return tuple(map(self._value, parts))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not self._truth(operand)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self._operation("mul", self._value(operand), -1)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self._value(operand)
            case ast.BinOp(left=left, op=kind, right=right):
                if type(kind) not in _BINARY:
                    raise RefusedError(f"computes with {type(kind).__name__}")
                return self._operation(_BINARY[type(kind)], self._value(left), self._value(right))
            case ast.BoolOp(op=kind, values=parts):
                return self._either(isinstance(kind, ast.Or), parts)
            case ast.Compare():
                return self._compare(node)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._value(body if self._truth(test) else orelse)
            case ast.Subscript(value=owner, slice=index):
                return self._element(self._value(owner), index)
            case ast.Call():
                return self._call(node)
        raise RefusedError(f"has an expression of kind {type(node).__name__}")

    def _variable(self, name: str) -> Any:
        if name in self.variables:
            return self.variables[name]
        if self._is_local(name):
            raise RefusedError(f"uses {name} before it has a value")
        if name.startswith("__"):
            raise RefusedError(f"uses {name}, which means another name in a class")
        found = self.function.__globals__.get(name, _MISSING)
        if found is _MISSING:
            found = getattr(builtins, name, _MISSING)
        if _is_module(found) or _is_function(found) or _is_in(found, type(self.module).__mro__):
            return found
        raise RefusedError(f"uses the global {name}")

    def _is_local(self, name: str) -> bool:
        code = self.function.__code__
        return name in code.co_varnames or name in code.co_cellvars

    def _attribute(self, owner: Any, name: str) -> Any:
        if isinstance(owner, Itself):
            return self._of_module(name)
        if isinstance(owner, Value):
            if name == "dtype":
                self.reading.uses_dtypes = True
                return owner.dtype
            if name == "shape":
                return Shape(owner.shape)
            if name == "device":
                return Device()
            handler = method_called(name)
            if handler is None:
                raise RefusedError(f"uses {name} of a tensor, which is no part of an op")
            return TensorMethod(owner, handler)
        if isinstance(owner, Parent):
            return self._of_parent(owner.kind, name)
        if isinstance(owner, Child):
            raise RefusedError(f"uses {name} of its child {owner.name}")
        if _is_in(owner, type(self.module).__mro__):
            return Method(owner, name, getattr(owner, name, None), bound=False)
        if _is_module(owner) or isinstance(owner, torch.finfo):
            found = getattr(owner, name, _MISSING)
            if (
                _is_module(found)
                or _is_function(found)
                or isinstance(found, _SIMPLE)
                or _is_in(found, type(self.module).__mro__)
            ):
                return found
            raise RefusedError(f"uses {name}, which is no part of an op")
        raise RefusedError(f"uses {name} of a {type(owner).__name__}")

    def _of_module(self, name: str) -> Any:
        module, kind = self.module, type(self.module)
        in_class = _in_class(kind, name)
        if name.startswith("__"):
            raise RefusedError(f"uses the private attribute {name}")
        if name == "training":
            raise RefusedError("depends on train() and eval()")
        if hasattr(type(in_class), "__set__") or isinstance(in_class, property):
            raise RefusedError(f"reads {name}, which is computed by its class")
        if name in vars(module):
            return self._plain(name, vars(module)[name])
        # What a class has comes before the parameters and children of its objects.
        held = module._parameters | module._modules if in_class is _MISSING else {}
        if name in held and held[name] is None:
            return self._plain(name, None)
        if name in held and name in module._parameters:
            if module._parameters[name].ndim != 1:
                shape = tuple(module._parameters[name].shape)
                raise RefusedError(f"uses {name} of shape {shape}, expected one axis")
            return Value(symbol(f"self.{name}"), self.reading.dtype, "vector")
        if name in held:
            return Child(name, module._modules[name])
        if name in module._buffers:
            raise RefusedError(f"uses the buffer {name}")
        if in_class is _MISSING:
            raise RefusedError(f"has no {name}")
        if isinstance(in_class, types.FunctionType):
            return Method(kind, name, in_class)
        if isinstance(in_class, staticmethod):
            return self._plain(name, in_class.__func__)
        if hasattr(type(in_class), "__get__"):
            raise RefusedError(f"uses {name}, which is computed by its class")
        return self._plain(name, in_class)

    def _plain(self, name: str, value: Any) -> Any:
        """Return an attribute that holds a value; all but numbers decide what is computed."""
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if is_number and not self.numbers:
            return Attribute(name, value)
        simple = isinstance(value, tuple) and all(isinstance(each, _SIMPLE) for each in value)
        if not (isinstance(value, _SIMPLE) or simple or _is_function(value)):
            raise RefusedError(f"uses {name}, a {type(value).__name__}")
        self.reading.watched[name] = value
        return value

    def _of_parent(self, kind: type, name: str) -> Any:
        order = type(self.module).__mro__
        for each in order[order.index(kind) + 1 :]:
            if name in vars(each):
                return Method(each, name, vars(each)[name])
        raise RefusedError(f"has no inherited {name}")

    def _operation(self, name: str, first: Any, second: Any) -> Any:
        if not any(isinstance(each, (Value, Attribute, Formula)) for each in (first, second)):
            if not all(isinstance(each, (int, float)) for each in (first, second)):
                raise RefusedError(f"computes with a {type(first).__name__}")
            return _CONCRETE[name](first, second)
        return arithmetic(name, first, self.reading.known(second) if name == "pow" else second)

    def _truth(self, node: ast.expr) -> bool:
        return self._is_true(self._value(node), node)

    def _is_true(self, value: Any, node: ast.expr) -> bool:
        found = self.reading.known(value)
        if not isinstance(found, _SIMPLE):
            raise RefusedError(f"branches on {ast.unparse(node)}")
        return bool(found)

    def _either(self, stops_at: bool, parts: list[ast.expr]) -> Any:
        for part in parts:
            found = self._value(part)
            if self._is_true(found, part) is stops_at:
                break
        return found

    def _compare(self, node: ast.Compare) -> bool:
        if len(node.ops) != 1:
            raise RefusedError("compares more than two values")
        kind = type(node.ops[0])
        left, right = (
            self.reading.known(self._value(each)) for each in (node.left, node.comparators[0])
        )
        if kind in (ast.Is, ast.IsNot) and right is None and isinstance(left, (Value, Child)):
            return kind is ast.IsNot
        for each in (left, right):
            parts = each if isinstance(each, tuple) else (each,)
            if not all(isinstance(part, _SIMPLE) for part in parts):
                raise RefusedError(f"branches on {ast.unparse(node)}")
        if kind not in _COMPARISONS:
            raise RefusedError(f"compares by {kind.__name__}")
        if kind in (ast.Is, ast.IsNot) and not {type(left), type(right)} & {bool, type(None)}:
            raise RefusedError(f"asks for one and the same object by {ast.unparse(node)}")
        return bool(_COMPARISONS[kind](left, right))

    def _element(self, owner: Any, index: ast.expr) -> Any:
        if isinstance(owner, Shape):
            if isinstance(index, ast.Slice):
                if ast.unparse(index) == "-1:" and owner.of in ("rows", "vector"):
                    return LastAxis()
                raise RefusedError(f"uses the axes {ast.unparse(index)}")
            return axis_of(owner, self.reading.known(self._value(index)))
        if isinstance(owner, tuple) and not isinstance(index, ast.Slice):
            place = self.reading.known(self._value(index))
            if type(place) is int and -len(owner) <= place < len(owner):
                return owner[place]
        raise RefusedError(f"takes elements [{ast.unparse(index)}]")

    def _call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Name) and node.func.id == "super":
            return self._super(node)
        if any(isinstance(each, ast.Starred) for each in node.args) or any(
            each.arg is None for each in node.keywords
        ):
            raise RefusedError("passes on arguments with * or **")
        called = self._value(node.func)
        args = tuple(map(self._value, node.args))
        keywords = {str(each.arg): self._value(each.value) for each in node.keywords}
        if isinstance(called, Child):
            return self._child(called, args, keywords)
        if isinstance(called, Method):
            return self._method(called, args, keywords)
        if isinstance(called, functools.partial):
            args, keywords = (*called.args, *args), {**called.keywords, **keywords}
            called = called.func
        name = ast.unparse(node.func)
        try:
            if isinstance(called, TensorMethod):
                return called.handler(self.reading, called.value, *args, **keywords)
            if _is_in(called, PURE):
                return called(*map(self._constant, args), **keywords)
            return function_called(called)(self.reading, *args, **keywords)  # type: ignore[misc]
        except TypeError as error:
            raise RefusedError(f"calls {name}() in a way that is not known") from error

    def _constant(self, value: Any) -> Any:
        value = self.reading.known(value)
        if isinstance(value, (*_SIMPLE, tuple)):
            return value
        raise TypeError

    def _super(self, node: ast.Call) -> Parent:
        cell = dict(
            zip(self.function.__code__.co_freevars, self.function.__closure__ or (), strict=True)
        ).get("__class__")
        if node.args or node.keywords or cell is None or "super" in self.function.__globals__:
            raise RefusedError("calls super() with arguments")
        return Parent(cell.cell_contents)

    def _child(self, child: Child, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
        if keywords or len(args) != 1 or not isinstance(args[0], Value) or args[0].shape != "rows":
            raise RefusedError(f"calls its {child.name} with more than a tensor")
        self.reading.calls.append(child.name)
        called = function(f"call {child.name}", args[0].formula)
        return Value(called, self.reading.dtype, "rows")

    def _method(self, method: Method, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
        if method.bound:
            args = (Itself(), *args)
        elif not (args and isinstance(args[0], Itself)):
            raise RefusedError(f"calls {method.name}() of another object")
        callers = (*self.callers, self.function)
        return _Frame(self.module, self.reading, self.numbers, method, callers).run(args, keywords)


@dataclass(frozen=True)
class _Returned:
    value: Any


class _LocatedError(RefusedError):
    """An error that says where it is."""


_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.Pow: "pow",
}
_CONCRETE: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "pow": operator.pow,
}
_COMPARISONS: dict[type, Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}


def _in_class(kind: type, name: str) -> Any:
    """Return an attribute of a class as it is stored."""
    for each in kind.__mro__:
        if name in vars(each):
            return vars(each)[name]
    return _MISSING


def _is_in(found: Any, known: Iterable[Any]) -> bool:
    return any(found is each for each in known)


def _is_module(found: Any) -> bool:
    return _is_in(found, _MODULES)


def _is_function(found: Any) -> bool:
    """Return whether an object is a function whose meaning is known."""
    if type(found) is functools.partial:
        found = found.func
    return _is_in(found, PURE) or function_called(found) is not None
