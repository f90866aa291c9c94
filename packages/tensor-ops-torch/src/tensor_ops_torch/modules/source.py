"""The syntax tree of a function, known to be that of the code that runs."""

from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

__all__ = ["RefusedError", "definition_of", "forget_sources"]


class RefusedError(Exception):
    """A module is not known to be what an op computes; the message says why.

    `missing` is the name of what the module computes, where that is known and no op computes it.
    """

    def __init__(self, message: str = "", missing: str | None = None) -> None:
        super().__init__(message)
        self.missing = missing


def definition_of(function: Any) -> ast.FunctionDef:
    """Return the definition of a function, or raise RefusedError.

    A source file may have changed since it was imported, and a function may have been put in the
    place of another: the file is compiled again, and has to give the very code of the function.
    """
    if type(function) is not FunctionType:
        raise RefusedError(f"is a {type(function).__name__}, not a function written in Python")
    code = function.__code__
    lines = linecache.getlines(code.co_filename, function.__globals__)
    if not lines:
        raise RefusedError("has no source code that can be read")
    if code not in _codes_of(code.co_filename, "".join(lines)):
        raise RefusedError(f"is not what {code.co_filename} has now")
    if inspect.isgeneratorfunction(function):
        raise RefusedError("is a generator")
    definition = _definition(lines, code)
    if definition.decorator_list:
        raise RefusedError("is decorated")
    return definition


def forget_sources() -> None:
    """Forget what files were compiled to, which takes as much memory as their modules."""
    _codes_of.cache_clear()


@lru_cache(maxsize=32)
def _codes_of(name: str, text: str) -> frozenset[CodeType]:
    """Return the codes of all functions of a file."""
    try:
        return frozenset(_codes(compile(text, name, "exec", dont_inherit=True)))
    except (SyntaxError, ValueError):
        return frozenset()


def _definition(lines: list[str], code: CodeType) -> ast.FunctionDef:
    first = code.co_firstlineno
    try:
        block = "".join(inspect.getblock(lines[first - 1 :]))
        # Indented as it is: to take that away would change its strings.
        (whole,) = ast.parse("if True:\n" + block if block[:1].isspace() else block).body
    except (SyntaxError, ValueError, IndexError) as error:
        raise RefusedError("has source code that stands in no block of its own") from error
    (definition,) = whole.body[:1] if isinstance(whole, ast.If) else (whole,)
    if not isinstance(definition, ast.FunctionDef) or definition.name != code.co_name:
        raise RefusedError("has source code that stands in no block of its own")
    return ast.increment_lineno(definition, first - 1 - isinstance(whole, ast.If))


def _codes(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _codes(each)
