"""The figures of a record as tables in Markdown."""

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from comparison.cases import ALLOCATED, MODES, REUSED, moved_bytes
from comparison.driver import FEWEST_ROUNDS
from comparison.goals import LARGE, ONE_ROW, ONE_ROW_GOAL, THREADS, findings
from comparison.results import DISPATCHED, OURS, Cell, Ratio, Results, owner
from harness.goals import Finding, goal_table
from harness.tables import shape_text, table
from tensor_ops.timing import format_time
from tensor_ops.variants import VARIANTS

__all__ = ["blocks", "disturbance", "every_cell", "summary"]

NOTHING = "—"
# Cores that other processes may keep busy without showing in the figures.
QUIET = 0.1
CLAIMED = {"rms_norm": "1.5 to 2", "silu": "1 to 2", "gelu:tanh": "1 to 2"}


def blocks(results: Results) -> dict[str, str]:
    """Return the blocks of the pages about performance by name."""
    shapes = results.values("shape", threads=THREADS, dtype="float32")
    made = {
        "setting": setting(results),
        "goals": goal_table(findings(results)),
        "missed": missed(results, findings(results)),
        "arithmetic": arithmetic(results),
        "copies": copies(results),
        "one row": one_row(results),
        "claim": claim(results),
        "means": means(results),
        "one thread": means(results, threads=1),
        "dispatch": dispatch(results),
        "errors": errors(results),
        "absent": absent(results),
    }
    return made | {f"float32 {shape_text(shape)}": by_op(results, shape) for shape in shapes}


def summary(results: Results) -> str:
    """Return the goals, those that are missed, and the means, for the terminal."""
    found = findings(results)
    return "\n\n".join([goal_table(found), missed(results, found), means(results)])


def every_cell(results: Results) -> str:
    """Return a line for each cell: ours, the fastest other library, and the error of each."""
    rows = []
    for cell in results.cells():
        case, fastest, copy = cell.case, cell.fastest_peer(), cell.of_copy()
        rows.append(
            (
                *(case.variant, case.dtype, shape_text(case.shape), str(case.threads)),
                _mode(case.mode),
                format_time(cell.ours) if cell.ours is not None else NOTHING,
                _error(results, cell, OURS),
                _named(results, fastest),
                _error(results, cell, fastest.entry) if fastest else NOTHING,
                _times(copy),
            )
        )
    head = ("op", "dtype", "shape", "threads", "result", "ours", "error")
    return table((*head, "fastest peer takes", "error", "of the copy"), rows)


def _error(results: Results, cell: Cell, entry: str) -> str:
    found = results.error(cell.case, entry)
    if found is None:
        return NOTHING
    bound = VARIANTS[cell.case.variant].op.bounds[cell.case.dtype]
    unit = " ULP" if bound.unit == "ulp" else ""
    return "NaN" if found["error"] is None else f"{found['error']:.2g}{unit}"


def _named(results: Results, ratio: Ratio | None) -> str:
    return f"{_times(ratio)} {results.label(ratio.entry)}" if ratio else NOTHING


def setting(results: Results) -> str:
    """Return what the figures depend on."""
    content = results.content
    facts, commit = content["machine"], content["commit"]
    caches = ", ".join(f"{name} {size}" for name, size in facts["caches"].items())
    versions = ", ".join(f"{name} {version}" for name, version in content["versions"].items())
    changed = " with changes that were not committed" if commit["dirty"] else ""
    rows = [
        ("processor", f"{facts['cpu']}, {facts['usable_cpus']} cores"),
        ("caches of a core", caches),
        ("memory", f"{facts['memory'] / 2**30:.0f} GiB, huge pages: {facts['huge_pages']}"),
        ("system", f"{facts['os']}, Python {facts['python']}"),
        ("versions", versions),
        ("commit", f"`{(commit['id'] or 'unknown')[:12]}`{changed}"),
        ("date", content["date"]),
        ("measured", _extent(results)),
        ("rounds", f"{content['settings']['rounds']}, of slow calls at least {FEWEST_ROUNDS}"),
        ("took", f"{(content['seconds'] or 0) / 60:.0f} minutes"),
        ("other processes", disturbance(content["busy_elsewhere"])),
        *_again(content.get("again")),
    ]
    return table(("what", "which"), rows)


def _again(again: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Return what is said of cells that were measured later than the others."""
    if again is None:
        return []
    commit = (again["commit"]["id"] or "unknown")[:12]
    busy = disturbance(again["busy_elsewhere"])
    text = f"{again['cells']} cases, disturbed before; commit `{commit}`, {again['date']}"
    return [("measured again", f"{text}; other processes {busy}")]


def _extent(results: Results) -> str:
    """Return what was measured."""
    ops = ", ".join(f"`{variant}`" for variant in results.values("variant"))
    threads = " and ".join(map(str, results.values("threads")))
    return f"{ops}; threads: {threads}"


def disturbance(cores: float | None) -> str:
    """Return what other processes did meanwhile, and what that means."""
    if cores is None:
        return "unknown"
    text = f"kept {cores:.2f} cores busy on average"
    return f"**{text}, so these figures are of little worth**" if cores > QUIET else text


def missed(results: Results, found: Sequence[Finding]) -> str:
    """Return the figures that miss their goal."""
    rows = [
        (
            each.goal,
            each.what,
            each.dtype,
            shape_text(each.shape),
            f"{each.wanted:g}",
            f"{each.found:.2f}{_interval(each.low, each.high)}",
            f"{each.lacking:.0%}",
            results.label(each.against) or NOTHING,
            NOTHING if each.of_copy is None else f"{each.of_copy:.2f}",
        )
        for each in found
        if not each.met
    ]
    if found and not rows:
        return "Every goal is met."
    head = ("goal", "op", "dtype", "shape", "wanted", "found", "missed by", "against")
    return table((*head, "of the copy"), rows)


def arithmetic(results: Results) -> str:
    """Return how near the copy the large shapes come, and how near their arithmetic could.

    The arithmetic's own time is that of one row, which one thread computes in its cache, times the
    rows that each thread has.
    """
    shapes = [shape for shape in LARGE if shape in results.values("shape", threads=THREADS)]
    rows = []
    for dtype in results.values("dtype", threads=THREADS):
        for variant in results.values("variant", dtype=dtype):
            wanted = {"variant": variant, "dtype": dtype, "threads": THREADS, "mode": REUSED}
            row = next(results.cells(**wanted, shape=ONE_ROW), None)
            cells = [next(results.cells(**wanted, shape=shape), None) for shape in shapes]
            rows.append((variant, dtype, *(_share(cell, row) for cell in cells)))
    return table(("op", "dtype", *map(shape_text, shapes)), rows)


def _share(cell: Cell | None, row: Cell | None) -> str:
    ratio = cell.of_copy() if cell else None
    if cell is None or row is None or ratio is None or cell.ours is None or row.ours is None:
        return NOTHING
    alone = row.ours * cell.case.shape[0] / THREADS
    return f"{ratio.value:.2f} of {ratio.value * cell.ours / alone:.2f}"


def copies(results: Results) -> str:
    """Return how fast the best copy moves bytes, of an op that reads one array and writes one."""
    shapes = results.values("shape", threads=THREADS)
    rows = []
    for dtype in results.values("dtype", threads=THREADS):
        wanted = {"variant": "silu", "dtype": dtype, "threads": THREADS, "mode": REUSED}
        cells = [next(results.cells(**wanted, shape=shape), None) for shape in shapes]
        rows.append((dtype, *map(_bandwidth, cells)))
    return table(("dtype", *map(shape_text, shapes)), rows)


def _bandwidth(cell: Cell | None) -> str:
    seconds = cell.best_copy() if cell else None
    return f"{1e-9 * moved_bytes(cell.case) / seconds:.0f} GB/s" if cell and seconds else NOTHING


def one_row(results: Results) -> str:
    """Return what one row takes apart: a call on 64 elements, and what the other 4032 add to it."""
    rows = []
    for dtype in results.values("dtype", threads=THREADS):
        for variant in results.values("variant", dtype=dtype):
            wanted = {"variant": variant, "dtype": dtype, "threads": THREADS, "mode": REUSED}
            short = next(results.cells(**wanted, shape=(1, 64)), None)
            row = next(results.cells(**wanted, shape=ONE_ROW), None)
            fastest = row.fastest_peer() if row else None
            if row is None or short is None or fastest is None or fastest.value >= ONE_ROW_GOAL:
                continue
            apart = [_apart(short, row, entry) for entry in (OURS, fastest.entry)]
            rows.append((variant, dtype, *apart[0], results.label(fastest.entry), *apart[1]))
    if not rows:
        return "One row takes every other library 1.2 times as long as ours."
    return table(("op", "dtype", "ours: a call", "elements", "fastest", "a call", "elements"), rows)


def _apart(short: Cell, row: Cell, entry: str) -> tuple[str, str]:
    call, all_of_it = short.median(entry), row.median(entry)
    if call is None or all_of_it is None:
        return NOTHING, NOTHING
    return format_time(call), format_time(max(0.0, all_of_it - call))


def claim(results: Results) -> str:
    """Return the guide's claim beside what we have, over the expression a NumPy user writes."""
    shapes = results.values("shape", threads=THREADS, dtype="float32")
    rows = []
    for variant, claimed in CLAIMED.items():
        ratios = []
        for shape in shapes:
            wanted = {"variant": variant, "dtype": "float32", "shape": shape, "threads": THREADS}
            cell = next(results.cells(**wanted, mode=ALLOCATED), None)
            ratios.append(_times(cell.of_peer("numpy") if cell else None))
        rows.append((variant, claimed, *ratios))
    return table(("op", "claimed", *map(shape_text, shapes)), rows)


def means(results: Results, threads: int = THREADS) -> str:
    """Return the geometric mean over ops of our speed-up over the fastest peer."""
    rows = []
    shapes = results.values("shape", threads=threads)
    for dtype in results.values("dtype", threads=threads):
        for mode in MODES:
            cells = [
                list(results.cells(dtype=dtype, mode=mode, shape=shape, threads=threads))
                for shape in shapes
            ]
            rows.append((dtype, _mode(mode), *map(_mean, cells)))
    return table(("dtype", "result", *map(shape_text, shapes)), rows)


def _mean(cells: Iterable[Cell]) -> str:
    ratios = [ratio.value for cell in cells if (ratio := cell.fastest_peer())]
    return f"{statistics.geometric_mean(ratios):.2f}" if ratios else NOTHING


def dispatch(results: Results) -> str:
    """Return what the dispatched call takes beside the backend's own, one short row."""
    rows = []
    for cell in results.cells(dtype="float32", shape=(1, 64), threads=THREADS, mode=REUSED):
        ours, dispatched = cell.ours, cell.median(DISPATCHED)
        if ours is not None and dispatched is not None:
            rows.append((cell.case.variant, format_time(ours), format_time(dispatched)))
    return table(("op", OURS, DISPATCHED), rows)


def by_op(results: Results, shape: tuple[int, ...]) -> str:
    """Return the float32 table of one shape."""
    head = (
        *("op", "ours, `out=`", "fastest peer, `out=`", "torch", "of the copy"),
        *("ours, new", "fastest peer, new", "torch"),
    )
    rows = []
    for variant in results.values("variant", dtype="float32", shape=shape):
        wanted = {"variant": variant, "dtype": "float32", "shape": shape, "threads": THREADS}
        row = [variant]
        for mode in (REUSED, ALLOCATED):
            cell = next(results.cells(**wanted, mode=mode), None)
            row += _comparison(results, cell)
            if mode == REUSED:
                copy = cell.of_copy() if cell else None
                row.append(f"{copy.value:.2f}" if copy else NOTHING)
        rows.append(row)
    return table(head, rows)


def _comparison(results: Results, cell: Cell | None) -> list[str]:
    if cell is None or cell.ours is None:
        return [NOTHING] * 3
    fastest = cell.fastest_peer()
    return [format_time(cell.ours), _named(results, fastest), _times(cell.of_peer("torch"))]


def errors(results: Results) -> str:
    """Return the largest error of every peer in float32, the fastest way of each."""
    own = [peer for peer, known in results.content["peers"].items() if "absent" not in known]
    peers = [OURS, *(peer for peer in own if peer not in (OURS, DISPATCHED, "copy"))]
    rows = []
    for variant in results.values("variant", dtype="float32"):
        unit = VARIANTS[variant].op.bounds["float32"].unit
        known = results.content["errors"].get(f"{variant} float32 {ALLOCATED}", {})
        shown = [_largest_error(known, peer) for peer in peers]
        rows.append((variant, {"ulp": "ULP"}.get(unit, f"of {unit}"), *shown))
    return table(("op", "unit", *map(results.label, peers)), rows)


def _largest_error(known: dict[str, dict[str, float | None]], peer: str) -> str:
    found = [each["error"] for entry, each in known.items() if owner(entry) == peer]
    if not found:
        return NOTHING
    largest = [each for each in found if each is not None]
    return f"{max(largest):.2g}" if len(largest) == len(found) else "NaN"


def absent(results: Results) -> str:
    """Return what each peer does not have."""
    lacking: dict[tuple[str, str], list[str]] = {}
    for kind, peers in results.content["unsupported"].items():
        variant, dtype, mode = kind.split()
        for peer in peers:
            if peer != "copy":
                lacking.setdefault((peer, f"{dtype}, {_mode(mode)}"), []).append(variant)
    total = len(results.values("variant"))
    rows = [
        (results.label(peer), what, "all" if len(variants) == total else ", ".join(variants))
        for (peer, what), variants in sorted(lacking.items())
    ]
    rows += [
        (known["label"], "everything", "not installed")
        for known in results.content["peers"].values()
        if "absent" in known
    ]
    return table(("peer", "where", "lacks"), rows) if rows else "Every peer has every op."


def _times(ratio: Ratio | None) -> str:
    return f"{ratio.value:.2f}" if ratio else NOTHING


def _mode(mode: str) -> str:
    return "`out=`" if mode == REUSED else "new"


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f" ({low:.2f} to {high:.2f})"
