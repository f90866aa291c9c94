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
import operator
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from tensor_ops_torch.modules.algebra import Formula
from tensor_ops_torch.modules.functions import PURE, arithmetic, axis_of, call_of, function_called
from tensor_ops_torch.modules.refusal import RefusedError
from tensor_ops_torch.modules.source import definition_of
from tensor_ops_torch.modules.subject import MISSING, SIMPLE, Reading, Subject, in_class, is_in
from tensor_ops_torch.modules.values import (
    Attribute,
    Child,
    Itself,
    Method,
    Parent,
    Shape,
    TensorMethod,
    Value,
    X,
)

__all__ = ["Reading", "read"]

_DEEPEST = 8  # calls of the module's own functions within one another


def read(module: nn.Module, dtype: torch.dtype, *, numbers: bool = False) -> Reading:
    """Read the forward of a module for a call with one tensor of a dtype.

    The module's parameters are taken to have that dtype, too. `numbers` says whether attributes
    that hold numbers are constants, and watched.

    Raises RefusedError, naming what is not known, and its line.
    """
    kind = type(module)
    if in_class(kind, "__getattribute__") is not object.__getattribute__ or (
        in_class(kind, "__getattr__") is not nn.Module.__getattr__
    ):
        raise RefusedError(f"its class {kind.__name__} has attributes of its own making")
    if in_class(kind, "__call__") is not nn.Module.__call__:
        raise RefusedError(f"its class {kind.__name__} has a __call__ of its own")
    reading = Reading(dtype)
    x = Value(X, dtype, "rows")
    forward = Method(kind, "forward", kind.forward)
    found = _Frame(Subject(module, reading, numbers), forward, ()).run((Itself(), x), {})
    if not isinstance(found, Value) or found.shape != "rows":
        raise RefusedError("its forward does not return a tensor of its input's shape")
    if found.dtype is not dtype and not reading.calls:
        raise RefusedError(f"its forward returns {found.dtype} for {dtype}")
    reading.formula = found.formula
    return reading


@dataclass
class _Frame:
    """A call of a function: the syntax tree is followed statement by statement."""

    subject: Subject
    method: Method
    callers: tuple[Any, ...]
    variables: dict[str, Any] = field(default_factory=dict)

    @property
    def reading(self) -> Reading:
        return self.subject.reading

    @property
    def function(self) -> Any:
        return self.method.function

    @property
    def name(self) -> str:
        return self.method.name

    @property
    def cells(self) -> dict[str, types.CellType]:
        code = self.function.__code__
        return dict(zip(code.co_freevars, self.function.__closure__ or (), strict=True))

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
        for returned in self._statements(definition.body):
            return returned
        raise RefusedError(f"its {self.name} returns nothing")

    def _bind(
        self, definition: ast.FunctionDef, args: tuple[Any, ...], keywords: Mapping[str, Any]
    ) -> None:
        function, given = self.function, definition.args
        if self.cells.keys() - {"__class__"}:
            raise RefusedError(f"uses variables around it: {', '.join(sorted(self.cells))}")
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
            if not isinstance(bound[name], SIMPLE):
                raise RefusedError(f"has the default {name}={bound[name]!r}, which may change")
        self.variables |= bound

    # Statements. Each yields nothing, or once what the function returns.

    def _statements(self, body: list[ast.stmt]) -> Iterator[Any]:
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

    def _statement(self, node: ast.stmt) -> Iterator[Any]:
        match node:
            case ast.Return(value=value):
                yield None if value is None else self._value(value)
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
                return self.subject.get(self._value(owner), name)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return tuple(map(self._value, parts))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not self._truth(operand)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self._operation(ast.Mult, self._value(operand), -1)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self._value(operand)
            case ast.BinOp(left=left, op=kind, right=right):
                if type(kind) not in _BINARY:
                    raise RefusedError(f"computes with {type(kind).__name__}")
                return self._operation(type(kind), self._value(left), self._value(right))
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
        found = self.function.__globals__.get(name, MISSING)
        if found is MISSING:
            found = getattr(builtins, name, MISSING)
        if self.subject.knows(found):
            return found
        raise RefusedError(f"uses the global {name}")

    def _is_local(self, name: str) -> bool:
        code = self.function.__code__
        return name in code.co_varnames or name in code.co_cellvars

    def _operation(self, kind: type[ast.operator], first: Any, second: Any) -> Any:
        operation = _BINARY[kind]
        if not any(isinstance(each, (Value, Attribute, Formula)) for each in (first, second)):
            if not all(isinstance(each, (int, float)) for each in (first, second)):
                raise RefusedError(f"computes with a {type(first).__name__}")
            return operation(first, second)
        exponent = operation is operator.pow
        return arithmetic(operation, first, self.reading.known(second) if exponent else second)

    def _truth(self, node: ast.expr) -> bool:
        return self._is_true(self._value(node), node)

    def _is_true(self, value: Any, node: ast.expr) -> bool:
        found = self.reading.known(value)
        if not isinstance(found, SIMPLE):
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
        both = map(self._value, (node.left, node.comparators[0]))
        left, right = map(self.reading.known, both)
        if kind in (ast.Is, ast.IsNot) and right is None and isinstance(left, (Value, Child)):
            return kind is ast.IsNot
        for each in (left, right):
            parts = each if isinstance(each, tuple) else (each,)
            if not all(isinstance(part, SIMPLE) for part in parts):
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
                    return Shape("vector")
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
        starred = any(isinstance(each, ast.Starred) for each in node.args)
        if starred or any(each.arg is None for each in node.keywords):
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
            if is_in(called, PURE):
                return called(*map(self._constant, args), **keywords)
            return function_called(called)(self.reading, *args, **keywords)  # type: ignore[misc]
        except TypeError as error:
            raise RefusedError(f"calls {name}() in a way that is not known") from error

    def _constant(self, value: Any) -> Any:
        value = self.reading.known(value)
        if isinstance(value, (*SIMPLE, tuple)):
            return value
        raise TypeError

    def _super(self, node: ast.Call) -> Parent:
        cell = self.cells.get("__class__")
        if node.args or node.keywords or cell is None or "super" in self.function.__globals__:
            raise RefusedError("calls super() with arguments")
        return Parent(cell.cell_contents)

    def _child(self, child: Child, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
        if keywords or len(args) != 1 or not isinstance(args[0], Value) or args[0].shape != "rows":
            raise RefusedError(f"calls its {child.name} with more than a tensor")
        self.reading.calls.append(child.name)
        return Value(call_of(child.name, args[0].formula), self.reading.dtype, "rows")

    def _method(self, method: Method, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
        if method.bound:
            args = (Itself(), *args)
        elif not (args and isinstance(args[0], Itself)):
            raise RefusedError(f"calls {method.name}() of another object")
        callers = (*self.callers, self.function)
        return _Frame(self.subject, method, callers).run(args, keywords)


class _LocatedError(RefusedError):
    """An error that says where it is."""


_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
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
