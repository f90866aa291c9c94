"""The ranks that run a program's shards together, as an executor sees them."""

from abc import ABC, abstractmethod
from typing import NoReturn

from tensor_ops_decode.errors import RankError
from tensor_ops_decode.kinds.kind import Array

__all__ = ["RankGroup"]


class RankGroup(ABC):
    """This rank among those that run the shards of one program, all with the same steps.

    ``compile_program`` of an executor takes one as ``ranks=``. The nodes that exchange values call
    it in the order in which they run, on every rank alike. An executor with threads of its own may
    use `window` instead of `exchange`, where there is one.

    Attributes
    ----------
    rank, world_size : int
        Ranks are numbered from 0 on.
    """

    rank: int
    world_size: int

    @property
    def rank_here(self) -> int:
        """The number of this rank among those of its machine, by which it takes a device."""
        return self.rank

    @abstractmethod
    def exchange(self, send: Array, receive: Array) -> None:
        """Give a vector to all ranks, and get those of all.

        Parameters
        ----------
        send : ndarray of float32 or float64, shape (n,)
            C-contiguous, as `receive`.
        receive : ndarray of the same dtype, shape (world_size, n)
            Row r becomes what rank r has sent.

        Raises
        ------
        RankError
            If a rank has ended, has failed, or does not come before the deadline.
        """

    def window(self, num_bytes: int) -> Array | None:
        """Return memory that all ranks share, filled with zeros; None where they share none.

        All ranks call it, with the same size, once for each executable.

        Parameters
        ----------
        num_bytes : int

        Returns
        -------
        ndarray of uint8, shape (num_bytes,), or None
            It begins at a multiple of 64 bytes. Executables write to it for as long as they exist.
        """
        return None

    @abstractmethod
    def while_waiting(self, seconds: float, ranks: tuple[int, ...]) -> None:
        """Raise an error if it is of no use to wait any longer.

        An executor that waits in a window calls it about twenty times a second, with the GIL.

        Parameters
        ----------
        seconds : float
            For how long it has waited.
        ranks : tuple of int
            Those that have not come.

        Raises
        ------
        RankError
            If one of them has ended, or the deadline is over.
        KeyboardInterrupt
            If the user has interrupted this process.
        """

    def give_up(self, message: str, rank: int) -> NoReturn:
        """Raise the error of another rank, of which an executor has learnt in the window.

        Parameters
        ----------
        message : str
        rank : int
            The one that has failed, or that runs another step.

        Raises
        ------
        RankError
        """
        raise RankError(message, rank)
