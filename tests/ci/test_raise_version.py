"""A version is raised in its one place, its changelog and what requires it, or nowhere."""

import shutil
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import raise_version as command
from raise_version import bounds, raise_version
from release_check import ROOT, packages, problems, version_of

DAY = "2026-11-29"
PACKAGES = packages()


@pytest.fixture
def root(tmp_path):
    """The files of this checkout in which versions are, with changelogs that wait for a release."""
    for package in PACKAGES:
        target = tmp_path / "packages" / package
        shutil.copytree(ROOT / "packages" / package / "src", target / "src")
        shutil.copy(ROOT / "packages" / package / "pyproject.toml", target)
        notes = f"# Changelog\n\n## {version_of(target)} (unreleased)\n\nMore.\n"
        (target / "CHANGELOG.md").write_text(notes, encoding="utf-8")
    shutil.copy(ROOT / "CONTRIBUTING.md", tmp_path)
    return tmp_path


def requirements(root):
    """Return what each package requires of ours, as (package, requirement)."""
    found = []
    for package in PACKAGES:
        text = (root / "packages" / package / "pyproject.toml").read_text(encoding="utf-8")
        project = tomllib.loads(text)["project"]
        lists = project.get("dependencies", []), *project.get("optional-dependencies", {}).values()
        every = [Requirement(words) for each in lists for words in each]
        found += [(package, each) for each in every if each.name in PACKAGES]
    return found


def contents(root):
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_raised_version_can_be_released(package, root):
    changed = raise_version(package, "7.8.9", DAY, root)
    assert problems(package, "7.8.9", root=root) == []
    assert {path.name for path in changed} >= {"CHANGELOG.md"}
    others = [each for each in PACKAGES if each != package]
    assert all(
        version_of(root / "packages" / each) == version_of(ROOT / "packages" / each)
        for each in others
    )


@pytest.mark.parametrize("package", PACKAGES)
def test_what_requires_it_requires_the_new_version(package, root):
    before = [str(each.specifier) for _, each in requirements(root)]
    raise_version(package, "7.8.9", DAY, root)
    for (_, each), old in zip(requirements(root), before, strict=True):
        bounded = each.name == package and old
        assert set(str(each.specifier).split(",")) == (
            {">=7.8.9", "<8"} if bounded else set(filter(None, old.split(","))) or {""}
        )


def test_the_guide_to_a_package_of_ones_own_requires_it_too(root):
    raise_version("tensor-ops", "7.8.0", DAY, root)
    text = (root / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert 'dependencies = ["tensor-ops>=7.8,<8"]' in text


def test_packages_require_one_another_as_they_are():
    found = requirements(ROOT)
    assert len(found) > 10
    for package, each in found:
        version = version_of(ROOT / "packages" / each.name)
        assert each.specifier.contains(version, prereleases=True), f"{package} requires {each}"


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.4.0", ">=0.4,<0.5"),
        ("0.4.1", ">=0.4.1,<0.5"),
        ("0.10.0", ">=0.10,<0.11"),
        ("1.0.0", ">=1.0,<2"),
        ("2.3.4rc1", ">=2.3.4rc1,<3"),
    ],
)
def test_bounds(version, expected):
    assert bounds(version) == expected


def test_notes_are_dated_when_they_are_written(root):
    """After a release: a section is begun, filled by hand, and dated for the next release."""
    changelog = root / "packages" / "tensor-ops-cpp" / "CHANGELOG.md"
    changelog.write_text("# Changelog\n\n## 7.1.0 (2026-10-01)\n\nFirst.\n")
    raise_version("tensor-ops-cpp", "7.2.0", DAY, root)
    begun = "# Changelog\n\n## 7.2.0 (unreleased)\n\n## 7.1.0 (2026-10-01)\n\nFirst.\n"
    assert changelog.read_text() == begun
    with pytest.raises(ValueError, match=r"says nothing of 7\.2\.0 yet: write what is new"):
        raise_version("tensor-ops-cpp", "7.2.0", DAY, root)
    changelog.write_text(begun.replace("(unreleased)\n", "(unreleased)\n\nMore.\n"))
    assert raise_version("tensor-ops-cpp", "7.2.0", DAY, root) == [changelog]
    assert changelog.read_text() == begun.replace("(unreleased)\n", f"({DAY})\n\nMore.\n")
    with pytest.raises(ValueError, match=r"says that 7\.2\.0 was released"):
        raise_version("tensor-ops-cpp", "7.2.0", DAY, root)


@pytest.mark.parametrize(
    ("package", "version", "message"),
    [
        ("tensor-opps", "0.4.0", "there is no package 'tensor-opps'"),
        ("tensor-ops", "0.4", "'0.4' is no version like 1.2.3"),
        ("tensor-ops", "0.0.9", "has the version .*, which is later than 0.0.9"),
    ],
)
def test_what_is_wrong_changes_nothing(package, version, message, root):
    before = contents(root)
    with pytest.raises(ValueError, match=message):
        raise_version(package, version, DAY, root)
    assert contents(root) == before


def test_command_line(root, monkeypatch, capsys):
    monkeypatch.setattr(command, "ROOT", root)
    monkeypatch.setattr(
        command, "raise_version", lambda *words: raise_version(*words[:2], DAY, root)
    )
    assert command.main(["tensor-ops-cpp", "7.8.0"]) == 0
    printed = capsys.readouterr().out.split()
    assert set(map(Path, printed)) == {
        Path("packages", package, name)
        for package, name in (
            ("tensor-ops-cpp", "CHANGELOG.md"),
            ("tensor-ops-cpp", "pyproject.toml"),
            ("tensor-ops", "pyproject.toml"),
            ("tensor-ops-torch", "pyproject.toml"),
        )
    }
    assert command.main(["tensor-ops-cpp", "7.7.0"]) == 1
    assert "which is later than 7.7.0" in capsys.readouterr().err
