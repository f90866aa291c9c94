"""The pages of the documentation, and a reader who follows them in a place of their own.

The code blocks of a page are true, because they are run. A comment before a block says what
is special about it:

``<!-- fails: exit 1 -->``
    The block must fail: a shell block with this status, a Python or JSON block with this exception.
``<!-- file: PATH -->``
    The block is saved there instead of being run.
``<!-- run: REASON -->``
    The block is not run here, for one of the reasons in ``test_pages.py``. The programs that its
    commands start parse their arguments all the same.

A page that begins with ``<!-- needs: PACKAGE -->`` is followed where that package is: with
``--pages=PACKAGE``.

A ``text`` block is the output of the block before it; ``...`` in it stands for anything. A Python
block that imports tensor_ops starts a new interpreter, any other goes on in the last one.
"""

import contextlib
import json
import os
import re
import subprocess
import sysconfig
import textwrap
import tomllib
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Pages that only the site has: they include others. test_site.py looks at them.
SITE_ONLY = {
    Path("docs/index.md"),
    *(path.relative_to(ROOT) for path in ROOT.glob("docs/site/*.md")),
}
PAGES = sorted(
    {
        path.relative_to(ROOT)
        for pattern in ("*.md", "docs/**/*.md", "packages/*/README.md")
        for path in ROOT.glob(pattern)
    }
    - SITE_ONLY
)
# It is followed in a copy of the checkout, by test_contributing.py.
CONTRIBUTING = Path("CONTRIBUTING.md")
NEEDS = re.compile(r"<!-- needs: (opencl|cuda|torch|kernels|vllm) -->")


def pytest_generate_tests(metafunc):
    if "model_page" in metafunc.fixturenames:
        named = [page for page in PAGES if any(map(_is_run_with_a_model, blocks(page)))]
        metafunc.parametrize("model_page", named, ids=str)
    if "page" in metafunc.fixturenames:
        metafunc.parametrize("page", PAGES, ids=str)
    if "followed_page" in metafunc.fixturenames:
        package = metafunc.config.getoption("--pages")
        followed = [page for page in PAGES if page != CONTRIBUTING and needed_by(page) == package]
        metafunc.parametrize("followed_page", followed, ids=str)


@pytest.fixture(scope="session")
def read():
    """A function from a page to its code blocks."""
    return blocks


@pytest.fixture(scope="session")
def follow():
    """A function that follows a page as a reader would."""
    return _follow


@pytest.fixture(name="matches")
def matches_fixture():
    return matches


@pytest.fixture(scope="session")
def environment():
    """A function that makes a virtual environment with everything that is installed here."""
    return Environment


@dataclass(frozen=True)
class Block:
    """A code block of a page, with the comments before it."""

    page: Path
    line: int
    language: str
    code: str
    notes: dict[str, str]

    def __str__(self):
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Outcome:
    """The output of a block, and its exit status or exception if it failed."""

    output: str
    failure: str | None = None


def needed_by(page):
    """Return the package that a page says it needs, or None."""
    first, *_ = (ROOT / page).read_text(encoding="utf-8").splitlines()
    found = NEEDS.fullmatch(first)
    return found and found[1]


def blocks(page):
    """Return the code blocks of a page, in order."""
    found, notes, start = [], {}, None
    text = NEEDS.sub("", (ROOT / page).read_text(encoding="utf-8"), count=1)
    for number, line in enumerate(text.splitlines(), 1):
        fence = re.fullmatch(r"( *)(`{3,}|~{3,}) *(\S*)", line)
        if start is not None:
            opening, first, code = start
            if fence and fence[2].startswith(opening[2]) and not fence[3]:
                text = textwrap.dedent("\n".join(code)) + "\n"
                found.append(Block(page, first, opening[3], text, notes))
                notes, start = {}, None
            else:
                code.append(line)
        elif fence:
            start = fence, number + 1, []
        elif note := re.fullmatch(r" *<!-- (\w+): (.*) -->", line):
            notes[note[1]] = note[2]
        elif line.strip():
            assert "```" not in line, f"{page}:{number}: a fence must stand on a line of its own"
            assert not notes, f"{page}:{number}: no code block follows the comment {notes}"
    assert start is None, f"{page}: a code block does not end"
    return found


def _is_run_with_a_model(block):
    return "test_model_commands.py" in block.notes.get("run", "")


class Environment:
    """A virtual environment in which a page is followed, and its directory to work in.

    It sees every package of the running interpreter, pip among them, after `sources`. Its prefix
    is its own, so that what pip and ``tensor-ops configure_backend`` write is its own as well.
    """

    def __init__(self, place, directory, *, sources=(), variables=None):
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        prefix, home = place / "venv", place / "home"
        home.mkdir()
        venv.create(prefix, symlinks=True)
        (site,) = prefix.glob("lib/python*/site-packages")
        here = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
        lines = [*map(str, sources), *(f"import site; site.addsitedir({path!r})" for path in here)]
        (site / "here.pth").write_text("\n".join(lines) + "\n")
        self.bin = prefix / "bin"
        for name in ("tensor-ops", "pip"):
            (point,) = entry_points(group="console_scripts", name=name)
            command = self.bin / name
            command.write_text(
                f"#!{self.bin / 'python'}\nimport sys\n"
                f"from {point.module} import {point.attr}\nsys.exit({point.attr}())\n"
            )
            command.chmod(0o755)
        self.variables = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("TENSOR_OPS_", "PYTHON", "PYTEST", "XDG_", "VIRTUAL_ENV"))
        }
        self.variables |= {
            "HOME": str(home),
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
            "PYTHONUNBUFFERED": "1",
            "PYTHONUTF8": "1",
        }
        self.variables |= variables or {}

    def bash(self, code, given=""):
        """Run shell commands with a standard input, the first that fails being the last."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", code],
            cwd=self.directory,
            env=self.variables,
            input=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=900,
            check=False,
        )
        return Outcome(done.stdout, f"exit {done.returncode}" if done.returncode else None)

    def interpreter(self):
        """Return a running interpreter that executes what `Interpreter.run` is given."""
        return Interpreter([self.bin / "python", "-c", LOOP], self.directory, self.variables)


# Executes code in one namespace; a line of JSON in, a line of JSON out.
LOOP = """
import contextlib, io, json, linecache, sys, traceback
namespace = {"__name__": "__main__"}
for line in sys.stdin:
    code, name = json.loads(line)
    linecache.cache[name] = len(code), None, code.splitlines(True), name
    output, failure = io.StringIO(), None
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            exec(compile(code, name, "exec"), namespace)
        except BaseException as error:
            failure = type(error).__name__
            if error.__traceback__:
                error.__traceback__ = error.__traceback__.tb_next
            traceback.print_exception(error)
    print(json.dumps([output.getvalue(), failure]), flush=True)
"""


class Interpreter:
    """A Python process that runs blocks in one namespace."""

    def __init__(self, command, directory, variables):
        self.process = subprocess.Popen(
            command,
            cwd=directory,
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )

    def run(self, code, name):
        self.process.stdin.write(json.dumps([code, name]) + "\n")
        self.process.stdin.flush()
        return Outcome(*json.loads(self.process.stdout.readline()))

    def close(self):
        self.process.communicate()


def _follow(page, environment):
    """Run the blocks of a page in order and hold each to what the page says of it."""
    last, left_out = None, ""
    with _interpreters(environment) as interpreter:
        for block in blocks(page):
            if "run" in block.notes:
                last, left_out = None, block.notes["run"]
            elif block.language == "text":
                if last is None and "serving/test_guide.py" in left_out:  # which compares it
                    continue
                assert last, f"{block}: no block that is run stands before this output"
                assert matches(last.output, block.code), f"{block}: the output is\n{last.output}"
            else:
                last = _outcome(block, environment, interpreter)
                wanted = block.notes.get("fails")
                assert last.failure == wanted, (
                    f"{block}: {last.failure or 'no failure'}, expected {wanted or 'none'}\n"
                    f"{last.output}"
                )


def _outcome(block, environment, interpreter):
    if "file" in block.notes:
        path = environment.directory / block.notes["file"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.code, encoding="utf-8")
    if block.language == "json":
        return _load(block, environment)
    if "file" in block.notes:
        if block.language == "toml":
            tomllib.loads(block.code)
        return Outcome("")
    if block.language == "bash":
        return environment.bash(block.code)
    if block.language == "python":
        fresh = re.search(r"^(import|from) tensor_ops\b", block.code, re.MULTILINE)
        return interpreter(bool(fresh)).run(block.code, str(block))
    pytest.fail(f"{block}: nothing here can run {block.language or 'a block with no language'}")


def _load(block, environment):
    """Let tensor_ops read a block as its configuration."""
    name = block.notes.get("file", "backend.json")
    if "file" not in block.notes:
        (environment.directory / name).write_text(block.code, encoding="utf-8")
    code = (
        "from pathlib import Path\n"
        "from tensor_ops import backends, config\n"
        f"config.load(Path({name!r}), backends.INSTALLED)\n"
    )
    interpreter = environment.interpreter()
    try:
        return interpreter.run(code, str(block))
    finally:
        interpreter.close()


@contextlib.contextmanager
def _interpreters(environment) -> Iterator:
    """Yield a function that returns the interpreter in use, or a fresh one."""
    started = []

    def interpreter(fresh):
        if fresh or not started:
            started.append(environment.interpreter())
        return started[-1]

    try:
        yield interpreter
    finally:
        for each in started:
            each.close()


def matches(output, expected):
    """Return whether an output is what was expected, with ``...`` for anything."""
    pattern = ".*".join(re.escape(part) for part in _trimmed(expected).split("..."))
    return re.fullmatch(pattern, _trimmed(output), re.DOTALL) is not None


def _trimmed(text):
    return "\n".join(line.rstrip() for line in text.strip().splitlines())
