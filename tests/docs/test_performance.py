"""No figure on the page about performance without its record."""

import json
import re
from pathlib import Path

import pytest

import decode_accuracy
import decode_cuda_page
import decode_models
import decode_perplexity
import pages
import torch_page
import vllm_provider
from comparison import report
from comparison.record import read
from comparison.results import Results
from comparison.tables import blocks
from gpu import report as gpu_report

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "benchmarks" / "results" / "peers.json"


@pytest.fixture(scope="module")
def results():
    return Results(read(RECORD))


@pytest.fixture(scope="module")
def shown_text():
    return "\n".join(page.read_text(encoding="utf-8") for page in report.PAGES)


@pytest.fixture(scope="module")
def gpu_text():
    return gpu_report.PAGE.read_text(encoding="utf-8")


def test_blocks_are_what_the_record_gives(shown_text, results):
    assert shown_text == pages.fill(shown_text, blocks(results)), (
        f"run: nox -s peers -- --report {RECORD.relative_to(ROOT)}"
    )


def test_every_block_of_the_record_is_shown(shown_text, results):
    shown = [match[2] for match in pages.BLOCK.finditer(shown_text)]
    assert len(shown) == shown_text.count("<!-- measured ") == shown_text.count("<!-- end of ")
    assert sorted(shown) == sorted(blocks(results))


def test_every_dtype_has_its_figure(shown_text, results):
    for dtype in results.values("dtype"):
        name = report.figure_name(dtype)
        assert f"figures/{name}" in shown_text
        drawn = (pages.FIGURES / name).read_text(encoding="utf-8")
        assert drawn.startswith("<?xml")
        assert len(drawn) < 150_000


def test_the_page_about_text_generation_is_what_its_records_give():
    shown = decode_models.PAGE.read_text(encoding="utf-8")
    made = decode_models.blocks_of_page()
    assert sorted(match[2] for match in pages.BLOCK.finditer(shown)) == sorted(made)
    how = "run: python benchmarks/decode_models.py --report"
    assert shown == pages.fill(shown, made), how
    assert decode_models.PICTURE.read_text(encoding="utf-8") == decode_models.picture_of_page(), how


def test_the_page_about_pytorch_is_what_its_records_give():
    shown = torch_page.PAGE.read_text(encoding="utf-8")
    made = torch_page.blocks_of_page()
    assert sorted(match[2] for match in pages.BLOCK.finditer(shown)) == sorted(made)
    assert shown == pages.fill(shown, made), "run: nox -s bench_torch -- torch_page"


def test_the_page_about_vllm_is_what_its_record_gives():
    content = json.loads(vllm_provider.RECORD.read_text(encoding="utf-8"))
    shown = vllm_provider.PAGE.read_text(encoding="utf-8")
    made = vllm_provider.blocks(content)
    assert [match[2] for match in pages.BLOCK.finditer(shown)] == list(made)
    assert shown == pages.fill(shown, made), "run: python benchmarks/vllm_provider.py --report"


def test_the_page_about_gpus_is_what_its_counts_give():
    shown = decode_cuda_page.PAGE.read_text(encoding="utf-8")
    made = decode_cuda_page.blocks_of_page()
    assert sorted(match[2] for match in pages.BLOCK.finditer(shown)) == sorted(made)
    assert shown == pages.fill(shown, made), "run: python benchmarks/decode_cuda_page.py"


def test_the_accuracy_of_decode_is_what_its_record_gives():
    content = json.loads((RECORD.parent / "decode_accuracy.json").read_text(encoding="utf-8"))
    shown = decode_accuracy.PAGE.read_text(encoding="utf-8")
    made = decode_accuracy.blocks(content) | decode_perplexity.blocks_of_page()
    assert [match[2] for match in pages.BLOCK.finditer(shown)] == list(made)
    assert shown == pages.fill(shown, made), "run: benchmarks/decode_accuracy.py --report"


def test_no_number_stands_in_the_prose(shown_text, gpu_text):
    """Measured numbers stand in blocks only: prose would not be brought up to date."""
    prose = gpu_report.BLOCK.sub("", pages.BLOCK.sub("", shown_text + gpu_text))
    claims = prose.replace("95% confidence", "")
    assert not re.search(r"\d ?(times|x|ms|us|GB/s|%)(?!\w)", claims)


def test_the_record_tells_no_machine_apart(results):
    """Names of hosts and users' folders are nobody's business."""
    text = RECORD.read_text(encoding="utf-8")
    assert not re.search(r"/(?:home|root|tmp|Users)\b", text)


def test_the_page_about_a_gpu_is_what_its_record_gives(gpu_text):
    content = gpu_report.read()
    shown = [match[2] for match in gpu_report.BLOCK.finditer(gpu_text)]
    assert sorted(shown) == sorted(gpu_report.NAMES)
    assert gpu_text == gpu_report.fill(gpu_text, content), "run: python -m gpu.report"
    if content is not None:
        assert content["gpus"], "a record without a GPU is none"
        text = gpu_report.RECORD.read_text(encoding="utf-8")
        assert not re.search(r"/(?:home|root|tmp|Users)\b", text)
