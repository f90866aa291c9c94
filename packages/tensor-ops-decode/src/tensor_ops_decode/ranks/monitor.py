"""A script that outlives a rank, and tells that it has ended where nothing else can.

When a process of MPICH ends, its ``mpiexec`` ends all others at once: none of them can tell which
rank has ended, and where it was by ``os._exit(0)``, the exit status says that all is well. A
monitor holds the connection to ``mpiexec`` of its rank for some seconds after that, in which the
others end by themselves, and names the rank.

It is run as ``python monitor.py CONNECTION FOLDER RANK WORLD_SIZE PROCESS OTHERS...``. Its standard
input ends with the rank; it had ``.`` before if the rank ends as it should, and ``!`` if the rank
has told itself why it ends.

Tested by tests/ranks/test_faults.py.
"""

import contextlib
import os
import signal
import sys
import time

__all__ = ["first_to_tell"]

_TOLD = "told"
_SECONDS = 3.0  # for which the others have to end


def first_to_tell(folder: str) -> bool:
    """Return whether no process of this machine has told yet why the ranks end, and note it."""
    try:
        os.close(os.open(os.path.join(folder, _TOLD), os.O_CREAT | os.O_EXCL))
    except (FileExistsError, FileNotFoundError):  # the latter when all has been cleaned up
        return False
    except OSError:  # the disk is full: rather twice than never
        return True
    return True


def _watch(
    connection: str, folder: str, rank: str, world_size: str, process: str, *others: str
) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # which are for the rank
        signal.signal(number, signal.SIG_IGN)
    last_words = sys.stdin.buffer.read()
    if last_words == b".":
        return
    if last_words == b"!":
        os.close(int(connection))  # so that mpiexec ends the others
    elif first_to_tell(folder):
        with contextlib.suppress(OSError):
            print(
                f"tensor-ops: rank {rank} of {world_size}, the process {process}, was ended from "
                "outside or by os._exit(); all ranks end",
                file=sys.stderr,
                flush=True,
            )
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end and any(map(_is_there, others)):
        time.sleep(0.02)
    for each in filter(_is_there, others):
        with contextlib.suppress(OSError):
            os.kill(int(each), signal.SIGKILL)
    for remove, path in ((os.unlink, os.path.join(folder, _TOLD)), (os.rmdir, folder)):
        with contextlib.suppress(OSError):
            remove(path)


def _is_there(process: str) -> bool:
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            return file.read().rpartition(b") ")[2][:1] not in (b"Z", b"X")
    except OSError:
        return False


if __name__ == "__main__":
    _watch(*sys.argv[1:])
