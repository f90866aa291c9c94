"""The page about performance on a GPU, made from the record of a GPU.

    python -m gpu.report DIR/gpu_check.json

It keeps the record in benchmarks/results, brings the page up to date and prints the goals. Where
there is no record, the page says so.
"""

import argparse
import json
import re
import shutil
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gpu import decode_report
from gpu.goals import COPY, OURS, fastest_peer, findings, ratio
from gpu.parts import BANDWIDTH, CALL, GRAPH, HOST, HOST_ARRAYS
from harness.goals import Finding, goal_table
from harness.tables import shape_text, table
from pages import ROOT
from tensor_ops.timing import format_time

__all__ = ["FORMAT", "RECORD", "blocks", "fill", "read", "bandwidth"]

FORMAT = 1
PAGE = ROOT / "docs" / "performance_cuda.md"
RECORD = Path(__file__).parents[1] / "results" / "gpu_check.json"
BLOCK = re.compile(r"(<!-- from a GPU (.+?) -->\n).*?(<!-- so far a GPU \2 -->)", re.DOTALL)
NAMES = (
    "setting",
    "goals",
    "missed",
    "bandwidth",
    "large",
    "small",
    "host",
    "numpy",
    "decode",
    "checks",
)
ABSENT = "Not measured yet."
NOTHING = "—"

Figure = dict[str, Any]


def main(words: Sequence[str]) -> int:
    """Bring the page up to date; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m gpu.report",
        description="Bring the page about performance on a GPU up to date.",
    )
    parser.add_argument(
        "record", nargs="?", type=Path, default=RECORD, help="what gpu_check wrote, to be kept"
    )
    record: Path = parser.parse_args(words).record
    content = read(record)
    if record.resolve() != RECORD:
        if content is None:
            parser.error(f"there is no {record}")
        if not content["gpus"]:
            parser.error(f"{record} is of a machine without a GPU")
        shutil.copyfile(record, RECORD)
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), content), encoding="utf-8")
    print(blocks(content)["goals"])
    print(blocks(content)["missed"])
    return 0


def read(path: Path = RECORD) -> dict[str, Any] | None:
    """Return what `gpu_check` wrote, or None where there is no such file.

    Raises
    ------
    ValueError
        If the file is of another format.
    """
    if not path.exists():
        return None
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if content.get("format") != FORMAT:
        raise ValueError(
            f"{path.name} has format {content.get('format')}, this code reads {FORMAT}; "
            "run tools/gpu_check.py again"
        )
    return content


def fill(page: str, content: dict[str, Any] | None) -> str:
    """Return a page with every block between ``<!-- from a GPU NAME -->`` comments made anew."""
    made = blocks(content)
    return BLOCK.sub(lambda match: f"{match[1]}{made[match[2]]}\n{match[3]}", page)


def blocks(content: dict[str, Any] | None) -> dict[str, str]:
    """Return the blocks of the page by name."""
    if content is None:
        return dict.fromkeys(NAMES, ABSENT)
    figures = content["figures"]
    found = findings(figures)
    return {
        "setting": _setting(content),
        "goals": goal_table(found),
        "missed": _missed(found),
        "bandwidth": bandwidth(figures),
        "large": _beside(figures, lambda rows: rows > 1000),
        "small": _beside(figures, lambda rows: rows <= 1000),
        "host": _host(figures),
        "numpy": _host_arrays(figures),
        "decode": _decode(content),
        "checks": _checks(content),
    }


def _setting(content: dict[str, Any]) -> str:
    commit = content["commit"]
    changed = " with changes that were not committed" if commit["dirty"] else ""
    versions = ", ".join(f"{name} {version}" for name, version in content["versions"].items())
    rows = [("GPU", ", ".join(gpu["name"] for gpu in content["gpus"]) or "none")]
    rows += [("driver", gpu["driver"]) for gpu in content["gpus"][:1]]
    rows += [
        ("CUDA", content["toolkit"] or NOTHING),
        ("system", f"{content['system']}, Python {content['python']}, {content['cpus']} CPUs"),
        ("versions", versions),
        ("commit", f"`{(commit['id'] or 'unknown')[:12]}`{changed}"),
        ("date", content["date"]),
    ]
    return table(("what", "which"), rows)


def _missed(found: Sequence[Finding]) -> str:
    missed = [each for each in found if not each.met]
    if found and not missed:
        return "No goal is missed."
    rows = [
        (
            *(each.goal, each.label, f"{each.wanted:g}", f"{each.found:.2f}"),
            f"{each.low:.2f} to {each.high:.2f}" if each.low and each.high else NOTHING,
            each.against or NOTHING,
        )
        for each in sorted(missed, key=lambda each: each.lacking, reverse=True)
    ]
    return table(("goal", "op", "wanted", "found", "over rounds", "against"), rows)


def bandwidth(figures: Sequence[Figure]) -> str:
    own = [figure for figure in figures if figure["way"] == BANDWIDTH]
    lengths = sorted({figure["shape"][1] for figure in own})
    rows = []
    for variant, dtype in dict.fromkeys((figure["variant"], figure["dtype"]) for figure in own):
        row = [variant, dtype]
        for n in lengths:
            cell = _first(own, variant=variant, dtype=dtype, n=n)
            row.append(_of_copy(cell))
        rows.append(row)
    return table(("op", "dtype", *(f"rows of {n}" for n in lengths)), rows)


def _of_copy(figure: Figure | None) -> str:
    found = ratio(figure, COPY) if figure else None
    if figure is None or found is None:
        return NOTHING
    speed = figure["bytes"] / statistics.median(figure["us"][OURS]) * 1e-6
    return f"{found[0]:.2f} ({speed:.2f} TB/s)"


def _beside(figures: Sequence[Figure], wanted: Any) -> str:
    own = [figure for figure in figures if figure["way"] == CALL and wanted(figure["shape"][0])]
    rows = []
    for figure in own:
        graph = next((each for each in figures if _is_same(each, figure, GRAPH)), None)
        row = [figure["variant"], figure["dtype"], shape_text(figure["shape"])]
        for each in (figure, graph):
            times = each.get("us", {}) if each else {}
            row.append(format_time(1e-6 * statistics.median(times[OURS])) if OURS in times else "—")
            row.append(_fastest(each))
        row.append(_times(figure, "torch"))
        rows.append(row)
    head = (
        "op",
        "dtype",
        "shape",
        "ours",
        "fastest other",
        "ours, graph",
        "fastest other",
        "torch",
    )
    return table(head, rows)


def _fastest(figure: Figure | None) -> str:
    peer = fastest_peer(figure) if figure else None
    return f"{_times(figure, peer)} {peer}" if figure and peer else NOTHING


def _times(figure: Figure, entry: str | None) -> str:
    found = ratio(figure, entry) if entry else None
    return f"{found[0]:.2f}" if found else NOTHING


def _host(figures: Sequence[Figure]) -> str:
    names = (OURS, f"{OURS} out=", "tensor_ops", "torch")
    return _medians([each for each in figures if each["way"] == HOST], names)


def _host_arrays(figures: Sequence[Figure]) -> str:
    own = [figure for figure in figures if figure["way"] == HOST_ARRAYS]
    rows = []
    for figure in own:
        copies = ratio(figure, COPY, f"{OURS} out=")
        python = ratio(figure, "python")
        times = figure.get("us", {}).get(f"{OURS} out=")
        rows.append(
            (
                figure["variant"],
                format_time(1e-6 * statistics.median(times)) if times else NOTHING,
                f"{copies[0]:.2f}" if copies else NOTHING,
                f"{python[0]:.1f}" if python else NOTHING,
            )
        )
    return table(("op", "ours, `out=`", "of the copies", "times NumPy"), rows)


def _decode(content: dict[str, Any]) -> str:
    return table(decode_report.HEAD, decode_report.rows(content["figures"]))


def _medians(figures: Sequence[Figure], names: Sequence[str]) -> str:
    rows = [
        (
            figure["variant"],
            *(
                format_time(1e-6 * statistics.median(figure["us"][name]))
                if name in figure.get("us", {})
                else NOTHING
                for name in names
            ),
        )
        for figure in figures
    ]
    return table(("op", *names), rows)


def _checks(content: dict[str, Any]) -> str:
    rows = [
        (name, stage["status"], f"{stage['seconds']:.0f} s", stage.get("reason", ""))
        for name, stage in content["stages"].items()
    ]
    return table(("stage", "result", "took", "why"), rows)


def _first(figures: Iterable[Figure], variant: str, dtype: str, n: int) -> Figure | None:
    key = variant, dtype, n
    same = (f for f in figures if (f["variant"], f["dtype"], f["shape"][1]) == key)
    return next(same, None)


def _is_same(figure: Figure, other: Figure, way: str) -> bool:
    keys = ("variant", "dtype", "shape")
    return figure["way"] == way and all(figure[key] == other[key] for key in keys)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
