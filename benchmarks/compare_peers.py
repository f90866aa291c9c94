"""Measure every op side by side with other libraries, and report it.

    python benchmarks/compare_peers.py
    python benchmarks/compare_peers.py --ops silu,rope --shapes 128x4096 --json silu.json
    python benchmarks/compare_peers.py --report benchmarks/results/peers.json

Without choices it measures everything, which takes most of an hour, keeps the figures in
benchmarks/results/peers.json and brings the pages about it up to date. With choices, it prints
what was measured, and keeps it where --json says. Ctrl-C keeps what is complete.
"""

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from comparison import cases, driver, report, tables
from comparison.record import Elsewhere, Record, read
from comparison.results import Results
from tensor_ops.op.arguments import DTYPES
from tensor_ops.progress import ProgressBar
from tensor_ops.variants import VARIANTS, named

__all__ = ["main"]

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "peers.json"
ROUNDS = 7
# Where there is no terminal, a line for so many cases.
LINES_IN_A_LOG = 24
# Writing takes a while itself.
SECONDS_BETWEEN_WRITES = 20


def main(words: Sequence[str] | None = None) -> int:
    """Do what the command line says; return the exit status."""
    options = _parser().parse_args(words)
    if options.report:
        return _report(options.report)
    if options.again:
        return _again(options.again, options)
    target = options.json or (None if _is_chosen(options) else RESULTS)
    record = Record(_settings(options))
    is_complete = _measure(_cases(options), options, record, target)
    if is_complete and target == RESULTS:
        return _report(RESULTS)
    print(tables.every_cell(Results(record.content)))
    return 0 if is_complete else 130


def _report(path: Path) -> int:
    """Bring the page about performance up to date and print the goals."""
    try:
        results = Results(read(path))
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(tables.summary(results))
    for written in report.write(results):
        print(f"wrote {written.relative_to(ROOT)}")
    return 0


def _again(path: Path, options: argparse.Namespace) -> int:
    """Measure those cells of a record again that were disturbed while they were planned."""
    try:
        content = read(path)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    wanted = Results(content).cases_with_short_rounds()
    if not wanted:
        print(f"no round of {path} was too short")
        return 0
    record = Record.again(content, wanted)
    is_complete = _measure(wanted, options, record, path)
    if is_complete and path.resolve() == RESULTS:
        return _report(path)
    return 0 if is_complete else 130


def _measure(
    wanted: list[cases.Case], options: argparse.Namespace, record: Record, target: Path | None
) -> bool:
    """Measure into a record and a file; return False if Ctrl-C cut it short."""
    written = started = time.monotonic()
    elsewhere = Elsewhere()
    steps = driver.measure(wanted, options.peers, record, options.rounds)
    try:
        with ProgressBar(sys.stderr) as bar, contextlib.closing(steps):
            for number, case in enumerate(steps):
                seconds, place = time.monotonic() - started, f"{number}/{len(wanted)}"
                bar.show(number, len(wanted), f"{place}  {seconds:.0f} s  {case}")
                if number % LINES_IN_A_LOG == 0 and not sys.stderr.isatty():
                    print(f"{seconds:5.0f} s  {place}  {case}", file=sys.stderr)
                if target and time.monotonic() - written > SECONDS_BETWEEN_WRITES:
                    record.write(target)
                    written = time.monotonic()
        record.content["complete"] = True
    except KeyboardInterrupt:
        print("stopped; what is complete is kept", file=sys.stderr)
    about = record.content.get("again", record.content)
    about["seconds"] = round(time.monotonic() - started)
    about["busy_elsewhere"] = elsewhere.cores()
    if target:
        record.write(target)
    return bool(record.content["complete"])


def _cases(options: argparse.Namespace) -> list[cases.Case]:
    return cases.cases(
        options.ops or tuple(VARIANTS), options.dtypes, options.shapes, options.threads
    )


def _is_chosen(options: argparse.Namespace) -> bool:
    """Return whether anything less than everything is to be measured."""
    names = ("ops", "dtypes", "shapes", "threads", "peers")
    default = _parser().parse_args([])
    return any(getattr(options, name) != getattr(default, name) for name in names)


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    names = ("ops", "dtypes", "shapes", "threads", "peers", "rounds")
    return {name: getattr(options, name) for name in names}


def _parser() -> argparse.ArgumentParser:
    summary, _, rest = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known: dict[str, tuple[Callable[[str], Any], Sequence[Any]]] = {
        "dtypes": (_one_of(DTYPES), tuple(DTYPES)),
        "shapes": (_shape, cases.SHAPES),
        "threads": (int, cases.THREADS),
        "peers": (_one_of(driver.PEERS), driver.PEERS),
    }
    parser.add_argument("--ops", type=_ops, metavar="OP,...", help="ops or variants of them")
    for name, (kind, default) in known.items():
        text = ", ".join(map(_plain, default))
        parser.add_argument(
            f"--{name}", type=_several(kind), default=default, metavar="A,B", help=text
        )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"default: {ROUNDS}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures here")
    parser.add_argument(
        "--report", type=Path, metavar="FILE", help="measure nothing, report these figures"
    )
    parser.add_argument(
        "--again",
        type=Path,
        metavar="FILE",
        help="measure again, with the same peers, what was disturbed while it was planned",
    )
    return parser


def _several(kind: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    return lambda text: tuple(kind(word) for word in text.split(","))


def _one_of(known: Any) -> Callable[[str], str]:
    def choice(word: str) -> str:
        if word not in known:
            raise argparse.ArgumentTypeError(f"{word!r} is none of {', '.join(known)}")
        return word

    return choice


def _shape(word: str) -> tuple[int, ...]:
    try:
        rows, n = map(int, word.split("x"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{word!r} is no shape like 128x4096") from None
    return rows, n


def _plain(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _ops(text: str) -> tuple[str, ...]:
    found = []
    for word in text.split(","):
        try:
            found += [each.name for each in named(word)]
        except KeyError:
            known = ", ".join(VARIANTS)
            raise argparse.ArgumentTypeError(f"{word!r} is none of {known}") from None
    return tuple(dict.fromkeys(found))


if __name__ == "__main__":
    sys.exit(main())
