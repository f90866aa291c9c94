"""The conditions under which a module computes what it was recognised as."""

from __future__ import annotations

import builtins
import copy
import dis
import functools
import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType
from typing import Any

from torch import nn

__all__ = ["Check", "Conditions"]

Check = Callable[[nn.Module], bool]


@dataclass(frozen=True)
class Conditions:
    """Attributes that keep their values, and functions of classes that stay the same.

    The globals that the functions use have to stay the same, too.
    """

    watched: tuple[tuple[str, type, Any], ...] = ()  # attributes with the types and values needed
    functions: tuple[tuple[type, str, str], ...] = ()  # classes, names and digests of functions
    held: tuple[str, ...] = ()  # parameters and children, which nothing of the same name may hide

    @classmethod
    def of(
        cls,
        watched: Mapping[str, Any],
        functions: Iterable[tuple[type, str, Any]],
        held: Iterable[str],
    ) -> Conditions:
        """Return the conditions under which a forward was recognised.

        `watched` are values of attributes, `functions` what runs as which attributes of which
        classes, `held` the parameters and children.
        """
        values = [(name, _copy_partial(value)) for name, value in sorted(watched.items())]
        digests = ((owner, name, _digest(found)) for owner, name, found in functions)
        return cls(
            tuple((name, type(value), value) for name, value in values),
            tuple(sorted(digests, key=lambda each: (each[1], each[0].__qualname__))),
            tuple(sorted(held)),
        )

    @property
    def is_known(self) -> bool:
        """Whether the functions are still the same, as after loading a model."""
        return all(
            _digest(getattr(owner, name, None)) == digest for owner, name, digest in self.functions
        )

    def check(self, kind: type[nn.Module], *, eager: bool = False) -> Check:
        """Return a function that says whether they hold for a module of a swapped class.

        It is one expression, since a loop takes longer than all that is asked of a module like
        SiLU. A compiler traces it unless it is `eager`, and guards on what it reads: a function by
        its code, a global by its object. Each part is one that it can guard on.
        """
        hold = _Conjunction()
        classes = kind.__mro__[: kind.__mro__.index(nn.Module)]
        for name in () if eager else self._called:
            hold.add(f"module.{name}")  # without it, no compiler guards on the field below
        for name in (*self.held, *self._called):
            hold.add(f"{name!r} not in module.__dict__")
        for name in self.held:
            if eager:
                for each in classes:
                    hold.add(f"{name!r} not in {{}}", vars(each))
            else:
                hold.add(f"not hasattr({{}}, {name!r})", kind)
        for name, of, value in self.watched:
            attribute = f"module.{name}"
            if value is None or of is bool:
                hold.add(f"{attribute} is {value}")
            elif of is functools.partial:
                hold.add(f"same_partial({attribute}, {{}})", value)
            else:
                hold.add(f"type(found := {attribute}) is {{}} and found == {{}}", of, value)
        for owner, name, _ in self.functions:
            function = getattr(owner, name)
            # A function that was set on a module's class is called before that of its base.
            is_inherited = name in self._called and getattr(kind, name, None) is function
            where = kind if is_inherited else owner
            hold.add(f"(found := {{}}.{name}) is {{}}", where, function)
            hold.add("found.__code__ is {}", function.__code__)
            hold.add_globals(function)
        return hold.function()

    @property
    def _called(self) -> tuple[str, ...]:
        """The names of the functions that forwards call."""
        return tuple({name: None for _, name, _ in self.functions if name != "forward"})


class _Conjunction:
    """A function of a module that says whether all of some expressions hold."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._values: dict[str, Any] = {"same_partial": _same_partial}

    def add(self, expression: str, *values: Any) -> None:
        """Add an expression of `module` and, for each pair of braces, of a value."""
        names = [f"value{len(self._values) + i}" for i in range(len(values))]
        self._values.update(zip(names, values, strict=True))
        self._parts.append(expression.format(*names))

    def add_globals(self, function: FunctionType) -> None:
        """Add that all names that a function looks up outside of itself stand for the same."""
        own = function.__globals__
        for name in _names_of_globals(function):
            if name not in own:
                self.add(f"{name!r} not in {{}}", own)
            names = own if name in own else vars(builtins)
            self.add(f"{{}}[{name!r}] is {{}}", names, names[name])

    def function(self) -> Check:
        """Return the function, for which what is missing does not hold."""
        body = " and ".join(self._parts) or "True"
        source = (
            f"def hold(module):\n  try:\n    return {body}\n"
            "  except (AttributeError, KeyError):\n    return False"
        )
        exec(source, self._values)
        hold: Check = self._values["hold"]
        return hold


def _names_of_globals(function: FunctionType) -> list[str]:
    """Return the names that a function looks up outside of itself, and finds."""
    # A name that does not exist belongs to a branch that does not run.
    known = function.__globals__.keys() | vars(builtins).keys()
    return [each for each in _globals_of(function.__code__) if each in known]


@functools.lru_cache(maxsize=256)
def _globals_of(code: CodeType) -> tuple[str, ...]:
    """Return the names that a code looks up outside of its function."""
    loads = (each.argval for each in dis.get_instructions(code) if each.opname == "LOAD_GLOBAL")
    return tuple(dict.fromkeys(loads))


def _copy_partial(value: Any) -> Any:
    """Return a partial that does not change with another, whose keywords can be written to."""
    if type(value) is not functools.partial:
        return value
    args, keywords = copy.deepcopy((value.args, value.keywords))
    return functools.partial(value.func, *args, **keywords)


def _same_partial(found: Any, value: Any) -> bool:
    """Return whether two partials call the same; copies of one are not equal."""
    return (
        type(found) is functools.partial
        and type(value) is functools.partial
        and ((found.func, found.args, found.keywords) == (value.func, value.args, value.keywords))
    )


def _digest(function: Any) -> str:
    if type(function) is not FunctionType:
        return type(function).__name__
    code = function.__code__
    facts = (code.co_code, code.co_consts, code.co_names, code.co_varnames)
    found = vars(builtins) | function.__globals__
    used = [_named(found[name]) for name in _names_of_globals(function)]
    return hashlib.sha256(repr((*facts, used)).encode()).hexdigest()[:16]


def _named(value: Any) -> Any:
    """Return a description of a global that is the same in every process."""
    if isinstance(value, ModuleType):
        return value.__name__
    return getattr(value, "__module__", None), getattr(value, "__qualname__", type(value).__name__)
