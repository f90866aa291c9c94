"""The loader of backend.json on any bytes: a configuration or a ConfigError."""

import tempfile
from pathlib import Path

from tensor_ops import config
from tensor_ops.config import selection
from tensor_ops.errors import ConfigError

__all__ = ["try_input"]

INSTALLED = ("cpp", "cuda", "plug-in")
SEEDS = [
    b'{"preferred_backend": "cpp", "backend_priority": ["cpu", "numpy"], "force_backend": null}',
    b'{\n  "$schema": [1e5, true], "description": "\\ud800",\n  "force_backend": "cuda"\n}',
    b'{"prefered_backend": "cdua"}',
    b'{"backend_priority": ["cuda", "cuda"]}',
    b'{"preferred_backend": {"a": NaN}}',
    b"\xef\xbb\xbf{}",
]
DICTIONARY = [
    *config.DEFAULTS, *config.IGNORED_KEYS, "auto", "cpp", "cuda", "numpy", "cpu", "plug-in",
    "nki", "null", "true", "\\ud800", "1e999", "NaN", "[[[[", '": [', '": "', '", "',
]  # fmt: skip
_folder = tempfile.TemporaryDirectory(prefix="fuzz-configuration-")
PATH = Path(_folder.name, "backend.json")


def try_input(data):
    PATH.write_bytes(data)
    try:
        found = config.load(PATH, INSTALLED)
    except ConfigError as error:
        message = str(error)
        found = None
    if found is None:
        assert message.startswith(f"{PATH}:"), message
        message.encode()  # it can be shown
        return
    # An accepted configuration can be used, shown and written.
    decision = selection.decide([found.level(INSTALLED)])
    assert decision.candidates
    saved = config.save(PATH, {"preferred_backend": "auto"}, INSTALLED)
    assert saved.as_dict() == found.as_dict() | {"preferred_backend": "auto"}
