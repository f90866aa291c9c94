"""How decoding would scale to many cores: a model made of what is measured on this machine.

This machine gives one core's read bandwidth, the part of it that a step of one worker uses, and
what a node costs two workers because they meet. Assumed are the bandwidth of the memory, which all
cores share, and that meeting takes time in proportion to the workers. Nothing here ran on more
cores than this machine has.

    python benchmarks/decode_scaling.py MODEL.gguf... --json RECORD.json
"""

import contextlib
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from decode_blocks import run

WORKERS = (1, 2, 4, 8, 16, 32, 64)
MEMORY = (50, 100, 200, 400)  # GB/s
PROMPT = 32
TILE_ROWS = 16


def measure(paths: list[Path], rounds: int) -> dict[str, Any]:
    """Return what the model is made of, and the measured seconds of one and two workers."""
    from threads import facts

    few, ((one, _), (two, _)) = _steps(None, rounds)
    # A step of two workers takes half as long as that of one, and what meeting takes.
    meeting = max(two - one / 2, 0) / len(few)
    models = {}
    for path in paths:
        nodes, ((one, of_core), (two, of_memory)) = _steps(path, rounds)
        read = sum(node["bytes"] for node in nodes)
        models[path.name] = {
            "nodes": nodes,
            "seconds": {"1": one, "2": two},
            "core_bandwidth": of_core,
            "memory_bandwidth": of_memory,
            "fraction_of_it": read / of_core / one,
        }
    how = {"prompt": PROMPT, "rounds": rounds}
    return facts() | {"how": how, "seconds_to_meet": meeting, "models": models}


def _steps(
    path: Path | None, rounds: int
) -> tuple[list[dict[str, int]], list[tuple[float, float]]]:
    """Return the nodes of a model, and of one and of two workers a step's seconds and bandwidth.

    They take turns, because the bandwidth of a shared machine changes.
    """
    import tensor_ops_decode

    with contextlib.ExitStack() as stack:
        kernels = []
        for workers in (1, 2):
            kernel = tensor_ops_decode.PersistentKernel(
                backend="cpp", model=path, num_workers=workers, max_seq_length=512
            )
            kernels.append(stack.enter_context(kernel))
            kernel.compile(progress=lambda done, size: None)  # packs all weights
            words = min(PROMPT, kernel.program.values["logits"].columns)
            kernel.add_request(range(words), ignore_eos=True)
            while not kernel():
                pass
        times: list[list[tuple[float, float]]] = [[], []]
        for _ in range(rounds):
            for kernel, of_kernel in zip(kernels, times, strict=True):
                profile = kernel.profile()
                of_kernel.append((profile.seconds, kernel.read_bandwidth()))
        medians = [
            (statistics.median(t for t, _ in each), statistics.median(b for _, b in each))
            for each in times
        ]
        return _nodes(kernels[0].program, profile.phases), medians


def _nodes(program: Any, phases: Sequence[Sequence[int]]) -> list[dict[str, int]]:
    """Return the bytes of the matrices of nodes that run together, and the tiles of workers."""
    from tensor_ops_decode.weights.formats import FORMATS

    nodes = []
    for together in ([program.nodes[each] for each in phase] for phase in phases):
        weights = [node.weights.get("weight", ()) for node in together if node.kind != "embed"]
        names = [name for of_node in weights for name in of_node]
        tensors = [program.tensors[name] for name in names]
        matrices = [tensor for tensor in tensors if len(tensor.shape) == 2]
        size = sum(t.shape[0] * FORMATS[t.type].row_bytes(t.shape[1]) for t in matrices)
        tiles = sum(-(-tensor.shape[0] // TILE_ROWS) for tensor in matrices)
        nodes.append({"bytes": size, "tiles": tiles})
    return nodes


def seconds_of_step(
    model: dict[str, Any], meeting: float, workers: int, memory: float = math.inf
) -> float:
    """Return the seconds of a step.

    Each node is read at the bandwidth of the cores, or of the memory if that is less, of which a
    step uses the same fraction as that of one worker; the worker that has the most of the node's
    tiles is the last. Then the workers meet.

    Parameters
    ----------
    model : mapping
        One of the record's models.
    meeting : float
        Seconds that a node costs two workers because they meet.
    workers : int
    memory : float
        Bytes per second of all cores together.
    """
    total = 0.0
    for node in model["nodes"]:
        if node["tiles"]:
            share = -(-node["tiles"] // workers) / node["tiles"]
            bandwidth = min(model["core_bandwidth"] / share, memory)
            total += node["bytes"] / bandwidth / model["fraction_of_it"]
        if workers > 1:
            total += meeting * workers / 2
    return total


def blocks(record: dict[str, Any]) -> dict[str, str]:
    """Return the blocks of the page docs/decode_performance.md."""
    columns = [f"{each} GB/s" for each in MEMORY]
    lines = [
        f"| model | workers | measured here | model of here | {' | '.join(columns)} |",
        f"|---|---|---|---|{'---|' * len(columns)}",
    ]
    meeting = record["seconds_to_meet"]
    for name, model in record["models"].items():
        for workers in WORKERS:
            cells = ["", ""]
            if str(workers) in model["seconds"]:
                here = seconds_of_step(model, meeting, workers, model["memory_bandwidth"])
                cells = [_rate(model["seconds"][str(workers)]), _rate(here)]
            cells += [
                _rate(seconds_of_step(model, meeting, workers, 1e9 * each)) for each in MEMORY
            ]
            lines.append(f"| {name} | {workers} | {' | '.join(cells)} |")
    cores = "; ".join(
        f"of {name} one core reads {model['core_bandwidth'] / 1e9:.1f} GB/s and two "
        f"{model['memory_bandwidth'] / 1e9:.1f}, and a step of one uses "
        f"{model['fraction_of_it']:.2f} of it"
        for name, model in record["models"].items()
    )
    setting = (
        f"{record['device']}; commit {record['commit']}. Two workers need {meeting * 1e9:,.0f} ns "
        f"for each node to meet; {cores}."
    )
    return {"scaling-setting": setting, "scaling-speed": "\n".join(lines)}


def _rate(seconds: float) -> str:
    return f"{1 / seconds:,.0f}"


if __name__ == "__main__":
    run(__doc__, measure, blocks, rounds=51, nargs="+")
