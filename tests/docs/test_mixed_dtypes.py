"""No figure about float32 parameters beside half inputs without its record."""

import json

import mixed_dtypes
import pages

RECORD = pages.ROOT / "benchmarks" / "results" / "mixed_dtypes.json"


def test_page_is_what_the_record_gives():
    page = mixed_dtypes.PAGE.read_text(encoding="utf-8")
    made = mixed_dtypes.blocks(json.loads(RECORD.read_text(encoding="utf-8")))
    assert page == pages.fill(page, made), (
        f"run: python benchmarks/mixed_dtypes.py --report {RECORD.relative_to(pages.ROOT)}"
    )
    assert [match[2] for match in pages.BLOCK.finditer(page)] == list(made)
