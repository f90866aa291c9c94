"""How fast models decode and read prompts here, beside other engines on the same files.

Each engine is a process of its own. They take turns, and all but one are stopped: a ratio is of
runs next to each other on the same machine. The read bandwidth is measured in the same turns,
because that of a shared machine changes from minute to minute.

    python benchmarks/decode_models.py --json benchmarks/results/decode_models_avx512.json
    python benchmarks/decode_models.py --models "SmolLM2 Q4_1" --cases decode prompt --rounds 3
    python benchmarks/decode_models.py --python llama_cpp=/path/to/bin/python
    python benchmarks/decode_models.py --models "A3B Q4_K" "A3B IQ4_XS" "OSS MXFP4" \\
        --json benchmarks/results/decode_mixtures.json
    python benchmarks/decode_models.py --models "Hybrid 0.8B Q4_K" "Hybrid A3B Q4_K" \\
        --json benchmarks/results/decode_hybrids.json
    python benchmarks/decode_models.py --report

Each kind of processor has a record of its own: decode_models_avx512.json,
decode_models_amx.json and decode_models_avx2.json.
The last command brings the page up to date, from these, from those that were made again as
decode_models_avx512_again.json and decode_models_avx2_again.json, and from those of
decode_speculation.py, decode_neighbours.py, decode_scaling.py, decode_cache.py, decode_states.py,
decode_drafts.py, decode_adapters.py, decode_latents.py, decode_constraints.py,
decode_serving.py and decode_ranks.py.
The tables of cases, models and engines are in decode_peers/cases.py. An engine that is not
installed is left out, which the record says. Random models are written to --folder, 13 GB, where
they stay.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from decode_peers.cases import CASES, ENGINES, MODELS
from decode_peers.kinds import KINDS
from harness import command

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "decode_performance.md"
PICTURE = ROOT / "docs" / "figures" / "summary-decode.svg"
RECORDS = ROOT / "benchmarks" / "results"
MODULES = sorted({engine.module for engine in ENGINES.values()})


def main() -> None:
    parser = command.parser(__doc__)
    parser.add_argument("--report", action="store_true", help="bring the page up to date")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--rounds", type=int, default=7, help="of large models 6 at the most")
    parser.add_argument("--folder", type=Path, default=ROOT / ".benchmarks" / "decode")
    parser.add_argument(
        "--python",
        nargs="+",
        type=_interpreter,
        default=[],
        metavar="MODULE=PATH",
        help=f"interpreters that have the libraries of {', '.join(MODULES)}",
    )
    options = parser.parse_args()
    if options.report:
        from pages import update

        update(PAGE, blocks_of_page())
        PICTURE.write_text(picture_of_page(), encoding="utf-8")
        return
    from decode_peers import tables
    from decode_peers.driver import Places, kind_here, measure
    from decode_peers.record import Record
    from decode_peers.results import Results

    record = Record(options.json, kind_here(), {"rounds": options.rounds})
    places = Places(options.folder, dict(options.python))
    for name in options.models:
        measure(MODELS[name], tuple(options.cases), options.rounds, record, places)
    print(tables.section(Results(record.content)))


def blocks_of_page() -> dict[str, str]:
    """Return all blocks of the page."""
    import decode_adapters
    import decode_cache
    import decode_constraints
    import decode_drafts
    import decode_latents
    import decode_neighbours
    import decode_ranks
    import decode_scaling
    import decode_serving
    import decode_speculation
    import decode_states

    made = {f"decode-{kind}": section(kind) for kind in KINDS}
    kept = decode_cache, decode_states, decode_drafts, decode_adapters, decode_latents
    served = decode_constraints, decode_serving
    for module in (decode_speculation, decode_neighbours, decode_scaling, *kept, *served):
        record = (RECORDS / f"{module.__name__}.json").read_text(encoding="utf-8")
        made |= module.blocks(json.loads(record))
    made["decode-mixtures"] = beside_peers("mixtures")
    made["decode-hybrids"] = beside_peers("hybrids")
    path = RECORDS / "decode_ranks.json"
    of_ranks = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    return made | decode_ranks.blocks(of_ranks)


def section(kind: str) -> str:
    """Return what the page says of a kind of processor."""
    from decode_peers import tables

    found = results(kind)
    if found is None:
        return "No processor of this kind was at hand: not measured at this commit."
    return tables.section(found, results(kind, "_again"))


def beside_peers(what: str) -> str:
    """Return what the page says of mixtures of experts, or of hybrids."""
    from decode_peers import record, tables
    from decode_peers.results import Results

    path = RECORDS / f"decode_{what}.json"
    if not path.exists():
        return "Not measured yet."
    section: str = getattr(tables, what)(Results(record.read(path)))
    return section


def picture_of_page() -> str:
    """Return the picture of the page, of the first kind of processor that has a record."""
    from decode_peers import picture

    return picture.draw(next(found for kind in KINDS if (found := results(kind))))


def results(kind: str, ending: str = "") -> Any:
    """Return the record of a kind of processor, or None if there is none."""
    from decode_peers import record
    from decode_peers.results import Results

    path = RECORDS / f"decode_models_{kind}{ending}.json"
    if not path.exists():
        return None
    found = Results(record.read(path))
    if found.kind != kind:
        raise ValueError(f"{path.name} is of a processor of the kind {found.kind}")
    return found


def _interpreter(text: str) -> tuple[str, str]:
    module, _, path = text.partition("=")
    if module not in MODULES or not path:
        raise argparse.ArgumentTypeError(f"{text} is not MODULE=PATH of {', '.join(MODULES)}")
    return module, path


if __name__ == "__main__":
    main()
