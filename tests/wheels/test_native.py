"""Requirements of native wheels on the system that they are installed on."""

import re
import sys

import pytest

from interpreters import run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="auditwheel is for Linux")


def test_the_tag_is_named(native_package, wheel, capsys):
    """It is that of this machine's compiler; those that are released come from pinned images."""
    said = run(sys.executable, "-m", "auditwheel", "show", wheel(native_package))
    tag = re.search(r'following platform tag:\s+"(manylinux_2_\d+_\w+)"', said)
    assert tag, said
    with capsys.disabled():
        print(f"\n{wheel(native_package).name}: {tag[1]}")


def test_repair_adds_nothing(native_package, wheel, tmp_path):
    """No library has to be carried along: it needs those of the system only."""
    words = ["-m", "auditwheel", "repair", "--wheel-dir", tmp_path, wheel(native_package)]
    said = run(sys.executable, *words)
    (repaired,) = tmp_path.glob("*.whl")
    assert "manylinux_2_" in repaired.name, said
    assert f"{native_package.replace('-', '_')}.libs" not in said
    assert repaired.stat().st_size < 1.2 * wheel(native_package).stat().st_size
