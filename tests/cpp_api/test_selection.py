"""The rule of selection in C++ decides as Python's does."""

import itertools
import json
import random
import re
import subprocess

import pytest
from cpp_programs import COMPILERS

from tensor_ops import config
from tensor_ops.backends.names import ALIASES, KNOWN, split
from tensor_ops.config import selection
from tensor_ops.errors import ConfigError

FORCE, PREFERRED, PRIORITY = (
    f"TENSOR_OPS_{name}" for name in ("FORCE_BACKEND", "BACKEND", "BACKEND_PRIORITY")
)
FORCES = [None, "cuda", "cpu", "opencl:gpu"]
PREFERENCES = [None, "auto", "fastest", "cpu", "opencl:cpu", "cuda"]
PRIORITIES = [None, "cpu,cuda", "opencl,numpy,cpp", "cuda,opencl,opencl:cpu,cpp"]
FILES = [
    {key: value for key, value in zip(config.DEFAULTS, values, strict=True) if value is not None}
    for values in itertools.product(
        [None, "auto", "fastest", "opencl", "cpp:cpu"],
        [None, ["cpp", "opencl"]],
        [None, "openmp", "opencl"],
    )
]
# Which backends can run, with the kinds of their devices.
AVAILABLE = [
    {"python": "cpu", **dict(found)}
    for cuda in ([], [("cuda", "gpu")])
    for opencl in ([], [("opencl", "cpu")], [("opencl", "gpu")])
    for cpp in ([], [("cpp", "cpu")])
    for found in [[*cuda, *opencl, *cpp]]
]


@pytest.fixture(scope="module")
def rule(program):
    """A function that has the C++ rule decide cases, and returns a line for each."""
    path = program("rule", compiler=COMPILERS[-1])

    def decided(cases):
        lines = "".join(json.dumps(case) + "\n" for case in cases)
        done = subprocess.run([path], input=lines, capture_output=True, text=True, check=True)
        found = done.stdout.splitlines()
        assert len(found) == len(cases)
        return found

    return decided


def python_decides(case, files={}):  # noqa: B006 - it keeps what has been read
    installed = case["installed"]
    environment = {name: case[name] for name in (FORCE, PREFERRED, PRIORITY) if case.get(name)}
    levels = list(config.environment_levels(installed, environment))
    if path := case.get("file"):
        key = path, tuple(installed)
        if key not in files:
            files[key] = config.load(path, installed).level(installed)
        levels.append(files[key])
    decision = selection.decide(levels)
    kinds = case["available"]

    def reason(name):
        backend, wanted = split(name)
        if backend not in kinds:
            return "absent"
        return None if wanted in ("", kinds[backend]) else f"its device is {kinds[backend]}"

    choice = selection.choose_for(decision, reason, lambda name: kinds[split(name)[0]])
    steps = ";".join(f"{step.backend}={step.reason or 'chosen'}" for step in choice.steps)
    return "|".join(
        [
            decision.mode,
            decision.source,
            ",".join(decision.candidates),
            ",".join(decision.priority),
            ",".join(decision.overridden),
            choice.backend or "none",
            steps,
        ]
    )


def said_by_python(case):
    try:
        return python_decides(case)
    except ConfigError as error:
        return f"error: {error}"


def assert_same(rule, cases):
    for case, found in zip(cases, rule(cases), strict=True):
        assert found == said_by_python(case), case


@pytest.mark.parametrize("available", AVAILABLE, ids=" ".join)
def test_all_combinations_are_decided_as_in_python(rule, tmp_path, available):
    paths = [None]
    for index, content in enumerate(FILES):
        paths.append(str(tmp_path / f"{index}.json"))
        (tmp_path / f"{index}.json").write_text(json.dumps(content), encoding="utf-8")
    known = {"available": available, "installed": [name for name in available if name != "python"]}
    cases = [
        {FORCE: force, PREFERRED: preferred, PRIORITY: priority, "file": path, **known}
        for force, preferred, priority, path in itertools.product(
            FORCES, PREFERENCES, PRIORITIES, paths
        )
    ]
    assert len(cases) > 2000
    assert_same(rule, cases)


def case_of(**settings):
    installed = ["cpp", "cuda"]
    return {"installed": installed, "available": {"cpp": "cpu", "python": "cpu"}, **settings}


WRONG_NAMES = [
    *("cudda", "CPP", " cpp", "gpu", "GPU", "nvidia", "auto", "fastest", "npu", "it's", 'a"b'),
    *("opencl:", "opencl:gpus", "cpp:tpu", "cpu:cpu:cpu", "amd", "pyhton", "a b", "op;encl"),
]


@pytest.mark.parametrize("variable", [FORCE, PREFERRED, PRIORITY])
def test_wrong_variables_are_errors_with_the_same_words(rule, variable):
    values = [
        *WRONG_NAMES,
        "cpp,,cuda",
        "cpp,cpp",
        "cpp, cpp ",
        "cpp,cpu",
        ",",
        " , ",
        " ",
        "\tcpp\n",
    ]
    cases = [case_of(**{variable: value}) for value in values]
    assert sum(found.startswith("error") for found in rule(cases)) >= len(WRONG_NAMES) - 3
    assert_same(rule, cases)


CONTENTS = {
    "no object": ["[]", "3", "null", '"cpp"', "true", "1.5e3"],
    "no JSON": [
        *("", "{", "{]", "{}x", '{"a"}', '{"a":}', '{"a":1,}', "[1,]", "{'a': 1}", "nul", "{} {}"),
        *('{"description": "a', '{"description": "\\q"}', '{"description": "\\u12g4"}', "-", "+1"),
        *(
            '{"description": "a\nb"}',
            "\n\n  {\n 1: 2}",
            '{"description": 01}',
            "NaN",
            "[-Infinity]",
        ),
        *('{"description": 1.}', '{"description": .5}', '{"description": 1e}', "// no\n{}", "\x00"),
        *('{"description": "\\', '{"description": "\\u', '{"description": "é" 1}', "\ufeff{}"),
    ],
    "members": [
        *('{"force": "cpp"}', '{"prefered_backend": "cpp"}', '{"": 1}', '{"\\n": 1}', '{"é": 1}'),
        '{"force_backend": "cpp",\n"force_backend": "cuda"}',
        '{"description": "\\"force_backend\\": 1",\n "force_backend": "cudda"}',
        '{"$schema": 1, "description": [{"a": [NaN]}]}',
        '{"description": {"force_backend": 1}, "force_backend": 1}',
    ],
    "values": [
        f'{{\n"description": "",\n"{key}":\n{value}}}'
        for key in ("preferred_backend", "backend_priority", "force_backend")
        for value in (
            *("null", "true", "false", "1", "-0.5e-3", '"cudda"', '"auto"', '"fastest"', '"gpu"'),
            *("{}", "[]", "[[]]", '["cpp"]', '["cpp",\n"cuda",\n"cpp"]', '["cpp",\n"cudda"]'),
            *('["cpp", 1]', '["cpp", "auto"]', '"opencl:gpu"', '"cpu:gpus"', '"\\u0063pp"'),
            *('"numpy"', '["numpy", "python"]', '"\\ud83d\\ude00"', '"it\'s"', '["cpp", null]'),
        )
    ],
    "accepted": [
        *("{}", " {\t} \r\n", '{"description": "\\u00e9\\ud83d\\ude00\\/\\b"}', "{}\n\n"),
        *(
            '{"$schema": "\\ud800"}',
            '{"$schema": "\\udc00\\ud800"}',
            '{"$schema": "\\ud800\\u0041"}',
        ),
        *(
            '{"$schema": {"a": 1, "a": 2}}',
            '{"$schema": [1e999, -1e999]}',
            '{"$schema": [-0, 1E-400]}',
        ),
    ],
}


@pytest.mark.parametrize("kind", CONTENTS)
def test_files_are_read_as_strictly(rule, tmp_path, kind):
    assert_same_of_files(rule, tmp_path, [text.encode() for text in CONTENTS[kind]])


def test_bytes_that_are_no_utf8_are_errors(rule, tmp_path):
    text = b'{"description":\n "%b"}'
    wrong = [
        b"\xff",
        b"\xc3",
        b"\xc3(",
        b"\xe2\x82",
        b"\xed\xa0\x80",
        b"\xf0\x8f\xbf\xbf",
        b"\xc0\x80",
    ]
    wrong += [b"\xf4\x90\x80\x80", b"\x80", b"a\xe2\x28\xa1", b"\xf0\x9f\x98\x80", b"\xe0\x9f\xbf"]
    contents = [text % each for each in wrong]
    contents += [b"\xff\xfe{\x00}\x00", b"\xfe\xff\x00{\x00}", b'{"\xe2\x82']
    assert_same_of_files(rule, tmp_path, contents)


def test_damaged_files_are_read_the_same(rule, tmp_path):
    whole = json.dumps({"description": "é\n", **config.DEFAULTS}, indent=1, ensure_ascii=False)
    pieces = ['"', ",", "{", "}", "[", "]", ":", "\\", "null", "1", " ", "\n", *KNOWN, *ALIASES]
    draw = random.Random("damaged files")
    contents = []
    for _ in range(1000):
        text = whole
        for _ in range(draw.randrange(1, 4)):
            at = draw.randrange(len(text))
            text = (
                text[:at] + draw.choice(pieces) * draw.randrange(2) + text[at + draw.randrange(9) :]
            )
        contents.append(text.encode())
    assert_same_of_files(rule, tmp_path, contents)


def assert_same_of_files(rule, folder, contents):
    cases = []
    for index, content in enumerate(contents):
        path = folder / f"{index}.json"
        path.write_bytes(content)
        cases.append(case_of(file=str(path)))
    for content, case, found in zip(contents, cases, rule(cases), strict=True):
        expected = said_by_python(case)
        # A word that is near to no name may be a plug-in's in C++, which cannot know those.
        while name := re.search(r"unknown backend '([\w.-]+)'; Known", expected):
            case["installed"] = [*case["installed"], name[1]]
            expected = said_by_python(case)
        assert without_details(found) == without_details(expected), content


def without_details(text):
    """Return a line without the words about syntax, which depend on Python's version, and names."""
    return re.sub("Known backends: .*|(?<=is not valid JSON).*", "", text)


def test_names_that_may_be_of_plug_ins_are_unavailable_backends(rule, tmp_path):
    path = tmp_path / "backend.json"
    path.write_text('{"backend_priority": ["zzz_wizard", "cpp"]}', encoding="utf-8")
    cases = [case_of(**{FORCE: "zzz_wizard"}), case_of(**{PREFERRED: "zzz_wizard"})]
    cases += [case_of(file=str(path)), case_of(**{FORCE: "zzz_wizard:gpu"})]
    # In Python these plug-ins are installed.
    for case, found in zip(cases, rule(cases), strict=True):
        case["installed"] = [*case["installed"], "zzz_wizard"]
        assert found == said_by_python(case)


def test_files_that_are_too_deep_or_too_large_are_errors(rule, tmp_path):
    deep, large, long = (tmp_path / f"{name}.json" for name in ("deep", "large", "long"))
    deep.write_text("[" * 100_000, encoding="utf-8")
    large.write_bytes(b" " * (2**24 + 1))
    long.write_text('{"description": ' + "1" * 5000 + "}", encoding="utf-8")
    cases = [case_of(file=str(path)) for path in (deep, large, long)]
    found = rule(cases)
    assert found[0].startswith(f"error: {deep}:1: is not valid JSON")
    assert found[1] == said_by_python(cases[1])
    assert found[1].startswith(f"error: {large}: is larger than")
    assert found[2].startswith(f"error: {long}:1: is not valid JSON")
    assert said_by_python(cases[2]).startswith(f"error: {long}:1: is not valid JSON")


def test_files_that_others_can_write_are_refused(rule, tmp_path):
    path = tmp_path / "it's.json"
    path.write_text("{}", encoding="utf-8")
    path.chmod(0o646)
    case = case_of(file=str(path))
    assert rule([case]) == [said_by_python(case)]
    assert "others can write it (its mode is 646)" in said_by_python(case)
