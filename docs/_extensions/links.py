"""Links of the Markdown files, which are written for readers of the repository, for the site.

A link to a page of the site leads there; one to another file of the repository leads to its source
(``source_address``), or becomes plain text where the address of the source is not known.
"""

import os
import re
from pathlib import Path
from typing import Any

__all__ = ["SITE_PAGES", "rewrite", "setup"]

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent

# Where the site shows files, and parts of files, that are no pages of it.
SITE_PAGES = {
    "README.md": "site/quickstart.md",
    "docs/README.md": "index.md",
    "docs/decisions": "site/decisions.md",
    "docs/decisions/README.md": "site/decisions.md",
    "packages/tensor-ops/README.md": "site/package_tensor_ops.md",
    "packages/tensor-ops-cpp/README.md": "site/package_cpp.md",
    "packages/tensor-ops-opencl/README.md": "site/package_opencl.md",
    "packages/tensor-ops-cuda/README.md": "site/package_cuda.md",
    "packages/tensor-ops-torch/README.md": "site/package_torch.md",
    "packages/tensor-ops-devices/README.md": "site/package_devices.md",
    "ARCHITECTURE.md": "site/architecture.md",
    "CONTRIBUTING.md": "site/contributing.md",
    "CONTRIBUTING.md#add-an-op": "site/add_an_op.md",
    "CONTRIBUTING.md#add-a-backend": "site/add_a_backend.md",
}

_LINK = re.compile(r"(?<!!)\[([^\[\]]*)\]\(([^)\s]+)\)")
_FENCED = re.compile(r"(^ *(`{3,}|~{3,}).*?^ *\2 *$)", re.DOTALL | re.MULTILINE)
_ELSEWHERE = re.compile(r"[a-z]+:|#")


def setup(app: Any) -> dict[str, bool]:
    app.add_config_value("source_address", "", "env", str)
    app.connect("source-read", _on_page)
    app.connect("include-read", _on_included_file)
    return {"parallel_read_safe": True}


def rewrite(text: str, file: Path, source_address: str) -> str:
    """Return the Markdown text of a file with the links that the site has.

    Parameters
    ----------
    text : str
    file : Path
        Where the text stands: relative links start there.
    source_address : str
        What a file's path in the repository is appended to; may be empty.
    """

    def replaced(match: re.Match[str]) -> str:
        label, target = match.groups()
        if _ELSEWHERE.match(target):
            return match[0]
        address = _address(file.parent, target, source_address)
        return f"[{label}]({address})" if address else label

    parts = _FENCED.split(text)
    # Every match contributes two parts: the fenced block, and its fence.
    outside = [_LINK.sub(replaced, part) for part in parts[::3]]
    for place, part in zip(range(0, len(parts), 3), outside, strict=True):
        parts[place] = part
    return "".join(part for place, part in enumerate(parts) if place % 3 != 2)


def _address(place: Path, target: str, source_address: str) -> str | None:
    path, hash_sign, anchor = target.partition("#")
    found = Path(os.path.normpath(place / path))
    of_repository = found.relative_to(ROOT).as_posix()
    for whole in (f"{of_repository}#{anchor}", of_repository):
        if whole in SITE_PAGES:
            rest = f"#{anchor}" if anchor and "#" not in whole else ""
            return f"/{SITE_PAGES[whole]}{rest}"
    if found.suffix == ".md" and found.is_relative_to(DOCS):
        return f"/{found.relative_to(DOCS).as_posix()}{hash_sign}{anchor}"
    if source_address:
        return f"{source_address}/{of_repository}{hash_sign}{anchor}"
    return None


def _on_page(app: Any, docname: str, content: list[str]) -> None:
    file = Path(app.env.doc2path(docname))
    if file.suffix == ".md":
        content[0] = rewrite(content[0], file, app.config.source_address)


def _on_included_file(app: Any, path: Path, parent: str, content: list[str]) -> None:
    file = Path(os.path.normpath(DOCS / path))
    if file.suffix == ".md":
        content[0] = rewrite(content[0], file, app.config.source_address)
