"""The table "Where to find what" of ARCHITECTURE.md answers the questions of a reader."""

import re

import pytest

from architecture_page import PAGE, ROOT, full, named_paths

ROW = re.compile(r"^\| (.*?) \| (.*) \|$", re.MULTILINE)
# Words that do not tell what a question is about.
SMALL = re.compile(
    r"a|about|an|and|another|any|does|from|has|in|into|is|it|message|no|not|of|one|or|out|says|such"
    r"|that|the|where|which|why|with"
)

CORE, DECODE, TORCH = map(full, ("tensor_ops/", "tensor_ops_decode/", "tensor_ops_torch/"))
CPP, CUDA = "packages/tensor-ops-cpp/", full("cuda/")
REGISTRY = "native/include/tensor_ops/backend/registry.h"
# "Where is the message about ...?": the file that the table must lead to, and words of a message.
QUESTIONS = [
    ("an argument of an op", CORE + "op/checks.py", "must be a real number, got"),
    ("a variable or backend.json that is wrong", CORE + "config/__init__.py", "duplicate key"),
    ("the warning of a fallback to another backend", CORE + "config/state.py", "Running on"),
    ("why a backend is unavailable", CORE + "backends/__init__.py", "not installed{missing}"),
    ("a wrong program", DECODE + "program/rules.py", "no such kind; the kinds"),
    ("a program that ranks cannot divide", DECODE + "sharding/shard.py", "world_size must be at"),
    ("the arrays of a step", DECODE + "program/step_rules.py", "in selected must ascend"),
    ("an exported model", "native/decode/files/exported_model.cpp", "must be a JSON object whose"),
    ("a GGUF file of a model", DECODE + "weights/gguf.py", "the file says that it is part"),
    ("an argument of PersistentKernel", DECODE + "kernel/arguments.py", "mode must be 'decode'"),
    ("a request without room in memory", DECODE + "scheduling/requests.py", "needs another page"),
    ("swap_modules refusing a module", TORCH + "modules/swap.py", "modules cannot be "),
    ("an operator not differentiated", TORCH + "operators/derivatives.py", "has no derivative in"),
    ("an error of the registry in C++", REGISTRY, "register_backend() got a null pointer"),
    ("a build option that is refused", CPP + "cmake/options.cmake", "USE_CPU is '"),
    ("the type of a CUDA array", CUDA + "arrays/numpy_array.cpp", "or an array on a CUDA device"),
    ("a tokenizer", DECODE + "text/open_tokenizer.py", "the tokenizer cannot be built"),
]


def words_of(text):
    """Return the words of a text that tell what it is about, in the singular."""
    found = re.findall(r"[\w.+]+", text.lower())
    return {word.strip(".").removesuffix("s") for word in found if not SMALL.fullmatch(word)}


def rows():
    """Return what the rows are about, and the files and folders that they name."""
    table = ROW.findall(PAGE.partition("## Where to find what")[2].partition("\n## ")[0])
    return [(words_of(about), named_paths(cell)) for about, cell in table]


def best_rows(question):
    """Return what the rows name that have the most words of a question."""
    counts = [len(words_of(question) & about) for about, _ in rows()]
    assert max(counts), f"no row has a word of {question!r}"
    return [named for count, (_, named) in zip(counts, rows(), strict=True) if count == max(counts)]


def leads_to(named, path):
    return any(path == each or (each.endswith("/") and path.startswith(each)) for each in named)


@pytest.mark.parametrize(("question", "path", "words"), QUESTIONS)
def test_the_page_leads_to_the_message(question, path, words):
    assert words in (ROOT / path).read_text(encoding="utf-8")
    found = best_rows(question)
    assert len(found) <= 2, f"{question!r} is answered by {len(found)} rows"
    assert any(leads_to(named, path) for named in found), found


def test_a_row_that_leads_elsewhere_is_no_answer():
    (named,) = best_rows("a tokenizer")
    assert not leads_to(named, CORE + "op/checks.py")
    assert len({path for _, path, _ in QUESTIONS}) == len(QUESTIONS) == 17
