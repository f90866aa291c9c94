"""Where OpenCL stands whose device is a CPU: behind the others, unless it is asked for."""

import pytest

from tensor_ops.backends.names import DEFAULT_PRIORITY
from tensor_ops.config.selection import ConfigLevel, choose_for, decide, in_measured_order, steps

WAITS = (
    "its device is a CPU, for which the others are tried first; 'opencl:cpu' has a place of its own"
)
WRITTEN = ConfigLevel("file", priority=DEFAULT_PRIORITY)
PREFERRED = ConfigLevel("file", preferred="opencl")
LISTS = [None, DEFAULT_PRIORITY, ("opencl", "cuda", "cpp"), ("opencl", "python")]


def machine(kind, *available):
    """Return the reason against a backend and its kind, where OpenCL's device is of this kind."""
    kinds = {"opencl": kind, "cuda": "gpu", "cpp": "cpu", "python": "cpu"}

    def reason(name):
        backend, _, wanted = name.partition(":")
        if backend not in (*available, "python"):
            return "no"
        return None if wanted in ("", kinds[backend]) else f"not {wanted}"

    return reason, lambda name: kinds[name.partition(":")[0]]


def chosen(levels, kind, *available):
    return choose_for(decide(levels), *machine(kind, *available))


@pytest.mark.parametrize("levels", [[], [WRITTEN]], ids=["built in", "written"])
@pytest.mark.parametrize(
    ("kind", "available", "expected"),
    [
        ("cpu", ("opencl", "cpp"), [("cuda", "no"), ("opencl", WAITS), ("cpp", None)]),
        (
            "cpu",
            ("opencl",),
            [("cuda", "no"), ("opencl", WAITS), ("cpp", "no"), ("python", None)],
        ),
        ("cpu", (), [("cuda", "no"), ("opencl", "no"), ("cpp", "no"), ("python", None)]),
        ("gpu", ("opencl", "cpp"), [("cuda", "no"), ("opencl", None)]),
        ("accelerator", ("opencl", "cpp"), [("cuda", "no"), ("opencl", None)]),
        (None, ("opencl", "cpp"), [("cuda", "no"), ("opencl", None)]),
        ("gpu", ("cuda", "opencl", "cpp"), [("cuda", None)]),
    ],
)
def test_a_cpu_stands_behind_the_others_in_every_order(levels, kind, available, expected):
    choice = chosen(levels, kind, *available)
    assert [tuple(step) for step in choice.steps] == expected
    assert choice.backend == expected[-1][0]


@pytest.mark.parametrize("order", LISTS)
@pytest.mark.parametrize("level", ["auto", "fastest", "cuda", None])
def test_no_order_puts_a_cpu_before_cpp_or_python(order, level):
    levels = [ConfigLevel("environment", preferred=level), ConfigLevel("file", priority=order)]
    names = order or DEFAULT_PRIORITY
    assert chosen(levels, "cpu", "opencl", "cpp").backend == ("cpp" if "cpp" in names else "python")
    without_cpp = chosen(levels, "cpu", "opencl").backend
    assert without_cpp == ("python" if "python" in names else "opencl")
    assert chosen(levels, "gpu", "opencl", "cpp").backend == "opencl"


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (("opencl",), [("opencl", None)]),
        (("cuda", "opencl"), [("cuda", "no"), ("opencl", None)]),
        (("opencl", "cpp"), [("opencl", WAITS), ("cpp", "no"), ("opencl", None)]),
    ],
)
def test_numpy_that_no_order_names_comes_after_a_cpu(order, expected):
    choice = chosen([ConfigLevel("file", priority=order)], "cpu", "opencl")
    assert [tuple(step) for step in choice.steps] == expected


@pytest.mark.parametrize("order", [("opencl",), ("opencl", "cpp")])
def test_numpy_stays_the_last_resort(order):
    decision = decide([ConfigLevel("file", priority=order)])
    every = steps(decision, lambda name: None, {"opencl": "cpu"}.get)
    assert [step.backend for step in every if step.reason is None][-2:] == ["opencl", "python"]


@pytest.mark.parametrize("order", [*LISTS, ("opencl",)])
def test_what_only_a_cpu_of_opencl_can_do_runs_there(order):
    decision = decide([ConfigLevel("file", priority=order)])
    reasons = dict.fromkeys(("cuda", "cpp", "python"), "it has no such op")
    choice = choose_for(decision, reasons.get, {"opencl": "cpu"}.get)
    assert choice.backend == "opencl"
    assert choice.steps[-1] == ("opencl", None)


@pytest.mark.parametrize(
    ("order", "available", "expected"),
    [
        (("opencl:cpu", "cpp"), ("opencl", "cpp"), "opencl"),
        (("cpp", "opencl:cpu", "python"), ("opencl", "cpp"), "cpp"),
        (("cpp", "opencl:cpu", "python"), ("opencl",), "opencl"),
        (("opencl", "opencl:cpu", "cpp"), ("opencl", "cpp"), "opencl"),
        (("opencl:gpu", "cpp"), ("opencl", "cpp"), "cpp"),
    ],
)
def test_cpus_have_a_place_of_their_own_where_it_is_written(order, available, expected):
    assert chosen([ConfigLevel("file", priority=order)], "cpu", *available).backend == expected


def test_a_place_for_cpus_is_none_for_other_devices():
    order = ConfigLevel("file", priority=("opencl:cpu", "cpp", "opencl"))
    choice = chosen([order], "gpu", "opencl", "cpp")
    assert [tuple(step) for step in choice.steps] == [("opencl:cpu", "not cpu"), ("cpp", None)]


@pytest.mark.parametrize("name", ["opencl", "opencl:cpu"])
@pytest.mark.parametrize("order", LISTS)
@pytest.mark.parametrize("how", ["force", "named", "preferred"])
def test_what_was_asked_for_runs_whatever_its_device(how, name, order):
    levels = [ConfigLevel("environment", **{how: name}), ConfigLevel("file", priority=order)]
    choice = chosen(levels, "cpu", "opencl", "cpp")
    assert [tuple(step) for step in choice.steps] == [(name, None)]


def test_another_backend_stands_where_it_is_written():
    decision = decide([ConfigLevel("file", priority=("a plug-in", "cpp"))])
    assert choose_for(decision, lambda name: None, lambda name: "cpu").backend == "a plug-in"
    decision = decide([ConfigLevel("file", priority=("python", "opencl", "cpp"))])
    assert choose_for(decision, lambda name: None, lambda name: "cpu").backend == "python"


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
@pytest.mark.parametrize("levels", [[], [WRITTEN], [PREFERRED], [PREFERRED, WRITTEN]])
def test_backends_are_listed_in_the_order_in_which_they_are_tried(kind, levels):
    decision = decide(levels)
    kinds = {"opencl": kind, "cpp": "cpu", "python": "cpu"}
    order = [name for name in decision.candidates if name in kinds]
    tried = []
    while order:
        left = decision._replace(candidates=tuple(order))
        tried.append(choose_for(left, lambda name: None, kinds.get).backend)
        order.remove(tried[-1])
        decision = decision._replace(mode="auto")  # the preferred one has had its turn
    every = steps(decide(levels), lambda name: None, kinds.get)
    listed = [step.backend for step in every if step.reason is None]
    assert [name for name in listed if name in kinds] == tried


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        (["opencl", "cpp"], ["opencl"]),
        (["cpp", "opencl"], ["cpp", "opencl"]),
        (["cpp"], ["cpp", "cuda", "opencl", "python", "opencl"]),
        (["python"], ["python", "cuda", "opencl", "cpp", "opencl"]),
        ([], ["cuda", "opencl", "cpp", "python", "opencl"]),
    ],
)
def test_only_what_was_not_measured_waits(measured, expected):
    decision = in_measured_order(decide([ConfigLevel("file", preferred="fastest")]), measured)
    choice = choose_for(
        decision, lambda name: None if name == "opencl" else "no", {"opencl": "cpu"}.get
    )
    assert [step.backend for step in choice.steps] == expected
    assert choice.backend == "opencl"
