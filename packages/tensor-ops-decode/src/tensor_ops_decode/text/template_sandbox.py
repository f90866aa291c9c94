"""Jinja in a sandbox, with a budget for what one rendering does.

Templates are programs, here from files that others wrote. A template reads nothing but what it is
given, and reaches no attribute with an underscore, no file and no other template. What it does is
paid from two budgets, of steps and of weight, so that its time and its memory are bounded:

- Each iteration, call and filter is a step.
- A character weighs 1, an element of a list 50, and a list what all its elements weigh. What an
  operation reads and what it makes is paid by weight; an iteration and a call by their syntax.
- What an operation multiplies is estimated before: an indented text, a text repeated or replaced.

Nothing may weigh more than `MAX_LENGTH`, so that no list contains itself billions of times. Filters
for HTML, some of which take quadratic time, are left out.
"""

import functools
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence, Set, ValuesView
from types import CodeType, GeneratorType
from typing import Any

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context, LoopContext, Macro, str_join
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

__all__ = ["BoundedEnvironment"]

MAX_STEPS = 300_000
MAX_WEIGHT = 128_000_000
MAX_LENGTH = 16_000_000
MAX_SOURCE = 1_000_000
MAX_EXPONENT = 64
MAX_AMOUNT = 100_000  # of spaces, digits, and what else a number makes
ELEMENT = 50
REFERENCE = 5
SYNTAX = 10
LOOKUP, FAILED_LOOKUP = 20, 200

_LEFT_OUT = ("pprint", "striptags", "urlize", "wordwrap", "xmlattr")
_LEFT_OUT_METHODS = {"encode", "expandtabs", "maketrans", "striptags", "to_bytes", "translate"}
# Filters that read none of what is in their values, and those that only pass it on.
_CONSTANT = {"attr", "count", "d", "default", "first", "items", "last", "length"}
_PASSING = {"list", "map", "reject", "rejectattr", "reverse", "select", "selectattr"}
# Filters and methods whose result may be the product of what they are given.
_MULTIPLYING = {"batch", "center", "format", "indent", "join", "replace", "round", "slice"}
_MULTIPLYING_METHODS = _MULTIPLYING | {"format_map", "ljust", "rjust", "zfill"}
# Tests that read what values contain.
_COMPARING = {
    "!=", "<", "<=", "==", ">", ">=", "eq", "equalto", "ge", "greaterthan", "gt", "in", "le",
    "lessthan", "lower", "lt", "ne", "upper",
}  # fmt: skip
_VARIABLES = {"_loop_vars", "_block_vars"}  # which Jinja gives to calls beside their arguments
_DIGITS = re.compile("[0-9]+")


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """The environment of one rendering, with its budget.

    Templates may use the given extensions, filters and functions beside what Jinja has.
    """

    intercepted_binops = frozenset(["+", "*", "**", "%"])

    def __init__(
        self,
        extensions: Sequence[type[jinja2.ext.Extension]],
        filters: Mapping[str, Callable[..., Any]],
        functions: Mapping[str, Callable[..., Any]],
    ) -> None:
        extensions = [*extensions, _Bounds]
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
        for name in _LEFT_OUT:
            del self.filters[name]
        del self.globals["lipsum"]
        self.filters |= filters
        self.filters = {name: self._paid(name, each) for name, each in self.filters.items()}
        for name in _COMPARING:
            self.tests[name] = self._paid(name, self.tests[name])
        self.globals |= {**functions, "namespace": _Namespace}
        self._steps = MAX_STEPS
        self._weight = MAX_WEIGHT

    def compiled(self, source: str) -> CodeType:
        """Return the code of a template, for environments like this one.

        Raises ValueError if it is too long, and whatever Jinja raises if it is not a template.
        """
        if len(source) > MAX_SOURCE:
            raise ValueError(f"it has more than {MAX_SOURCE} characters")
        tree = _Bounding(self).visit(self.parse(source))
        tree.set_environment(self)
        with warnings.catch_warnings():
            # Python warns of what a template does with constants.
            warnings.simplefilter("ignore", SyntaxWarning)
            return self.compile(tree)

    def step(self) -> None:
        """Pay for one iteration or call."""
        self._steps -= 1
        if self._steps < 0:
            raise SecurityError(f"it takes more than {MAX_STEPS} iterations and calls")

    def pay(self, weight: int) -> None:
        """Pay for what was read or made."""
        self._weight -= weight
        if self._weight < 0:
            raise SecurityError(f"it handles more than {MAX_WEIGHT} characters")

    def weigh(self, *values: object) -> None:
        """Pay for values, with all that they contain."""
        for value in values:
            self.pay(_weight(value))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        if isinstance(getattr(__obj, "__self__", None), _Bounds):
            return super().call(__context, __obj, *args, **kwargs)
        __self.step()
        if isinstance(__obj, (Macro, LoopContext)):  # they pay for themselves
            return super().call(__context, __obj, *args, **kwargs)
        args = tuple(map(_listed, args))
        given = [*args, *(kwargs[name] for name in kwargs.keys() - _VARIABLES)]
        __self.weigh(*given)
        method = getattr(__obj, "__wrapped__", __obj)
        if isinstance(text := getattr(method, "__self__", None), str):
            __self.weigh(text)
            if method.__name__ in _MULTIPLYING_METHODS:
                _check_product(text, given)
        result = super().call(__context, __obj, *args, **kwargs)
        __self.weigh(result)
        return result

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        sized = [each for each in (left, right) if _sized(each)]
        if operator == "%" and isinstance(left, str):
            _check_product(left, [right])
        elif operator == "*" and sized:
            _check_repeated(left, right)
        elif operator == "*" and max(abs(left), abs(right)) > 1 << 64:
            raise SecurityError("a number is over 2**64")
        elif operator == "**" and (abs(right) > MAX_EXPONENT or abs(left) > 1 << 64):
            raise SecurityError(f"an exponent is over {MAX_EXPONENT}, or its base over 2**64")
        self.weigh(*sized)
        result = super().call_binop(context, operator, left, right)
        self.weigh(result)
        return result

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(argument, tuple):  # its hash reads all that it contains
            self.weigh(argument)
        return self._found(super().getitem(obj, argument))

    def getattr(self, obj: Any, attribute: str) -> Any:
        return self._found(super().getattr(obj, attribute))

    def _found(self, value: Any) -> Any:
        self.pay(FAILED_LOOKUP if isinstance(value, jinja2.Undefined) else LOOKUP)
        return value

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return attr not in _LEFT_OUT_METHODS and super().is_safe_attribute(obj, attr, value)

    def joined(self, parts: Iterable[str]) -> str:
        """Join the parts of a text, which are made as they are paid."""
        kept, length = [], 0
        for part in parts:
            self.pay(len(part))
            length += len(part)
            if length > MAX_LENGTH:
                raise SecurityError(f"a text has more than {MAX_LENGTH} characters")
            kept.append(part)
        return "".join(kept)

    concat = joined  # Jinja joins the parts of blocks with it

    def _paid(self, name: str, function: Any) -> Callable[..., Any]:
        """Return a filter or a test that pays for what it does."""

        @functools.wraps(function)
        def paid(*args: Any, **kwargs: Any) -> Any:
            self.step()
            args = tuple(map(_listed, args))
            no_values = (jinja2.Environment, nodes.EvalContext, Context)
            given = [each for each in (*args, *kwargs.values()) if not isinstance(each, no_values)]
            if name in _CONSTANT:
                return function(*args, **kwargs)
            if name in _PASSING:
                self.pay(sum(len(each) for each in given if _sized(each)) * REFERENCE)
                return function(*args, **kwargs)
            self.weigh(*given)
            if name == "sum" and any(isinstance(each, (list, tuple)) for each in given[1:]):
                raise SecurityError("sum adds numbers")  # lists would take quadratic time
            if name in _MULTIPLYING:
                _check_product(given[0] if given else "", given[1:])
            result = _listed(function(*args, **kwargs))
            self.weigh(result)
            return result

        return paid


class _Bounds(jinja2.ext.Extension):
    """Methods that `_Bounding` calls from templates."""

    environment: BoundedEnvironment

    def step(self, weight: int) -> bool:
        self.environment.step()
        self.environment.pay(weight)
        return True

    def weighed(self, value: Any) -> Any:
        value = _listed(value)
        self.environment.weigh(value)
        return value

    def sliced(self, value: Any) -> Any:
        if _sized(value):
            self.environment.pay(len(value) * (1 if isinstance(value, str) else REFERENCE))
        return value

    def concatenate(self, *parts: object) -> str:
        self.environment.weigh(*parts)
        text = str_join(parts)
        self.environment.weigh(text)
        return text


class _Namespace(Namespace):
    """A namespace whose names cannot shadow what Python reads of an object."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        Namespace.__init__(*args, **kwargs)
        for name in dict(*args[1:], **kwargs):
            _check_name(name)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)

    def __repr__(self) -> str:  # which would show what it contains, and that what it contains
        return "<Namespace>"


class _Bounding(NodeTransformer):
    """Makes a template pay for iterations, and for what it makes and reads without a call."""

    def __init__(self, environment: BoundedEnvironment) -> None:
        self._bounds = environment.extensions[_Bounds.identifier]

    def _step(self, node: nodes.Node) -> nodes.Expr:
        size = sum(1 for _ in node.find_all(nodes.Node)) * SYNTAX
        return self._bounds.call_method("step", [nodes.Const(size)], lineno=node.lineno)

    def _weighed(self, node: nodes.Expr) -> nodes.Expr:
        if isinstance(node, nodes.Const):
            return node
        return self._bounds.call_method("weighed", [node], lineno=node.lineno)

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802
        step = self._step(node)
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(step, lineno=node.lineno))
        if node.test is not None:
            node.test = nodes.And(step, node.test, lineno=node.lineno)
        return node

    def _visit_body(self, node: Any) -> Any:
        step = self._step(node)
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(step, lineno=node.lineno))
        return node

    visit_Macro = visit_CallBlock = visit_Block = _visit_body  # noqa: N815

    def visit_Concat(self, node: nodes.Concat) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        return self._bounds.call_method("concatenate", list(node.nodes), lineno=node.lineno)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        if not isinstance(node.arg, nodes.Slice):
            return node
        return self._bounds.call_method("sliced", [node], lineno=node.lineno)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Compare:  # noqa: N802
        self.generic_visit(node)
        node.expr = self._weighed(node.expr)
        for operand in node.ops:
            operand.expr = self._weighed(operand.expr)
        return node

    def visit_List(self, node: nodes.List) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        return self._weighed(node)

    visit_Dict = visit_List  # noqa: N815

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        return node if node.ctx == "store" else self._weighed(node)


def _weight(value: object) -> int:
    """Return the weight of a value, which is at most `MAX_LENGTH`."""
    if isinstance(value, str):
        weight, waiting = len(value), []
    else:
        weight, waiting = 0, [value]
    while waiting and weight + len(waiting) * ELEMENT <= MAX_LENGTH:
        each: Any = waiting.pop()
        weight += ELEMENT
        if isinstance(each, str):
            weight += len(each)
        elif isinstance(each, range):
            weight += len(each) * ELEMENT
        elif isinstance(each, Mapping):
            waiting.extend(each.keys())
            waiting.extend(each.values())
        elif isinstance(each, (list, tuple, Set, ValuesView)):
            waiting.extend(each)
    if waiting or weight > MAX_LENGTH:
        raise SecurityError(f"a text or list weighs more than {MAX_LENGTH} characters")
    return weight


def _check_product(first: Any, others: list[Any]) -> None:
    """Raise an error if what multiplies one value by others may be too much."""
    parts = [part for each in others for part in (each if isinstance(each, tuple) else [each])]
    amounts = [abs(part) for part in parts if isinstance(part, int)]
    if isinstance(first, str) and ("%" in first or "{" in first):
        amounts += [int(digits[:9]) for digits in _DIGITS.findall(first)]
    if max(amounts, default=0) > MAX_AMOUNT:
        raise SecurityError(f"an amount is over {MAX_AMOUNT}")
    factor = 1 + sum(amounts) + sum(map(_weight, others))
    if _weight(first) * factor > MAX_WEIGHT:
        raise SecurityError(f"it may make more than {MAX_WEIGHT} characters")


def _check_repeated(left: Any, right: Any) -> None:
    """Raise an error if a text or list repeated is too long."""
    for value, times in ((left, right), (right, left)):
        if _sized(value) and isinstance(times, int) and _weight(value) * times > MAX_LENGTH:
            raise SecurityError(f"a text or list has more than {MAX_LENGTH} characters")


def _sized(value: object) -> bool:
    return hasattr(value, "__len__")


def _listed(value: Any) -> Any:
    """Return the elements of a generator, since they would be made while no one pays."""
    return list(value) if isinstance(value, GeneratorType) else value


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace cannot have the name {name!r}")
