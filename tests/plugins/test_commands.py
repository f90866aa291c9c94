"""Commands of other packages join ``tensor-ops``; a broken one disables only itself."""

import pytest

METADATA = "Metadata-Version: 2.4\nName: {}\nVersion: 1.0\n"
GREET = """
import sys
from tensor_ops import ConfigError

def main(words):
    if words == ["fail"]:
        raise ConfigError("no greeting in the file")
    print("hello", *words)
    return 3 if words == ["three"] else None
"""
# Code that must not run for the help.
SAYS = """
raise SystemExit("imported")

def main(words):
    {}
"""


@pytest.fixture
def commands(empty_environment):
    """Packages with commands: one that works, one that cannot be imported, two of one name."""
    folder = empty_environment.packages
    for package, code, name in (
        ("greeting", GREET, "greet"),
        ("broken_words", "import no_such_module", "shout"),
        ("one_of_two", GREET, "echo"),
        ("two_of_two", GREET, "echo"),
        ("taking_ours", GREET, "doctor"),
        ("measuring", GREET, "bench.two_words"),
        ("misplaced", GREET, "doctor.mine"),
        ("saying", SAYS.format("'Say what it does.\\n\\nAnd more.'"), "tell"),
        ("elsewhere", "from greeting import main", "wave"),
        ("wrong_source", "def main(:", "stumble"),
    ):
        (folder / f"{package}.py").write_text(code)
        metadata = folder / f"{package}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(METADATA.format(package))
        (metadata / "entry_points.txt").write_text(
            f"[tensor_ops.commands]\n{name} = {package}:main\n"
        )

    def run(*words):
        code = f"import sys; from tensor_ops.__main__ import main; sys.exit(main({list(words)}))"
        return empty_environment.run(code)

    return run


def test_a_command_gets_the_words_after_its_name_as_they_are(commands):
    done = commands("greet", "--two_words", "-x=1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello --two_words -x=1\n", "")


def test_it_returns_the_exit_status(commands):
    assert commands("greet", "three").returncode == 3


def test_its_errors_are_shown_like_ours(commands):
    done = commands("greet", "fail")
    assert done.returncode == 1
    assert done.stderr == "tensor-ops: error: no greeting in the file\n"


def test_one_that_cannot_be_imported_says_why(commands):
    done = commands("shout")
    assert done.returncode == 1
    assert done.stderr == (
        "tensor-ops: error: command 'shout' of broken_words cannot be run: importing "
        "broken_words:main failed: ModuleNotFoundError: No module named 'no_such_module'\n"
    )


def test_one_that_two_packages_claim_says_so(commands):
    done = commands("echo")
    assert done.returncode == 1
    assert "one_of_two (one_of_two:main) and two_of_two (two_of_two:main) claim" in done.stderr


def test_all_are_in_the_help_and_none_is_imported_for_it(commands):
    done = commands("--help")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["greet", "a", "command", "of", "greeting"] in lines
    assert ["shout", "a", "command", "of", "broken_words"] in lines
    assert ["echo", "a", "command", "of", "one_of_two", "or", "two_of_two"] in lines
    assert ["tell", "say", "what", "it", "does"] in lines
    assert ["wave", "a", "command", "of", "elsewhere"] in lines
    assert ["stumble", "a", "command", "of", "wrong_source"] in lines


def test_our_own_keep_their_names(commands):
    done = commands("doctor")
    assert (done.returncode, done.stderr) == (0, "")
    assert "hello" not in done.stdout


@pytest.mark.parametrize("name", ["two_words", "two-words"])
def test_a_command_below_one_of_ours_gets_the_words_after_both(commands, name):
    done = commands("bench", name, "--with_words", "-x=1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello --with_words -x=1\n", "")


def test_it_is_in_the_help_as_it_is_written(commands):
    words = [line.split() for line in commands("--help").stdout.splitlines()]
    assert ["bench", "two_words", "a", "command", "of", "measuring"] in words
    assert "misplaced" not in {word for line in words for word in line}


def test_one_that_no_package_has_says_what_there_is(commands):
    done = commands("bench", "unknown")
    assert (done.returncode, done.stdout) == (2, "")
    message = done.stderr.splitlines()[-1]
    assert "no installed package has a command 'unknown' below 'bench'; there are: " in message
    assert message.endswith("two_words")


@pytest.mark.parametrize("words", [["doctor", "mine"], ["doctor.mine"], ["bench.two_words"]])
def test_others_are_only_below_some_of_ours_and_after_a_space(commands, words):
    done = commands(*words)
    assert done.returncode == 2
    assert "hello" not in done.stdout
