"""Check and time tensor-ops-cuda on a machine with an NVIDIA GPU.

    python tools/gpu_check.py --out DIR

It needs no network. With --from-wheels it installs what tools/gpu_prepare.py has made elsewhere;
else it needs a CUDA toolkit, and builds. What it finds is in DIR/gpu_check.json after every stage,
so that nothing is lost when it is stopped; DIR/gpu_check.log has all output. What tells most in the
shortest time comes first. A stage that fails, or runs out of its time, leaves the others as they
are. Where DIR has what was found before at the same commit, that is kept: --part 1 and --part 2
are all stages in two commands, and --stages repeats some. The exit status is 0 if every check of
the record passed, else 1. --emulate tries this program out on the CPU: with a sample of the tests,
without times, and without what needs a GPU.
"""

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from gpu_checks.record import Record
from gpu_checks.stages import INSTALL, PARTS, STAGES
from gpu_checks.workplace import Stage, Workplace, run_stages

ROOT = Path(__file__).resolve().parents[1]
# Seconds of a part, and of both at once. A stage that is stopped may take a few seconds more.
BUDGET_OF_PART, BUDGET = 320, 580


def main(words: Sequence[str] | None = None) -> int:
    """Do what the command line says; return the exit status."""
    parser = _parser()
    options = parser.parse_args(words)
    if options.from_wheels and not options.from_wheels.is_dir():
        parser.error(
            f"{options.from_wheels} is no folder; tools/gpu_prepare.py makes one where there is a "
            "network"
        )
    if options.dry_run:
        for stage in _chosen(options):
            print(f"{stage.name:12} at least {stage.limit:3} s  {stage.summary}")
        return 0
    for stop in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop, signal.default_int_handler)
    budget = options.budget or (BUDGET_OF_PART if options.part else BUDGET)
    options.out.mkdir(parents=True, exist_ok=True)
    wheels = options.from_wheels and options.from_wheels.resolve()
    with Workplace(ROOT, options.out, budget, options.emulate, options.site, wheels) as place:
        commit = _commit(options.commit, options.from_wheels)
        record = Record(options.out / "gpu_check.json", ROOT, commit)
        run_stages(_chosen(options, place.is_installed), place, record)
    print(record.table())
    return 0 if record.passed else 1


def _chosen(options: argparse.Namespace, is_installed: bool = False) -> list[Stage]:
    """Return the stages that were asked for, and the installation where they need it."""
    chosen = [
        stage
        for stage in STAGES
        if (not options.stages or stage.name in options.stages)
        and options.part in (None, stage.part)
    ]
    if is_installed or not any(stage.needs_install for stage in chosen):
        return chosen
    return [stage for stage in STAGES if stage in chosen or stage is INSTALL]


def _commit(given: str | None, wheels: Path | None) -> str | None:
    """Return the commit where there is no .git: what was given, or what was prepared."""
    if given or wheels is None or not (wheels / "commit").exists():
        return given
    return (wheels / "commit").read_text(encoding="utf-8").strip()


def _parser() -> argparse.ArgumentParser:
    summary, _, rest = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where results go")
    parser.add_argument("--part", type=int, choices=PARTS, help="the stages of this part only")
    parser.add_argument(
        "--stages", type=_stages, metavar="A,B", help=", ".join(stage.name for stage in STAGES)
    )
    parser.add_argument(
        "--from-wheels", type=Path, metavar="DIR", help="what tools/gpu_prepare.py has made"
    )
    parser.add_argument(
        "--site", type=Path, metavar="DIR", help="install there, and use what is installed there"
    )
    parser.add_argument("--commit", metavar="ID", help="the commit, where there is no .git")
    parser.add_argument(
        "--budget",
        type=float,
        metavar="S",
        help=f"seconds; by default {BUDGET_OF_PART} for a part, else {BUDGET}",
    )
    parser.add_argument("--emulate", action="store_true", help="run the kernels on the CPU")
    parser.add_argument("--dry-run", action="store_true", help="only list the stages")
    return parser


def _stages(text: str) -> list[str]:
    known = [stage.name for stage in STAGES]
    names = text.split(",")
    if unknown := [name for name in names if name not in known]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(known)}")
    return names


if __name__ == "__main__":
    sys.exit(main())
