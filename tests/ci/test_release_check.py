"""A release says the same version in its tag, its package and its changelog, or is refused."""

import pytest

import release_check
from release_check import problems, version_of


@pytest.fixture
def root(tmp_path):
    """A checkout with one package, ready to be released."""
    folder = tmp_path / "packages" / "tensor-ops-cpp"
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text('[project]\nname = "tensor-ops-cpp"\nversion = "1.2.3"')
    (folder / "CHANGELOG.md").write_text(
        "# Changelog\n\n## 1.2.3 (2026-11-21)\n\nMore.\n\n## 1.2.2 (2026-10-01)\n\nLess.\n"
    )
    return tmp_path


def check(root, version="1.2.3", package="tensor-ops-cpp", ref=None):
    return problems(package, version, ref, root)


def test_a_release_that_is_ready(root):
    assert check(root) == []
    assert check(root, ref="tensor-ops-cpp-v1.2.3") == []


def test_another_package(root):
    assert check(root, package="tensor-ops") == [
        "there is no package 'tensor-ops'; there are: tensor-ops-cpp"
    ]


@pytest.mark.parametrize("version", ["v1.2.3", "1.2", "1.2.3-rc1", "1.2.3.dev0", "1.2.3; ls", ""])
def test_no_version(root, version):
    assert f"{version!r} is no version like 1.2.3 or 1.2.3rc1" in check(root, version)


def test_another_version(root):
    assert check(root, "1.2.4") == [
        "packages/tensor-ops-cpp/pyproject.toml has the version 1.2.3, not 1.2.4",
        "the newest version of packages/tensor-ops-cpp/CHANGELOG.md is 1.2.3, not 1.2.4",
    ]


@pytest.mark.parametrize("ref", ["main", "v1.2.3", "tensor-ops-v1.2.3", "tensor-ops-cpp-v1.2.4"])
def test_another_tag(root, ref):
    assert check(root, ref=ref) == [
        f"{ref!r} is checked out; the tag of this release is tensor-ops-cpp-v1.2.3"
    ]


@pytest.mark.parametrize(
    ("heading", "problem"),
    [
        ("## 1.2.3 (unreleased)", "dates 1.2.3 'unreleased'; write the day as 2026-01-31"),
        ("## 1.2.3", "dates 1.2.3 'nothing'; write the day as 2026-01-31"),
        ("1.2.3", "has no heading '## 1.2.3 (DATE)'"),
    ],
)
def test_changelog_that_is_not_ready(root, heading, problem):
    path = root / "packages" / "tensor-ops-cpp" / "CHANGELOG.md"
    path.write_text(f"# Changelog\n\n{heading}\n")
    assert check(root) == [f"packages/tensor-ops-cpp/CHANGELOG.md {problem}"]


def test_command_line(capsys):
    assert release_check.main(["tensor-opps", "1.2.3"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "there is no package 'tensor-opps'" in err


def test_a_version_that_hatchling_finds_in_a_source_file(root):
    folder = root / "packages" / "tensor-ops-cpp"
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "tensor-ops-cpp"\ndynamic = ["version"]\n'
        '[tool.hatch.version]\npath = "src/__init__.py"\n'
    )
    (folder / "src").mkdir()
    source = folder / "src" / "__init__.py"
    source.write_text('"""A package."""\n__version__ = "1.2.3"\n')
    assert check(root) == []
    source.write_text('__version__ = "1.2.2"\n')
    assert check(root) == [
        "packages/tensor-ops-cpp/src/__init__.py has the version 1.2.2, not 1.2.3"
    ]
    source.write_text("__version__ = compute()\n")
    with pytest.raises(ValueError, match=r"__init__\.py has 0 lines like"):
        check(root)


@pytest.mark.parametrize("package", release_check.packages())
def test_every_changelog_begins_with_the_version_of_its_package(package):
    """The date is all that is left to write for a release."""
    version = version_of(release_check.ROOT / "packages" / package)
    assert [p for p in problems(package, version) if "dates" not in p] == []
