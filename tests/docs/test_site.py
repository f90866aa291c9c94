"""The site: every page and public name is on it, and the links of the pages lead to it."""

import importlib
import importlib.util
import re
from pathlib import Path

import pytest

from tensor_ops.ops import OPS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SITE_ONLY = [DOCS / "index.md", *sorted(DOCS.glob("site/*.md"))]
API_PAGES = sorted(DOCS.glob("api/tensor_ops*.rst"))
# Pages that the index lists as parts of another, and those that include one.
NOT_LISTED = {"index", "README", "decisions/README"}


@pytest.fixture(scope="module")
def links():
    path = DOCS / "_extensions" / "links.py"
    spec = importlib.util.spec_from_file_location("links", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", API_PAGES, ids=lambda path: path.stem)
def test_every_public_name_has_its_place(path):
    module = pytest.importorskip(path.stem, exc_type=ModuleNotFoundError)
    text = path.read_text(encoding="utf-8")
    shown = re.findall(r"^\.\. auto(?:function|class|data|exception):: (\w+)$", text, re.MULTILINE)
    for _ in re.findall(rf"^\.\. ops:: {path.stem}$", text, re.MULTILINE):
        shown += [name for name in OPS if hasattr(module, name)]
    for group in re.findall(r"^\.\. data:: (\w+(?:\n {10}\w+)*)$", text, re.MULTILINE):
        shown += group.split()
    assert sorted(shown) == sorted(set(module.__all__) - {"__version__"})


def test_every_package_has_its_api_page():
    packages = {path.name for path in ROOT.glob("packages/*/src/*") if path.is_dir()}
    assert packages == {path.stem for path in API_PAGES}


def test_every_page_is_listed():
    listed = set()
    for page in [*DOCS.glob("**/*.md"), *DOCS.glob("**/*.rst")]:
        for block in re.findall(
            r"^(?:```{|\.\. )toctree.*?(?=^```$|\Z)", page.read_text("utf-8"), re.M | re.S
        ):
            for entry in re.findall(r"^ *(?:.+ <)?([\w./*-]+)>?$", block, re.M):
                found = (page.parent / entry).parent.glob(Path(entry).name + ".*")
                listed |= {path.resolve() for path in found}
    pages = {
        path.resolve()
        for pattern in ("**/*.md", "**/*.rst")
        for path in DOCS.glob(pattern)
        if "_build" not in path.parts
    }
    missing = {path.relative_to(DOCS).with_suffix("").as_posix() for path in pages - listed}
    assert missing == NOT_LISTED


@pytest.mark.parametrize("path", SITE_ONLY, ids=lambda path: path.stem)
def test_pages_of_the_site_have_no_text_of_their_own(path):
    text = re.sub(
        r"^```{(include|toctree)}.*?^```$", "", path.read_text("utf-8"), flags=re.M | re.S
    )
    assert re.fullmatch(r"\s*(# .*)?\s*", text)


def test_links_lead_to_pages_of_the_site(links):
    def rewritten(text, file="docs/guides/backends.md", address=""):
        return links.rewrite(text, ROOT / file, address)

    assert rewritten("[a](configuration.md#the-file)") == "[a](/guides/configuration.md#the-file)"
    assert rewritten("[a](../../README.md)") == "[a](/site/quickstart.md)"
    assert rewritten("[a](docs/decisions)", "README.md") == "[a](/site/decisions.md)"
    op = "[a](../../CONTRIBUTING.md#add-an-op)"
    assert rewritten(op) == "[a](/site/add_an_op.md)"
    style = "[a](../../CONTRIBUTING.md#style)"
    assert rewritten(style) == "[a](/site/contributing.md#style)"


def test_links_to_source_need_its_address(links):
    text, page = "See [the\nsuite](../../tests/conformance).", ROOT / "docs/guides/backends.md"
    assert links.rewrite(text, page, "") == "See the\nsuite."
    address = "https://example.org/main"
    assert links.rewrite(text, page, address) == (
        "See [the\nsuite](https://example.org/main/tests/conformance)."
    )


def test_other_links_and_code_stay(links):
    text = (
        "[a](https://example.org) [b](#here) ![c](../figures/x.svg)\n"
        "```python\nx = [a](b)\n```\n[d](opencl.md)\n~~~text\n[e](f)\n~~~\n"
    )
    changed = links.rewrite(text, ROOT / "docs/backends/cpp.md", "")
    assert changed == text.replace("(opencl.md)", "(/backends/opencl.md)")


def test_parts_of_files_that_the_site_shows_are_there(links):
    for part, page in links.SITE_PAGES.items():
        assert (ROOT / part.partition("#")[0]).exists(), part
        assert (DOCS / page).is_file(), page


def test_modules_of_the_api_import():
    for path in API_PAGES:
        if importlib.util.find_spec(path.stem):
            importlib.import_module(path.stem)
