"""Figures from the data sheets of GPUs, as far as the kernel of decode steps depends on them."""

from dataclasses import dataclass, replace

__all__ = ["ATTAINABLE", "GPUS", "LATENCY", "Gpu", "gpu_named"]

# Assumptions: the part of the bandwidth in the data sheet that copies reach, where none was timed,
# and the seconds that a load from a GPU's memory takes.
ATTAINABLE = 0.90
LATENCY = 700e-9


@dataclass(frozen=True)
class Gpu:
    """A kind of GPU, in bytes, seconds and hertz."""

    name: str
    driver_name: str  # as nvidia-smi shows it
    architecture: int
    bandwidth: float
    multiprocessors: int
    clock: float
    block_shared_bytes: int  # that a block can have at most
    memory: float
    copied: float | None = None  # what a copy reads and writes in a second, where one was timed

    @property
    def attainable(self) -> float:
        """The bytes that are read in a second when nothing else is waited for."""
        return self.copied or ATTAINABLE * self.bandwidth

    def as_found(self, copied: float | None = None, clock: float | None = None) -> "Gpu":
        """Return this GPU with what was found on one: the bandwidth of a copy, and the clock."""
        return replace(self, copied=copied or self.copied, clock=clock or self.clock)

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


# Clocks are what `nvidia-smi -q -d CLOCK` shows as the largest of A100, H100 and H200, and those of
# the data sheets of the others.
GPUS = (
    Gpu("A100-80", "NVIDIA A100-SXM4-80GB", 80, 2.039e12, 108, 1.41e9, 163 * 1024, 80e9),
    Gpu("H100-SXM", "NVIDIA H100 80GB HBM3", 90, 3.35e12, 132, 1.98e9, 227 * 1024, 80e9),
    Gpu("H200", "NVIDIA H200", 90, 4.8e12, 132, 1.98e9, 227 * 1024, 141e9),
    Gpu("B200", "NVIDIA B200", 100, 8.0e12, 148, 1.85e9, 227 * 1024, 180e9),
    Gpu("RTX 4090", "NVIDIA GeForce RTX 4090", 89, 1.008e12, 128, 2.52e9, 99 * 1024, 24e9),
)


def gpu_named(driver_name: str) -> Gpu | None:
    """Return the GPU that a driver calls so, if there are predictions for it.

    Others of nearly the same name have less bandwidth, memory or multiprocessors.
    """
    return next((gpu for gpu in GPUS if gpu.driver_name == driver_name), None)
