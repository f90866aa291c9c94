"""How Sphinx builds the site: ``nox -s docs``."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_extensions"))

project = "tensor-ops"
copyright = "the tensor-ops contributors"
html_title = "tensor-ops"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "numpydoc",
    "links",
    "mathml",
    "docstrings",
    "ops",
]
# Files that the site shows under another name, or not at all.
exclude_patterns = ["_build", "README.md", "decisions/README.md"]
root_doc = "index"

# The address of the source code, to which links to files outside of docs/ lead. Without it they
# are text only.
source_address = os.environ.get("DOCS_SOURCE_ADDRESS", "").rstrip("/")

myst_heading_anchors = 4
# A page that includes a part of a file has its own title above the part's headings.
suppress_warnings = ["myst.header"]

default_role = "code"
smartquotes = False
add_module_names = False
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
maximum_signature_line_length = 88
numpydoc_show_class_members = False
numpydoc_attributes_as_param_list = True

# Types that have no page here.
nitpick_ignore = [
    ("py:class", "tensor_ops.config.selection.Step"),
    ("py:class", "Step"),
    ("py:class", "ModelState"),
    ("py:class", "tensor_ops_devices.validation.report.Status"),
    ("py:obj", "name"),
]
nitpick_ignore_regex = [
    ("py:class", r"(collections\.abc|os|pathlib|types|typing)\.\w+(\[\w+)?"),
    ("py:class", r"numpy\.(dtype|ndarray|uint8|_typing\..*)|tensor_ops_(cpp|cuda)\._native\.\w+"),
    (
        "py:class",
        r"Answer|Array|ChatTemplate|Messages|NDArray|np\.float32|Prompt|RunningAnswers|Tokenizer|Weights|deque",
    ),
    ("py:class", r"tensor_ops_decode\.(kernel|kinds|weights)\.\w+\.\w+"),
    ("py:.*", r"(onnx|onnxruntime|torch)(\.\w+)+"),
]

# Machine and network decide nothing about the result.
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sphinx = False
html_last_updated_fmt = None
html_theme_options = {"navigation_with_keys": True}
pygments_style = "friendly"
pygments_dark_style = "github-dark"

# For `nox -s docs -- linkcheck`.
linkcheck_timeout = 20
linkcheck_anchors = False
