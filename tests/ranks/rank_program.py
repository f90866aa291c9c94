"""A program of one rank, which is started several times: ``rank_program.py FOLDER HOW``.

It writes into the folder what it has computed, and its process. It fails as HOW says, on rank 1 and
while the others go on. Without HOW it computes texts of the model in FOLDER/model, and so it does
by ``apart``, as if each rank were on a machine of its own.
"""

import ctypes
import json
import os
import signal
import sys
import time
from pathlib import Path

import tensor_ops_decode
from tensor_ops_decode import PersistentKernel
from tensor_ops_decode.kernel.opening import KernelModel
from tensor_ops_decode.ranks import liveness
from tensor_ops_decode.ranks.launchers import launch

TEXTS = ["The first", "Another one", "And a third that is longer"]
SETTINGS = {"temperature": 0.9, "seed": 3, "repetition_penalty": 1.2, "max_new_tokens": 12}
LIMITS = {"max_seq_length": 128, "max_num_batched_requests": 2, "num_workers": 1}


def texts(model):
    """Return answers of which each one depends on those before, as JSON has them."""
    found = [model.generate(TEXTS, max_new_tokens=12), model.generate(TEXTS, **SETTINGS)]
    return [[each.text, list(each.tokens)] for answers in found for each in answers]


def fail(*arguments, **settings):
    """Stand for a function that has no memory."""
    raise MemoryError("no memory for the weights")


def run_for_ever(how, is_victim, note):
    """Run steps, and fail after some of them."""
    arguments = {"max_seq_length": 2048}
    if how == "another limit" and is_victim:
        arguments["max_num_batched_tokens"] = 64
    if how == "another size" and is_victim:
        arguments["world_size"] = 5
    if how == "no memory" and is_victim:
        KernelModel.compiled = fail
    note("failed")
    kernel = PersistentKernel(num_workers=1, **arguments)
    kernel.compile()
    kernel.add_request([1, 2, 3])
    kernel.run(20)
    note("failed")
    if is_victim:
        FAULTS.get(how, lambda kernel: None)(kernel)
    elif how == "SIGKILL, unawaited":
        time.sleep(60)
    while True:
        kernel.run(20)
        if not kernel.requests or len(kernel.tokens(kernel.requests[0])) > 1000:
            kernel.reset()
            kernel.add_request([1, 2, 3])


def raise_an_error(kernel):
    raise ValueError("a mistake of the program")


def run_another_step(kernel):
    kernel.add_request([7])
    kernel.run(5)


FAULTS = {
    "SIGKILL": lambda kernel: os.kill(os.getpid(), signal.SIGKILL),
    "SIGKILL, unawaited": lambda kernel: os.kill(os.getpid(), signal.SIGKILL),
    "SIGSEGV": lambda kernel: ctypes.string_at(0),
    "SIGSTOP": lambda kernel: os.kill(os.getpid(), signal.SIGSTOP),
    "SIGINT": lambda kernel: os.kill(os.getpid(), signal.SIGINT),
    "_exit": lambda kernel: os._exit(0),
    "exception": raise_an_error,
    "exit": lambda kernel: sys.exit(3),
    "end": lambda kernel: sys.exit(),
    "another step": run_another_step,
}


def main(folder, how=""):
    started = launch()
    rank = started.rank
    (folder / f"process.{rank}").write_text(str(os.getpid()))
    if how == "apart":
        liveness.machine_name = lambda: f"the machine of rank {rank}"
    if how in ("", "apart"):
        with tensor_ops_decode.load(folder / "model", **LIMITS) as model:
            found = {"size": model.kernel.world_size, "texts": texts(model)}
        (folder / f"found.{rank}").write_text(json.dumps(found))
        return
    is_victim = rank == 1

    def note(what):
        if is_victim:
            (folder / what).write_text(repr(time.time()))

    run_for_ever(how, is_victim, note)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
