"""Commands as pages and ``--help`` have them, parsed by the real parsers and not run."""

import argparse
import ast
import os
import re
import shlex
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from pip._internal.commands import create_command

from tensor_ops.__main__ import main

__all__ = ["check", "parsed", "sessions", "split"]

ROOT = Path(__file__).parents[2]
# Runs a script, or with -m a module, up to where it has parsed its arguments.
PARSE_ONLY = """
import argparse, runpy, sys
parse = argparse.ArgumentParser.parse_args
def parse_only(parser, *arguments, **keywords):
    parse(parser, *arguments, **keywords)
    sys.exit()
argparse.ArgumentParser.parse_args = parse_only
del sys.argv[0]
if sys.argv[0] == "-m":
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
else:
    sys.path[0] = sys.argv[0].rpartition("/")[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
"""


class _Parsed(BaseException):
    """Carries what a parser made of its words."""


def split(code):
    """Return the commands of shell code, each as its words."""
    commands = []
    for line in code.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;")
        lexer.whitespace_split = True
        commands.append([])
        for word in lexer:
            if set(word) <= set("|&;"):
                commands.append([])
            else:
                commands[-1].append(word)
    return [words for words in commands if words]


def check(words):
    """Raise an error unless the program that a command starts would take its arguments."""
    variables, words = _environment(words)
    name = Path(words[0]).name
    assert name in CHECKS, f"{name}: nothing here can check its arguments"
    CHECKS[name](words[1:], variables)


def parsed(words):
    """Return what ``tensor-ops`` parses its words to, without running the command."""

    def stop(function):
        def parse(*arguments, **keywords):
            raise _Parsed(function(*arguments, **keywords))

        return parse

    names = ("parse_args", "parse_intermixed_args")
    patched = {name: stop(getattr(argparse.ArgumentParser, name)) for name in names}
    with mock.patch.multiple(argparse.ArgumentParser, **patched), _exits(words):
        try:
            main(words)
        except _Parsed as result:
            return result.args[0]
    raise AssertionError(f"{words}: nothing was parsed")


def sessions():
    """Return the sessions of the noxfile by name, as syntax, without importing nox."""
    tree = ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8"))
    return {
        node.name: node
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and any("session" in ast.unparse(decorator) for decorator in node.decorator_list)
    }


def _tensor_ops(words, variables):
    parsed(words)


def _pip(words, variables):
    command, *arguments = words
    assert command == "install", words
    with _exits(words):
        create_command(command).parse_args(arguments)


def _python(words, variables):
    if words[:2] == ["-m", "pip"]:
        return _pip(words[2:], variables)
    if words[:2] == ["-m", "venv"]:
        assert words[2:] == [".venv"], words
        return None
    is_module = words[0] == "-m"
    path = Path("benchmarks", f"{words[1].replace('.', '/')}.py") if is_module else Path(words[0])
    assert (ROOT / path).is_file(), words
    # One without a parser would run.
    assert "parse_args(" in (ROOT / path).read_text(encoding="utf-8"), f"{path} has no parser"
    return _ends_well([sys.executable, "-c", PARSE_ONLY, *words], variables)


def _nox(words, variables):
    """Check the names of the sessions, and what follows them as the program that gets it does."""
    parser = argparse.ArgumentParser(prog="nox", allow_abbrev=False)
    parser.add_argument("-s", "--session", nargs="+", default=[], choices=sessions())
    end = words.index("--") if "--" in words else len(words)
    with _exits(words):
        started = parser.parse_args(words[:end]).session
    if words[end + 1 :]:
        (name,) = started
        text = ast.unparse(sessions()[name])
        script = re.search(r"session\.run\('python', '([\w/]+\.py)', \*session\.posargs", text)
        if script:
            _python([script[1], *words[end + 1 :]], variables)
        elif "f'benchmarks/{script}.py'" in text:  # which comes first
            _python([f"benchmarks/{words[end + 1]}.py", *words[end + 2 :]], variables)
        else:
            assert "session.run('pytest'" in text, f"nothing here can check {words}"
            _ends_well([sys.executable, "-m", "pytest", "--markers", *words[end + 1 :]], {})


def _docker(words, variables):
    """Check a build by the Dockerfile, and a run by what a container of it would start."""
    parser = argparse.ArgumentParser(prog="docker", allow_abbrev=False)
    commands = parser.add_subparsers(required=True, dest="command")
    build = commands.add_parser("build", allow_abbrev=False)
    build.add_argument("-f", "--file", required=True)
    build.add_argument("--target", required=True)
    build.add_argument("-t", "--tag", required=True)
    build.add_argument("path", choices=["."])
    run = commands.add_parser("run", allow_abbrev=False)
    run.add_argument("--rm", action="store_true")
    run.add_argument("--read-only", action="store_true")
    run.add_argument("--gpus", choices=["all"])
    run.add_argument("image", choices=["tensor-ops:cpu", "tensor-ops:cuda"])
    run.add_argument("started", nargs=argparse.REMAINDER)
    with _exits(words):
        found = parser.parse_args(words)
    if found.command == "run":
        check(found.started)
        return
    text = (ROOT / found.file).read_text(encoding="utf-8")
    assert re.search(rf"^FROM \S+ AS {found.target}$", text, re.MULTILINE), words
    assert found.tag == f"tensor-ops:{found.target}", words


CHECKS = {
    "tensor-ops": _tensor_ops,
    "pip": _pip,
    "python": _python,
    "python3": _python,
    "nox": _nox,
    "docker": _docker,
}


def _environment(words):
    """Return the variables that stand before a command, and the rest of it."""
    count = next(i for i, word in enumerate(words) if not re.match(r"[A-Z_]+=", word))
    return dict(word.split("=", 1) for word in words[:count]), words[count:]


def _ends_well(program, variables):
    done = subprocess.run(
        program,
        cwd=ROOT,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, f"{program[2:]}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"


@contextmanager
def _exits(words):
    """Make a parser's exit an error of the test; its own words are on standard error."""
    try:
        yield
    except SystemExit as exit_:
        raise AssertionError(f"{words}: not parsed, status {exit_.code}") from exit_
