"""Files of configuration, for the tests about reading and changing them."""

from pathlib import Path

from tensor_ops.config import location

INSTALLED = ("cpp",)
MINIMAL = '{\n  "preferred_backend": "auto"\n}\n'


def put(path, content=MINIMAL):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def user_file(home):
    found = Path(location.user_file())
    assert found.is_relative_to(home)
    return found
