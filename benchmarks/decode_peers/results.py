"""Results of a record: medians, and ratios that are taken round by round."""

import statistics
from collections.abc import Sequence
from typing import Any

from decode_peers.cases import CASES, QUANTIZED, START_ROOM, TWO_TERMS, Case
from harness.rounds import Figure, figure

__all__ = ["Results"]

GIGA = 1e9


class Results:
    """The cells of a record.

    Attributes
    ----------
    content : dict
    kind : str
        That of the processor.
    """

    def __init__(self, content: dict[str, Any]) -> None:
        self.content = content
        self.kind: str = content["kind"]

    def engines(self, model: str, case: str) -> list[str]:
        """Return the engines that were measured, in the order in which they took turns."""
        return list(self._cell(model, case))

    def rounds(self, model: str, case: str, engine: str, what: str = "seconds") -> list[float]:
        """Return what was measured of an engine, round by round; nothing if it was not."""
        found: list[float] = self._cell(model, case).get(engine, {}).get(what, [])
        return found

    def median(self, model: str, case: str, engine: str, what: str = "seconds") -> float | None:
        """Return the median of the rounds."""
        found = self.rounds(model, case, engine, what)
        return statistics.median(found) if found else None

    def rate(self, model: str, case: str, engine: str) -> float | None:
        """Return tokens per second."""
        seconds = self.median(model, case, engine)
        if seconds is None:
            return None
        return CASES[case].tokens_per_time / seconds

    def times_as_fast(self, model: str, case: str, engine: str, other: str) -> Figure | None:
        """Return how many times as fast an engine is as another."""
        return figure(
            lambda own, others: others / own,
            self.rounds(model, case, engine),
            self.rounds(model, case, other),
        )

    def times_as_fast_as_best(
        self, model: str, case: str, engine: str, others: Sequence[str]
    ) -> Figure | None:
        """Return how many times as fast an engine is as the fastest of others, by their medians.

        None if one of the others was not asked. One that does not run the case is passed over.
        """
        times = {other: self.median(model, case, other) for other in others}
        if any(
            seconds is None and not self.does_not_run(model, case, other)
            for other, seconds in times.items()
        ):
            return None
        found = {other: seconds for other, seconds in times.items() if seconds is not None}
        if not found:
            return None
        return self.times_as_fast(model, case, engine, min(found, key=found.__getitem__))

    def does_not_run(self, model: str, case: str, engine: str) -> bool:
        """Return whether the record says that an engine does not run a case of a model."""
        failures = self.content["failures"].get(f"{model}, {case}", {})
        return engine in failures or engine in self.content["missing"].get(model, {})

    def of_bandwidth(self, model: str, case: str, engine: str) -> Figure | None:
        """Return the rate at which a step reads, as a fraction of the bandwidth of its round."""
        return figure(
            lambda own, gigabyte: self.bytes_of_step(model, CASES[case]) / GIGA * gigabyte / own,
            self.rounds(model, case, engine),
            self.rounds(model, case, "read"),
        )

    def of_products(self, model: str, engine: str, case: str = "prompt") -> Figure | None:
        """Return the rate at which prompts multiply, as a fraction of what the cores can.

        Two int8 terms are two products.
        """
        terms = 2 if model in QUANTIZED and engine in TWO_TERMS else 1
        return figure(
            lambda own, billion: terms * self._billions(model, case) * billion / own,
            self.rounds(model, case, engine),
            self.rounds(model, case, "multiply"),
        )

    def attention_of_bandwidth(self, model: str, case: str, engine: str) -> Figure | None:
        """Return the rate at which a longer context is read, beside the bandwidth.

        It is what a step with that context takes longer than one after a short prompt.
        """

        def fraction(own: float, base: float, gigabyte: float) -> float:
            long, short = (self.bytes_of_step(model, CASES[name]) for name in (case, "decode"))
            return (long - short) / GIGA * gigabyte / max(own - base, 1e-9)

        return figure(
            fraction,
            self.rounds(model, case, engine),
            self._decode_beside(model, case, engine),
            self.rounds(model, case, "read"),
        )

    def steps_of_one(self, model: str, case: str, engine: str) -> Figure | None:
        """Return how many times as long a step of several sequences takes as that of one."""
        return figure(
            lambda own, one: own / one,
            self.rounds(model, case, engine),
            self._decode_beside(model, case, engine),
        )

    def memory_besides(self, model: str, engine: str) -> Figure | None:
        """Return the megabytes that a new process keeps beside the weights and the cache."""
        traffic = self.content["models"].get(model)
        if traffic is None:
            return None
        needed = traffic["weights"] + START_ROOM.positions * traffic["position"]
        found = self.rounds(model, "start", engine, "resident")
        return figure(lambda resident: (resident - needed) / 1e6, found)

    def bandwidth(self, model: str, case: str) -> float | None:
        """Return the bytes per second at which memory was read."""
        gigabyte = self.median(model, case, "read")
        return GIGA / gigabyte if gigabyte else None

    def products(self, model: str, case: str) -> float | None:
        """Return the products per second of the cores, in the type of a model."""
        billion = self.median(model, case, "multiply")
        return GIGA / billion if billion else None

    def bytes_of_step(self, model: str, case: Case) -> float:
        """Return what a step reads: the weights once, and the caches of all sequences.

        The caches are those in the middle of the steps that are timed.
        """
        traffic = self.content["models"][model]
        positions = case.sequences * (case.length + case.new / 2)
        read: float = traffic["weights"] + traffic["position"] * positions
        return read

    def _decode_beside(self, model: str, case: str, engine: str) -> list[float]:
        """Return the turns of the case ``decode`` right before those of another case.

        Records that have none were made when those of the same round had to do.
        """
        found = self.rounds(model, case, engine, "decode")
        return found or self.rounds(model, "decode", engine)

    def _billions(self, model: str, case: str) -> float:
        """Return how many billion products with weights prompts have."""
        products: float = self.content["models"][model]["products"]
        return products * CASES[case].tokens_per_time / GIGA

    def _cell(self, model: str, case: str) -> dict[str, Any]:
        found: dict[str, Any] = self.content["cells"].get(f"{model}, {case}", {})
        return found
