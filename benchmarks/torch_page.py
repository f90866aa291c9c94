"""Bring docs/pytorch_performance.md up to date from its records.

nox -s bench_torch -- torch_page
"""

import argparse
import json

import torch_decoder
import torch_models
import torch_parts
import torch_training
from pages import ROOT, update

PAGE = ROOT / "docs" / "pytorch_performance.md"
RESULTS = ROOT / "benchmarks" / "results"


def blocks_of_page() -> dict[str, str]:
    """Return the blocks of the page by name."""
    made: dict[str, str] = {}
    for script in (torch_models, torch_parts, torch_training, torch_decoder):
        path = RESULTS / f"{script.__name__}.json"
        made |= script.blocks(json.loads(path.read_text(encoding="utf-8")))
    return made


def main() -> None:
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    update(PAGE, blocks_of_page())


if __name__ == "__main__":
    main()
