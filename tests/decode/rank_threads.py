"""Runs the shards of a program in threads of this process, on one executor."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tensor_ops_decode import shard
from tensor_ops_decode.executors.sources import TensorArrays
from tensor_ops_decode.ranks.group import RankGroup

SECONDS = 60  # in which a thread has come, or has failed


class Meeting:
    """Where threads exchange vectors."""

    def __init__(self, world_size):
        self.world_size = world_size
        self.barrier = threading.Barrier(world_size, timeout=SECONDS)
        self.given = [None] * world_size
        self.window = None


class ThreadRank(RankGroup):
    """One thread among those of a meeting."""

    def __init__(self, rank, meeting):
        self.rank, self.world_size, self.meeting = rank, meeting.world_size, meeting

    def exchange(self, send, receive):
        self.meeting.given[self.rank] = send
        self.meeting.barrier.wait()
        np.stack(self.meeting.given, out=receive)
        self.meeting.barrier.wait()

    def window(self, num_bytes):
        """Return memory that begins at a multiple of 64 bytes; rank 0 makes it."""
        if self.rank == 0:
            memory = np.zeros(num_bytes + 64, np.uint8)
            first = -memory.ctypes.data % 64
            self.meeting.window = memory[first : first + num_bytes]
        self.meeting.barrier.wait()
        return self.meeting.window

    def while_waiting(self, seconds, ranks):
        assert seconds < SECONDS, f"the ranks {ranks} have not come"


class Shards:
    """The executables of all shards of a program, which run steps at once.

    Attributes
    ----------
    executables : list of executable
    """

    def __init__(self, executor, program, tensors, world_size, **options):
        meeting = Meeting(world_size)
        self.threads = ThreadPoolExecutor(world_size)

        def compiled(rank):
            part = shard(program, rank, world_size)
            return executor.compile_program(
                part.to_json(),
                TensorArrays(part, tensors),
                num_workers=1,
                options=options or None,
                ranks=ThreadRank(rank, meeting),
            )

        self.executables = list(self.threads.map(compiled, range(world_size)))

    def run(self, fill, num_tokens, num_selected):
        """Run a step, whose arrays a function fills."""

        def run(executable):
            fill(executable.arrays)
            executable.run(num_tokens, num_selected)

        list(self.threads.map(run, self.executables))

    def greedy(self, prompt, num_tokens):
        """Return the tokens that all ranks choose after a prompt, and the last logits of each."""
        chosen, given, first = [], prompt, 0

        def fill(arrays):
            arrays["tokens"][: len(given)] = given
            arrays["positions"][: len(given)] = np.arange(first, first + len(given))
            arrays["page_table"][0] = np.arange(arrays["page_table"].shape[1])
            arrays["selected"][0] = len(given) - 1

        while len(chosen) < num_tokens:
            self.run(fill, len(given), 1)
            (token,) = {int(rows[0, 0]) for rows in self.output("next", 1)}
            chosen.append(token)
            given, first = [token], first + len(given)
        return chosen, [rows[0] for rows in self.output("logits", 1)]

    def output(self, name, rows):
        """Return the rows of an output, of each rank."""
        return [each.arrays[name][:rows].copy() for each in self.executables]

    def close(self):
        for each in self.executables:
            each.close()
        self.threads.shutdown()
