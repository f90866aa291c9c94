"""Every code block of every page runs and prints what the page says; conftest.py has the rules."""

import ast
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from written_commands import check, sessions, split

ROOT = Path(__file__).parents[2]
LANGUAGES = {"python", "bash", "json", "text"}
LANGUAGES_OF_FILES = LANGUAGES | {"toml", "cmake", "c", "cpp"}
NOTES = {"run", "fails", "file"}


def test_blocks_run(followed_page, follow, environment, tmp_path):
    follow(followed_page, environment(tmp_path, tmp_path / "work"))


def test_blocks_are_in_languages_that_run(page, read):
    for block in read(page):
        allowed = LANGUAGES_OF_FILES if "file" in block.notes else LANGUAGES
        assert block.language in allowed, f"{block}: {block.language!r} is none of {allowed}"
        assert block.notes.keys() <= NOTES, f"{block}: unknown comment {block.notes}"


def test_no_code_without_a_fence(page):
    """Four spaces make code too, which nothing would run."""
    text = (ROOT / page).read_text(encoding="utf-8")
    outside = re.sub(r"^ *(`{3,}).*?^ *\1$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert not re.search(r"(?<=\n)\n {4}(?! *[-*\d])", outside)


def test_blocks_that_do_not_run_have_a_reason(page, read):
    for block in read(page):
        if (reason := block.notes.get("run")) is not None:
            assert reason in REASONS, f"{block}: {reason!r} is none of {list(REASONS)}"
            if block.language == "python":
                assert reason in (NEEDS_GPU, NEEDS_SERVER), f"{block}: Python runs here"
                ast.parse(block.code)
                continue
            assert block.language == "bash", f"{block}: only code may be left out"
            subprocess.run(["bash", "-n", "-c", block.code], check=True)
            for check_code in REASONS[reason]:
                check_code(block.code)


def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not target.startswith(("https://", "http://", "#")):
            assert (ROOT / page.parent / target.partition("#")[0]).exists(), target
        path, _, anchor = target.partition("#")
        if anchor and not path.startswith("http"):
            other = ROOT / page.parent / path if path else ROOT / page
            assert anchor in anchors(other), target


def anchors(page):
    """Return the anchors that the headings of a page make."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_sessions_exist(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for names in re.findall(r"`nox -s ([\w ]+)`", text):
        assert set(names.split()) <= sessions().keys(), names


def installs_what_exists(code):
    projects = {}
    for path in ROOT.glob("packages/*/pyproject.toml"):
        project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
        projects[project["name"]] = set(project.get("optional-dependencies", ()))
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = re.findall(r"pip install (.*)", code)
    assert wanted
    for words in wanted:
        for group in re.findall(r"--group (\S+)", words):
            assert group in groups["dependency-groups"], group
        for word in re.sub(r"(--group|-C) \S+|-\w ", "", words).replace("'", "").split():
            name, _, extras = word.partition("[")
            if word.startswith("./"):
                assert (ROOT / name / "pyproject.toml").is_file(), word
            else:
                assert name in projects, word
                assert set(filter(None, extras.strip("]").split(","))) <= projects[name], word


def calls_programs_of_the_system(code):
    commands = {words[0] for words in split(code)}
    assert commands <= {"sudo", "nvcc", "nvidia-smi", "clinfo"}


def runs_in_ci(code):
    assert code.strip() in (ROOT / ".ci/run").read_text(encoding="utf-8").splitlines()


def calls_pkg_config(code):
    # By which the test finds the block.
    assert "python -m tensor_ops_cpp --pkgconfigdir" in code


def takes_its_arguments(code):
    for words in split(code):
        check(words)


def serves_or_asks(code):
    if code.startswith("tensor-ops"):
        takes_its_arguments(code)
    else:
        assert "http://127.0.0.1:8000/v1" in code or "client." in code


def starts_ranks(code):
    for words in split(code):
        assert words[0] in ("mpiexec", "torchrun"), words
        check(words[words.index("tensor-ops") :])


NEEDS_GPU = "by hand; it needs a GPU"
NEEDS_SERVER = "by hand; tests/decode/serving/test_guide.py runs it"
# Why a block is not run here, and what is checked instead.
REASONS = {
    NEEDS_GPU: [takes_its_arguments],
    "by CI itself": [takes_its_arguments, runs_in_ci],
    "by hand; tests/examples runs what it runs": [takes_its_arguments],
    "by hand; tests/docs/test_model_commands.py runs it": [takes_its_arguments],
    NEEDS_SERVER: [serves_or_asks],
    "by hand; tests/cpp_api/test_examples.py runs it": [calls_pkg_config],
    "by hand; tests/ranks runs what it runs": [starts_ranks],
    "by hand; it needs docker": [takes_its_arguments],
    "by hand; it needs a CUDA compiler": [takes_its_arguments],
    "by hand; it starts nox": [takes_its_arguments],
    "by hand; nox -s release runs it with an index of its own": [
        takes_its_arguments,
        installs_what_exists,
    ],
    "by hand; it installs packages": [takes_its_arguments, installs_what_exists],
    "by hand; it needs programs of the system": [calls_programs_of_the_system],
}


@pytest.mark.parametrize(
    "command",
    [
        "tensor-ops generate model.gguf --chatt",
        "tensor-ops generate model.gguf a b",
        "tensor-ops explain silu --dtype float99",
        "tensor-ops exprot model.gguf",
        "python tools/gpu_check.py --outt gpu_check",
        "python tools/none.py",
        "nox -s nonesuch",
        "nox -s errors -- --jsn errors.json",
        "nox -s conformance -- --backends=cpp",
        "nox -s lint -- --fix",
        "docker build -f docker/Dockerfile --target gpu -t tensor-ops:gpu .",
        "docker run --rm tensor-ops:cpu tensor-ops doctor --requires cpp",
        "pip install ./packages/tensor-ops --grp test",
        "cargo build",
    ],
)
def test_commands_that_would_fail_are_found(command):
    with pytest.raises(AssertionError):
        takes_its_arguments(command)


@pytest.mark.parametrize(
    ("output", "expected", "same"),
    [
        ("a\nb \n", "a\nb", True),
        ("a\nb\n", "a\n...", True),
        ("a b c", "a ... c", True),
        ("a\nb", "a", False),
        ("b", "a...", False),
        ("a.b", "a?b", False),
    ],
)
def test_outputs_are_compared_whole(output, expected, same, matches):
    assert matches(output, expected) is same
