"""The backend cpp of this project."""

import time
from itertools import count
from pathlib import Path
from typing import Any

import tensor_ops_cpp  # noqa: F401  (an import that opening a model would do)
import tensor_ops_decode
from decode_peers.cases import Room, tokens

__all__ = ["PACKAGES", "open"]

PACKAGES = ("tensor-ops-decode", "tensor-ops-cpp")
PAGE = 16


class Opened:
    """A model that is packed in its first steps, and as a whole before a second time is taken."""

    def __init__(self, model: Path, settings: dict[str, Any], room: Room) -> None:
        # The prompts of all contexts stay in the caches from one turn to the next.
        contexts = 2 if room.sequences > 1 else 1
        positions = max(contexts * room.positions, 256 * room.sequences)
        self._kernel = tensor_ops_decode.PersistentKernel(
            mode="decode",
            backend="cpp",
            model=model,
            num_workers=settings["threads"],
            max_seq_length=room.positions,
            max_num_batched_requests=room.sequences,
            max_num_pages=positions // PAGE,
            page_size=PAGE,
            activations=settings.get("activations", "int8x2"),
            cache=settings.get("cache"),
        )
        self._kernel.compile()
        self._unseen, self._has_begun = count(5000), False

    def decode(self, sequences: int, context: int, new: int) -> float:
        """Return the seconds of a step; the pages of the prompt are shared with earlier turns."""
        kernel = self._packed()
        requests = [
            kernel.add_request(tokens(context, first), ignore_eos=True)
            for first in range(sequences)
        ]
        while len(kernel()) < sequences:
            pass
        start = time.perf_counter()
        done = 0
        while done < new:
            done += len(kernel.run(new - done)[requests[0]])
        seconds = (time.perf_counter() - start) / new
        for request in requests:
            kernel.remove(request)
        return seconds

    def prompt(self, length: int) -> float:
        """Return the seconds until the first token."""
        kernel = self._packed() if self._has_begun else self._kernel
        self._has_begun = True
        start = time.perf_counter()
        request = kernel.add_request(tokens(length, next(self._unseen)), ignore_eos=True)
        while not kernel():
            pass
        seconds = time.perf_counter() - start
        kernel.remove(request)
        return seconds

    def prompts(self, sequences: int, length: int) -> float:
        """Return the seconds until the first token of each of several prompts."""
        kernel = self._packed()
        start = time.perf_counter()
        for _ in range(sequences):
            prompt = tokens(length, next(self._unseen))
            kernel.add_request(prompt, max_new_tokens=1, ignore_eos=True)
        while kernel.requests:
            kernel()
        return time.perf_counter() - start

    def _packed(self) -> tensor_ops_decode.PersistentKernel:
        self._kernel.read_bandwidth()  # which packs the weights that are left
        return self._kernel


open = Opened
