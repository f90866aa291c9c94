"""What the data sheets of GPUs say of them, as far as the kernel of decode steps depends on it."""

from dataclasses import dataclass

__all__ = ["GPUS", "LATENCY", "Gpu"]

LATENCY = 700e-9  # seconds that a load from a GPU's memory takes: an assumption


@dataclass(frozen=True)
class Gpu:
    """A kind of GPU, in bytes, seconds and hertz."""

    name: str
    architecture: int
    bandwidth: float
    multiprocessors: int
    clock: float
    block_shared_bytes: int  # that a block can have at most
    memory: float

    @property
    def wanted_in_flight(self) -> float:
        """The bytes that each multiprocessor has to have on their way to use all bandwidth."""
        return self.bandwidth * LATENCY / self.multiprocessors

    @property
    def clocks_per_kb(self) -> float:
        """Clocks of a multiprocessor in which its share of the bandwidth brings 1024 bytes."""
        return 1024 / (self.bandwidth / self.multiprocessors / self.clock)

    def slots(self, shared_bytes: dict[int, int]) -> int:
        """Return the ring slots that the executor takes here: four where there is room."""
        return 4 if self.block_shared_bytes >= shared_bytes[4] else 3


GPUS = (
    Gpu("A100-80", 80, 2.039e12, 108, 1.41e9, 163 * 1024, 80e9),
    Gpu("H100-SXM", 90, 3.35e12, 132, 1.755e9, 227 * 1024, 80e9),
    Gpu("B200", 100, 8.0e12, 148, 1.85e9, 227 * 1024, 180e9),
    Gpu("RTX 4090", 89, 1.008e12, 128, 2.52e9, 99 * 1024, 24e9),
)
