"""A record as JSON: a line for each case of a model, with the rounds of each engine."""

import time
from pathlib import Path
from typing import Any

import records
from decode_peers.cases import Case, Engine, Model
from records import rounded, without_paths

__all__ = ["FORMAT", "Record", "read"]

FORMAT = 2


class Record:
    """A measurement in progress.

    Parameters
    ----------
    path : Path or None
    kind : str
        That of the processor.
    settings : dict

    Attributes
    ----------
    content : dict
        All of it, as `read` returns it.
    """

    def __init__(self, path: Path | None, kind: str, settings: dict[str, Any]) -> None:
        self._path = path
        self._start = time.monotonic()
        self.content: dict[str, Any] = records.origin(FORMAT) | {
            "kind": kind,
            "settings": settings,
            "seconds": None,
            "versions": {},
            "engines": {},
            "models": {},
            "busy_elsewhere": {},
            "missing": {},
            "failures": {},
            "cells": {},
        }

    def add_model(self, model: Model, traffic: dict[str, int]) -> None:
        """Note what a step of a model reads."""
        self.content["models"][model.name] = traffic

    def add_engine(self, engine: Engine, versions: dict[str, str]) -> None:
        """Note what an engine is made of, and how it is set."""
        self.content["versions"] |= versions
        self.content["engines"][engine.name] = dict(engine.settings)

    def add_missing(self, model: Model, engine: Engine, reason: str) -> None:
        """Note that an engine does not run a model."""
        self.content["missing"].setdefault(model.name, {})[engine.name] = without_paths(reason)

    def is_missing(self, model: Model, engine: Engine) -> bool:
        """Return whether an engine is known not to run a model."""
        return engine.name in self.content["missing"].get(model.name, {})

    def add_elsewhere(self, model: Model, cores: float | None) -> None:
        """Note how many cores other processes kept busy while a model was measured."""
        self.content["busy_elsewhere"][model.name] = cores

    def add_failure(self, model: Model, case: Case, engine: Engine, reason: str) -> None:
        """Note that an engine failed in a case."""
        key = f"{model.name}, {case.name}"
        self.content["failures"].setdefault(key, {})[engine.name] = without_paths(reason)

    def has_failed(self, model: Model, case: Case, engine: Engine) -> bool:
        """Return whether an engine has failed in a case."""
        return engine.name in self.content["failures"].get(f"{model.name}, {case.name}", {})

    def add(self, model: Model, case: Case, engine: Engine, what: str, value: float) -> None:
        """Note a round: seconds, or bytes of memory."""
        cell = self.content["cells"].setdefault(f"{model.name}, {case.name}", {})
        cell.setdefault(engine.name, {}).setdefault(what, []).append(rounded(value))

    def rounds(self, model: Model, case: Case, engine: Engine) -> int:
        """Return how many rounds of an engine there are."""
        cell = self.content["cells"].get(f"{model.name}, {case.name}", {})
        return len(cell.get(engine.name, {}).get("seconds", ()))

    def write(self) -> None:
        """Write all there is, if there is a file to write it to."""
        self.content["seconds"] = round(time.monotonic() - self._start)
        if self._path is not None:
            dicts = {key for key, value in self.content.items() if isinstance(value, dict)}
            long = dicts - {"commit", "settings"}
            records.write(self._path, records.as_lines(self.content, long))


def read(path: Path) -> dict[str, Any]:
    """Return what `Record.write` wrote; raise a ValueError if the file is of another format."""
    return records.read(path, FORMAT)
