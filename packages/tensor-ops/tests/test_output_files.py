"""Files that commands write: whole, or as they were."""

import os

import pytest

from tensor_ops.files.output import whole_file


@pytest.fixture
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


@pytest.mark.parametrize("before", [None, "old"])
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_an_error_leaves_a_file_as_it_was(place, before, error):
    target = place / "a.json"
    if before:
        target.write_text(before)

    def fail():
        with whole_file(target) as path:
            path.write_text("half a")
            raise error

    with pytest.raises(error):
        fail()
    assert [each.read_text() for each in place.iterdir()] == [before] * bool(before)


def test_a_file_is_replaced_with_its_mode_and_by_links(place):
    target, link = place / "a.json", place / "b.json"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to("a.json")
    with whole_file(link) as path:
        assert path.suffix == ".json"
        path.write_text("new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    if os.name == "posix":
        assert target.stat().st_mode & 0o777 == 0o640
    assert sorted(place.iterdir()) == [target, link]


@pytest.mark.skipif(os.name != "posix", reason="devices of POSIX")
def test_what_is_no_file_is_written_to_as_it_is():
    with whole_file(os.devnull) as path:
        path.write_text("gone")
    assert not os.path.isfile(os.devnull)


@pytest.mark.parametrize("name", [os.devnull, "a.json"])
def test_an_error_of_the_system_names_the_file(place, name):
    with pytest.raises(OSError, match=name), whole_file(place / name):
        raise OSError(28, "No space left on device")


def test_a_folder_that_is_missing_is_an_error_with_the_path_that_was_given(place):
    target = place / "missing" / "a.json"
    with pytest.raises(FileNotFoundError, match=r"a\.json"), whole_file(target) as path:
        path.write_text("x")
