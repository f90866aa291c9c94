"""The process of one peer: python -m comparison.worker PEER THREADS."""

import functools
import gc
import importlib
import importlib.metadata
import sys
from typing import Any

import numpy as np

from comparison import cases, timing
from comparison.cases import REUSED, Case
from harness.worker import answer_all, failure, own_stdout
from peers import UnsupportedError, Way
from tensor_ops.op.accuracy import Bound, measure
from tensor_ops.variants import VARIANTS

__all__ = ["main"]


class Worker:
    """The answers of one peer.

    Parameters
    ----------
    module : module
        Of the package ``peers``.
    threads : int
    """

    def __init__(self, module: Any, threads: int) -> None:
        self._peer = module
        self._ways: dict[str, Way] = {}
        module.start(threads)

    def hello(self) -> dict[str, Any]:
        """Say who answers."""
        versions = {name: _version(name) for name in self._peer.PACKAGES}
        known = {name: version for name, version in versions.items() if version}
        return {"label": self._peer.LABEL, "versions": known}

    def prepare(self, case: dict[str, Any], is_known: bool = False) -> dict[str, Any]:
        """Get ready for a case; unless it is known, say how many calls of each way make a round."""
        wanted = Case.from_dict(case)
        takes_any = getattr(self._peer, "TAKES_ARGUMENTS", True)
        self._ways = self._make(wanted, cases.arguments(wanted) if takes_any else {})
        if is_known:
            return {}
        return {
            "ways": {
                name: dict(zip(("calls", "seconds"), timing.calls_per_round(way.call), strict=True))
                for name, way in self._ways.items()
            }
        }

    def time(self, way: str, calls: int) -> dict[str, Any]:
        """Take a turn, and answer when every thread has come to rest."""
        seconds = timing.time_round(self._ways[way].call, calls)
        return {"seconds": seconds, "rests": timing.rest()}

    def drop(self) -> dict[str, Any]:
        """Give back the memory of a case."""
        self._ways = {}
        gc.collect(0)  # what is older than the case, all of the library, need not be searched
        return {}

    def errors(self, case: dict[str, Any]) -> dict[str, Any]:
        """Return the largest error of each way, on the fixed small input."""
        wanted = Case.from_dict(case)
        small = cases.tails(wanted)
        bound = VARIANTS[wanted.variant].op.bounds[wanted.dtype]
        found = {}
        for name, way in self._make(small, cases.with_tails(small)).items():
            results = way.read(way.call())
            found[name] = _error(results, _reference(wanted.variant, wanted.dtype), bound)
        return {"errors": found}

    def _make(self, case: Case, values: dict[str, Any]) -> dict[str, Way]:
        if case.variant not in getattr(self._peer, "HAS", VARIANTS):
            raise UnsupportedError(f"no {case.variant} is written for {self._peer.LABEL}")
        out = cases.outputs(case, values) if case.mode == REUSED and values else None
        ways: dict[str, Way] = self._peer.ways(case, values, out)
        return ways


def _error(
    results: tuple[Any, ...], expected: list[tuple[Any, Any]], bound: Bound
) -> dict[str, Any]:
    """Return the largest error in the unit of a bound, and relative to the row's largest element.

    The second tells a formula that loses the digits of small results from one that is wrong.
    """
    pairs = [(got, wanted) for got, (wanted, _) in zip(results, expected, strict=True)]
    terms = [each for _, each in expected]
    measured = [measure(*pair, bound, each) for pair, each in zip(pairs, terms, strict=True)]
    worst = max(measured, key=lambda each: (not each.within, each.error))
    of_row = max(measure(*pair, Bound(np.inf, "row")).error for pair in pairs)
    return {
        "error": worst.error if worst.problem is None else None,
        "of_row": of_row if worst.problem is None else None,
        "within": worst.within,
        "problem": worst.problem,
    }


@functools.lru_cache(maxsize=1)
def _reference(variant: str, dtype: str) -> list[tuple[Any, Any]]:
    """Return the NumPy body's results in float64 on the input that errors are measured on.

    Beside each is what is to be known of its terms.
    """
    small = cases.tails(Case(variant, dtype, (), 1, REUSED))
    values = {name: value.astype(np.float64) for name, value in cases.with_tails(small).items()}
    op, options = VARIANTS[variant].op, VARIANTS[variant].options
    result = op.numpy(**values, **options)
    results = result if isinstance(result, tuple) else (result,)
    return list(zip(results, op.terms_of({**values, **options}), strict=True))


def main(name: str, threads: int) -> None:
    """Answer until there are no more questions."""
    write = own_stdout()
    gc.disable()
    try:
        worker = Worker(importlib.import_module(f"peers.{name}"), threads)
    except ImportError as error:
        write({"absent": str(error)})
        return
    gc.collect()
    write(worker.hello())

    def failed(error: Exception) -> dict[str, Any]:
        if isinstance(error, UnsupportedError | ImportError):  # or a part of it is not installed
            return {"unsupported": str(error)}
        worker.drop()
        return failure(error)

    answer_all(worker, write, failed)


def _version(distribution: str) -> str | None:
    """Return the version of what is installed; a peer may do without some of its packages."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
