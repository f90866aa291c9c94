"""Packed weights kept in a file, so that a model need not be packed again.

The file is one of safetensors: ``packed`` has the bytes that the backend's executable has written,
and tables that were quantized on their way from the model's file are beside it, under their names
in the program. Its metadata have the layout, the model files, and a checksum of each tensor, which
is compared whenever the file is mapped.
"""

import contextlib
import glob
import hashlib
import json
import mmap
import os
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from tensor_ops.extension import check_owner, warn_caller
from tensor_ops_decode.program import Program
from tensor_ops_decode.program.node_slots import tables_of
from tensor_ops_decode.weights import Weights
from tensor_ops_decode.weights.mapped_file import FileFormatError
from tensor_ops_decode.weights.safetensors import header_of, open_safetensors
from tensor_ops_decode.weights.tensor import TensorPlace

if sys.platform != "win32":
    import fcntl

__all__ = ["PACKED", "PackedFile", "cache_folder", "new_file"]

PACKED = "packed"
CHECKSUMS = "checksums"  # the key of the metadata; files of an older layout lack it
NO_CHECKSUM = "0" * 16  # while the file is being written

Checksum = Callable[[NDArray[np.uint8]], str]


def cache_folder(cache: object, path: str) -> Path | None:
    """Return the folder in which packed weights of a model are kept, None where they are not.

    The cache is a folder that is there, or True for the model's own; the path is that of the model.
    """
    if cache is None or cache is False:
        return None
    if cache is True:
        place = Path(path)
        return place if place.is_dir() else place.parent
    if not isinstance(cache, (str, os.PathLike)):
        raise TypeError(
            f"cache must be a folder, or True for the folder of the model, got {cache!r}"
        )
    folder = Path(cache)
    if not folder.is_dir():
        raise ValueError(f"cache must be a folder, got {str(folder)!r}, which is none; create it")
    return folder


class PackedFile:
    """The file of one program's packed weights, which may not be there yet.

    The weights are the files of the model. The limits of the program have no part in it. The layout
    is what the backend says about how it packs the program, and the checksum its
    ``packed_checksum``.
    """

    def __init__(
        self, folder: Path, weights: Weights, program: Program, layout: str, checksum: Checksum
    ) -> None:
        self._files = weights.files
        self._checksum = checksum
        # The tables whose rows are looked up in another type than the file has.
        tables = [name for node in program.nodes for name in tables_of(node)]
        sources = {name: program.tensors[name].source for name in tables}
        self._tables = [name for name in tables if sources[name].get("transform")]
        self._key = _key(program, layout, weights.quantization)
        self.path = folder / f"{Path(weights.path).name}.{self._key[:16]}.safetensors"

    def open(self) -> dict[str, NDArray[np.uint8]] | None:
        """Map the file, if it is there and has the weights of these model files.

        It has the packed matrices as `PACKED`, and tables by their names.

        A model file that has another time than when it was packed, such as a copy, is read to
        compare what is in it. For a file that is damaged there is a warning. Raises ConfigError if
        others can write the file.
        """
        try:
            tensors, metadata = open_safetensors(self.path)
            if not self._is_up_to_date(tensors, metadata):
                return None
            check_owner(self.path, tensors[PACKED].file.status, "give cache= another folder")
            return self._checked(tensors, metadata)
        except FileNotFoundError:
            return None
        except (OSError, FileFormatError) as error:
            warn_caller(
                f"packed weights that were kept cannot be used; the model is packed again: {error}",
                RuntimeWarning,
            )
            return None

    def _is_up_to_date(
        self, tensors: Mapping[str, TensorPlace], metadata: Mapping[str, Any]
    ) -> bool:
        """Return whether a file is of these model files; raise FileFormatError if it is damaged."""
        if metadata.get("key") != self._key:  # the name of the file has its first digits only
            raise self._damaged("the metadata are not of this program")
        if tensors.keys() != {PACKED, *self._tables}:
            raise self._damaged(f"the tensors are {', '.join(tensors)}"[:200])
        end = max(each.offset + each.size for each in tensors.values())
        if end != tensors[PACKED].file.size:
            raise self._damaged(f"there are bytes behind the last tensor, from offset {end} on")
        return CHECKSUMS in metadata and self._is_of(self._parsed(metadata, "files"))

    def _checked(
        self, tensors: Mapping[str, TensorPlace], metadata: Mapping[str, Any]
    ) -> dict[str, NDArray[np.uint8]]:
        """Return the bytes of tensors; raise FileFormatError if they are not what was written."""
        written = self._parsed(metadata, CHECKSUMS)
        found = {}
        for name, each in tensors.items():
            found[name] = each.file.view(each.offset, each.size, each.what)
            if not isinstance(written, dict) or written.get(name) != self._checksum(found[name]):
                raise self._damaged(f"{each.what} was changed after it was written")
        return found

    def _parsed(self, metadata: Mapping[str, Any], key: str) -> Any:
        try:
            return json.loads(str(metadata.get(key)))
        except (ValueError, RecursionError):
            raise self._damaged(f"the metadata have no JSON as {key!r}") from None

    def _damaged(self, problem: str) -> FileFormatError:
        return FileFormatError(f"{self.path} is damaged: {problem}")

    def write(self, executable: Any, arrays: Mapping[str, NDArray[Any]]) -> str | None:
        """Write what an executable has packed, and its tensors, as a whole or not at all.

        Where that fails there is a warning, which is also returned, for the model runs without.
        """
        try:
            self._write(executable, {name: arrays[name] for name in self._tables})
        except OSError as error:
            problem = f"cannot be kept in {self.path}: {error.strerror or error}"
            warn_caller(f"the packed weights {problem}", RuntimeWarning)
            return problem
        return None

    def _write(self, executable: Any, tables: Mapping[str, NDArray[Any]]) -> None:
        sizes = {PACKED: executable.packed_size}
        sizes |= {name: table.nbytes for name, table in tables.items()}
        digests = [
            {"size": file.size, "modified": file.modified, "sha256": file.digest()}
            for file in self._files
        ]
        files = json.dumps(digests)
        self._remove_unfinished()
        temporary = self.path.with_name(f"{self.path.name}.{secrets.token_hex(4)}.tmp")
        try:
            with new_file(temporary):
                with open(temporary, "w+b") as file:
                    header = self._header(sizes, files, dict.fromkeys(sizes, NO_CHECKSUM))
                    begin = file.write(header)
                    for array in (*executable.packed(), *tables.values()):
                        file.write(np.ascontiguousarray(array).data)
                    file.flush()
                    checksums = self._checksums(file, begin, sizes)
                    file.seek(0)
                    file.write(self._header(sizes, files, checksums))
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, self.path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    def _checksums(self, file: BinaryIO, begin: int, sizes: Mapping[str, int]) -> dict[str, str]:
        """Return the checksums of the consecutive tensors of a file; the first is at `begin`."""
        found = {}
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            for name, size in sizes.items():
                found[name] = self._checksum(np.frombuffer(data, np.uint8, size, begin))
                begin += size
        return found

    def _remove_unfinished(self) -> None:
        """Remove what writers have left that were killed: it is not empty, and no one locks it."""
        for left in self.path.parent.glob(f"{glob.escape(self.path.name)}.*.tmp"):
            with contextlib.suppress(OSError):  # if it is locked, or another process removes it
                if left.stat().st_size > 0:
                    _require_unlocked(left)
                    left.unlink()

    def _header(self, sizes: Mapping[str, int], files: str, checksums: Mapping[str, str]) -> bytes:
        """Return what stands before the data of tensors of these sizes."""
        metadata = {"key": self._key, "files": files, CHECKSUMS: json.dumps(checksums)}
        return header_of(metadata, {name: ("U8", [size], size) for name, size in sizes.items()})

    def _is_of(self, files: Any) -> bool:
        if not isinstance(files, list) or len(files) != len(self._files):
            return False
        return all(
            isinstance(known, dict)
            and known.get("size") == file.size
            and (known.get("modified") == file.modified or known.get("sha256") == file.digest())
            for known, file in zip(files, self._files, strict=True)
        )


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[None]:
    """Make an empty file and lock it, so that other processes know that it is being written."""
    with contextlib.ExitStack() as stack:
        if sys.platform != "win32":  # where no process can remove a file that another has open
            # A file that others may write is not used, whatever the umask is.
            file = stack.enter_context(open(path, "xb", opener=partial(os.open, mode=0o644)))
            with contextlib.suppress(OSError):  # if this file system has no locks
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _require_unlocked(path: Path) -> None:
    """Raise an OSError if a process has a lock on a file, or the file system has no locks."""
    if sys.platform != "win32":
        with open(path, "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _key(program: Program, layout: str, quantization: str) -> str:
    tensors = {
        name: [tensor.type, tensor.shape, tensor.source["tensor"], tensor.source["transform"]]
        for name, tensor in program.tensors.items()
        if "file" in tensor.source
    }
    nodes = [[node.kind, dict(node.weights)] for node in program.nodes]
    of = [layout, tensors, nodes, *([quantization] if quantization else [])]
    return hashlib.sha256(json.dumps(of).encode()).hexdigest()
