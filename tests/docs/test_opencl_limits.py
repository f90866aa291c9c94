"""No figure on the page about OpenCL without its record."""

import re
from pathlib import Path

import pytest

from comparison import opencl, report

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "benchmarks" / "results" / "opencl_limits.json"


@pytest.fixture(scope="module")
def made():
    return opencl.blocks(opencl.read(RECORD))


@pytest.fixture(scope="module")
def shown_text():
    return opencl.PAGE.read_text(encoding="utf-8")


def test_blocks_are_what_the_record_gives(shown_text, made):
    assert shown_text == report.fill(shown_text, made), (
        f"run: python benchmarks/opencl_limits.py --report {RECORD.relative_to(ROOT)}"
    )


def test_every_block_is_shown(shown_text, made):
    assert sorted(match[2] for match in report.BLOCK.finditer(shown_text)) == sorted(made)


def test_no_number_stands_in_the_prose(shown_text):
    prose = report.BLOCK.sub("", shown_text)
    assert not re.search(r"\d ?(times|ms|us|µs|GB/s|%)(?!\w)", prose)
