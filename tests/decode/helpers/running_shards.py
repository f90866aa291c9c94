"""Runs the shards of a program in threads of this process, on one executor."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tensor_ops_decode import shard
from tensor_ops_decode.executors.sources import TensorArrays
from thread_ranks import Shared

SECONDS = 60.0  # in which a rank has come, or has failed


class Shards:
    """The executables of all shards of a program, which run steps at once.

    Attributes
    ----------
    executables : list of executable
    """

    def __init__(self, executor, program, tensors, world_size, **options):
        ranks = Shared(world_size, deadline=SECONDS).ranks()
        self.threads = ThreadPoolExecutor(world_size)

        def compiled(rank):
            part = shard(program, rank, world_size)
            return executor.compile_program(
                part.to_json(),
                TensorArrays(part, tensors),
                num_workers=1,
                options=options or None,
                ranks=ranks[rank],
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
