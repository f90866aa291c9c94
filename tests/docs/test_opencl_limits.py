"""No figure on the page about OpenCL without its records."""

import re

import pytest

import pages
from comparison import opencl


@pytest.fixture(scope="module")
def made():
    return opencl.blocks(opencl.read(opencl.LIMITS), opencl.read(opencl.CALLS))


@pytest.fixture(scope="module")
def shown_text():
    return opencl.PAGE.read_text(encoding="utf-8")


def test_blocks_are_what_the_record_gives(shown_text, made):
    assert shown_text == pages.fill(shown_text, made), (
        f"run: python benchmarks/opencl_calls.py --report {opencl.CALLS.relative_to(opencl.ROOT)}"
    )


def test_every_block_is_shown(shown_text, made):
    assert sorted(match[2] for match in pages.BLOCK.finditer(shown_text)) == sorted(made)


def test_no_number_stands_in_the_prose(shown_text):
    prose = pages.BLOCK.sub("", shown_text)
    assert not re.search(r"\d ?(times|ms|us|µs|GB/s|%)(?!\w)", prose)
