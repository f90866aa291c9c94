"""The arguments with which decode programs are compiled, checked before they are native."""

from collections.abc import Mapping

__all__ = ["check_compile", "encoded", "options_dict"]


def encoded(where: str, program: object) -> bytes:
    """Return a program's text in UTF-8, which the native reader checks."""
    if isinstance(program, str):
        return program.encode(errors="surrogatepass")
    if isinstance(program, bytes):
        return program
    raise TypeError(f"{where}: program must be a str of JSON, got {type(program).__name__}")


def options_dict(where: str, options: object) -> dict[str, object] | None:
    """Return the options of an executable as a dict, None if there are none.

    Raises
    ------
    TypeError
        If they are no mapping.
    """
    if options is None:
        return None
    if not isinstance(options, Mapping):
        raise _wrong(where, "options", "a mapping or None", options)
    return dict(options)


def check_compile(where: str, tensors: object, progress: object) -> None:
    """Raise a TypeError unless tensors are a mapping, and `progress` can be called if it is given.

    What is in the mapping is not looked at.
    """
    if not isinstance(tensors, Mapping):
        raise _wrong(where, "tensors", "a mapping of names", tensors)
    if progress is not None and not callable(progress):
        raise _wrong(where, "progress", "callable", progress)


def _wrong(where: str, name: str, expected: str, given: object) -> TypeError:
    return TypeError(f"{where}: {name} must be {expected}, got {type(given).__name__}")
