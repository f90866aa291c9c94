"""Requirements of native wheels on the system that they are installed on."""

import json
import re
import sys

import pytest
from packaging.version import Version

from interpreters import run, tag_of

# Libraries of glibc and GCC that are loaded from the system; all else is compiled in.
OF_THE_SYSTEM = {"libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1"}
OF_THE_SYSTEM |= {"libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2"}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="auditwheel is for Linux")


def test_tag_and_newest_symbols_are_named(native_package, wheel, capsys):
    """They are those of this machine's compiler; those of a release come from pinned images."""
    said = run(sys.executable, "-m", "auditwheel", "show", "--json", wheel(native_package))
    found = json.loads(said[said.index("{") : said.rindex("}") + 1])
    assert re.fullmatch(r"manylinux_2_\d+_\w+", found["overall_tag"])
    own = f"lib{native_package.replace('-', '_')}.so"
    assert found["versioned_symbols"].keys() - {own} <= OF_THE_SYSTEM
    assert not found["external_libs"], "what is carried along needs its licence in the notices"
    with capsys.disabled():
        print(f"\n{wheel(native_package).name}: {found['overall_tag']}")
        for library, symbols in sorted(found["versioned_symbols"].items()):
            print(f"  {library}: up to {', '.join(newest(symbols))}")


def test_one_wheel_for_several_pythons_keeps_to_the_stable_abi(native_package, dist, interpreter):
    stem, tag = native_package.replace("-", "_"), tag_of(interpreter.version)
    wheels = list(dist.glob(f"{stem}-*-{tag}-abi3-*.whl"))
    if not wheels:
        pytest.skip(f"{native_package} has no wheel here that keeps to the stable ABI")
    run(sys.executable, "-m", "abi3audit", "--strict", *wheels)


def newest(symbols):
    """Return the newest version of each series of symbols, such as GLIBC_2.34."""
    split = [symbol.rpartition("_") for symbol in symbols]
    series = {name: [] for name, _, _ in split}
    for name, _, version in split:
        series[name].append(Version(version))
    return sorted(f"{name}_{max(versions)}" for name, versions in series.items())


def test_repair_adds_nothing(native_package, wheel, tmp_path):
    """No library has to be carried along: it needs those of the system only."""
    words = ["-m", "auditwheel", "repair", "--wheel-dir", tmp_path, wheel(native_package)]
    said = run(sys.executable, *words)
    (repaired,) = tmp_path.glob("*.whl")
    assert "manylinux_2_" in repaired.name, said
    assert f"{native_package.replace('-', '_')}.libs" not in said
    assert repaired.stat().st_size < 1.2 * wheel(native_package).stat().st_size
