"""Two ranks of one thread beside one process of two threads, and what ranks would do elsewhere.

The process and the ranks take turns, so that a ratio is of runs next to each other. An allreduce is
timed by steps of 64 of them beside steps without. What a step of ranks takes is predicted by
rank_runs/cost.py from the speed of the one process and from the time of an allreduce, and compared
with what was measured; so are larger models on machines that are not here, where nothing is.

    python benchmarks/decode_ranks.py --json benchmarks/results/decode_ranks.json
    python benchmarks/decode_ranks.py --models "SmolLM2 Q4_1" --rounds 3 --mpiexec "mpiexec.hydra"

It needs mpi4py, an mpiexec of the same MPI, and two cores without other work. Random models are
written to --folder, 0.7 GB, where they stay. benchmarks/decode_models.py --report brings the page
up to date.
"""

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness import command
from rank_runs import tables
from rank_runs.cost import step_of
from rank_runs.jobs import Job

__all__ = ["blocks", "measure"]

ROOT = Path(__file__).parents[1]
RANKS = 2
MODELS = ("SmolLM2 Q4_1", "1B Q4_0")
FLOATS = (16, 576, 2048, 8192, 13824)
STEPS, PROMPT = 64, 32  # of a turn
EXCHANGES = 400  # steps of 64 allreduces each


def main() -> None:
    parser = command.parser(__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--rounds", type=int, default=15, help="default: %(default)s")
    parser.add_argument("--folder", type=Path, default=ROOT / ".benchmarks" / "decode")
    parser.add_argument("--mpiexec", default="mpiexec", help="what starts ranks, with its options")
    options = parser.parse_args()
    from decode_peers import cases
    from decode_peers.models import file_of

    paths = {name: str(file_of(cases.MODELS[name], options.folder)) for name in options.models}
    launcher = [*shlex.split(options.mpiexec), "-n", str(RANKS)]
    record = measure(paths, launcher, options.rounds)
    command.show(record, blocks, options.json)


def measure(
    paths: dict[str, str],
    launcher: Sequence[str],
    rounds: int,
    *,
    ranks: int = RANKS,
    backend: str = "cpp",
    steps: int = STEPS,
    exchanges: int = EXCHANGES,
) -> dict[str, Any]:
    """Return the record of models by name, which `launcher` starts so many ranks of."""
    from threads import facts

    kinds = [f"allreduce:{size}" for size in FLOATS]
    found: dict[str, Any] = {"launcher": Path(launcher[0]).name if launcher else None}
    with Job(launcher, ranks, 1, kinds, backend) as job:
        found["allreduces"] = {
            str(size): job.turn(kind, exchanges) for size, kind in zip(FLOATS, kinds, strict=True)
        }
    found["models"] = {
        name: _model(path, launcher, rounds, ranks, backend, steps) for name, path in paths.items()
    }
    how = {"prompt": PROMPT, "steps": steps, "rounds": rounds, "ranks": ranks}
    return facts() | {"how": how} | found


def _model(
    path: str, launcher: Sequence[str], rounds: int, ranks: int, backend: str, steps: int
) -> dict[str, Any]:
    """Return the seconds of steps of one process and of ranks, in each round."""
    with (
        Job((), 1, ranks, [path], backend) as one,
        Job(launcher, ranks, 1, [path], backend) as several,
    ):
        jobs = {"one": one, "ranks": several}
        for job in jobs.values():
            job.turn(path, steps)
        times: dict[str, list[float]] = {name: [] for name in jobs}
        for number in range(rounds):
            order = list(jobs) if number % 2 else list(jobs)[::-1]
            for name in order:
                times[name].append(jobs[name].turn(path, steps)["seconds"])
    return {"seconds": times, "steps": _steps_of(path, ranks, PROMPT + steps // 2)}


def _steps_of(path: str, ranks: int, context: int) -> dict[str, Any]:
    """Return what a step of one rank alone and of several reads and exchanges."""
    from tensor_ops_decode import PersistentKernel, shard

    model = None if path == "stand-in" else path
    given: dict[str, Any] = {
        "backend": "python",
        "max_seq_length": 2048,
        "max_num_batched_requests": 1,
    }
    with PersistentKernel(model=model, world_size=1, mpi_rank=0, **given) as kernel:
        if model is None:
            kernel.compile()
        program = kernel.program
    shards = [shard(program, rank, ranks) for rank in range(ranks)]
    return {
        "one": dataclasses.asdict(step_of([program], context)),
        "ranks": dataclasses.asdict(step_of(shards, context)),
    }


def blocks(record: dict[str, Any] | None) -> dict[str, str]:
    """Return the blocks of the page docs/decode_performance.md, which say so without a record."""
    makers = {
        "ranks-setting": tables.setting,
        "ranks-exchanges": tables.exchanges,
        "ranks-speed": tables.speed,
        "ranks-predictions": tables.predictions,
    }
    if record is None:
        return dict.fromkeys(makers, "Not measured at this commit.")
    return {name: make(record) for name, make in makers.items()}


if __name__ == "__main__":
    main()
