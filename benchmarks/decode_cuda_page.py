"""Predict decode steps on GPUs from machine code, for docs/decode_cuda_predictions.md.

python benchmarks/decode_cuda_page.py           makes the page from its record
python benchmarks/decode_cuda_page.py --count   makes the record, too: with nvcc and nvdisasm
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import records
from decode_cuda import kernel, tables
from pages import ROOT, update

FORMAT = 1
PAGE = ROOT / "docs" / "decode_cuda_predictions.md"
RECORD = ROOT / "benchmarks" / "results" / "decode_cuda_counts.json"


def main() -> int:
    """Make the page, and the record if that is asked for; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--count", action="store_true", help="compile the kernel for all GPUs and count again"
    )
    if parser.parse_args().count:
        if missing := kernel.missing_tool():
            print(missing, file=sys.stderr)
            return 1
        records.write(RECORD, json.dumps(_counted(), indent=1) + "\n")
    update(PAGE, blocks_of_page())
    return 0


def blocks_of_page() -> dict[str, str]:
    """Return the blocks of the page by name."""
    return tables.blocks(records.read(RECORD, FORMAT))


def _counted() -> dict[str, object]:
    origin = records.origin(FORMAT)
    del origin["machine"]  # which has no part in what is counted
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for architecture in kernel.ARCHITECTURES:
            cubin = Path(folder, f"steps_{architecture}.cubin")
            kernel.compile_kernel(architecture, cubin)
            found += kernel.kernels_of(architecture, cubin)
    return {
        **origin,
        "compiler": kernel.compiler_release(),
        "kernels": [kernel.as_record(each) for each in found],
    }


if __name__ == "__main__":
    sys.exit(main())
