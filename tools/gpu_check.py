"""Build tensor-ops-cuda on a machine with an NVIDIA GPU, check it there and time it.

    python tools/gpu_check.py --out DIR

It needs a CUDA toolkit and the usual Python packages, no network, and less than twenty minutes.
What it finds is in DIR/gpu_check.json after every stage, so that nothing is lost when it is
stopped; DIR/gpu_check.log has all output. A stage that fails, or runs out of its time, leaves the
others as they are. The exit status is 0 if every check passed, else 1. --emulate builds for the CPU
instead, to try this program out: without times, and without what needs a GPU.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from gpu_checks.record import Record
from gpu_checks.stages import STAGES
from gpu_checks.workplace import Workplace, run_stages

ROOT = Path(__file__).resolve().parents[1]
BUDGET = 1150


def main(words: Sequence[str] | None = None) -> int:
    """Do what the command line says; return the exit status."""
    options = _parser().parse_args(words)
    chosen = [stage for stage in STAGES if not options.stages or stage.name in options.stages]
    if options.dry_run:
        for stage in chosen:
            print(f"{stage.name:12} at most {stage.limit:3} s  {stage.summary}")
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    record = Record(options.out / "gpu_check.json", ROOT, options.commit)
    with Workplace(ROOT, options.out, options.budget, options.emulate, options.site) as place:
        run_stages(chosen, place, record)
    print(record.table())
    return 0 if record.passed else 1


def _parser() -> argparse.ArgumentParser:
    summary, _, rest = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where results go")
    parser.add_argument(
        "--stages", type=_stages, metavar="A,B", help=", ".join(stage.name for stage in STAGES)
    )
    parser.add_argument(
        "--site", type=Path, metavar="DIR", help="install there, and use what is installed there"
    )
    parser.add_argument("--commit", metavar="ID", help="the commit, where there is no .git")
    parser.add_argument(
        "--budget", type=float, default=BUDGET, metavar="S", help=f"seconds; default {BUDGET}"
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
