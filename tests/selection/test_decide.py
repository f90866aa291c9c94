"""The table of the selection rule, as pure functions."""

import itertools

import pytest

from tensor_ops.names import DEFAULT_PRIORITY
from tensor_ops.selection import BUILT_IN, Choice, Step, Wishes, choose, decide

# Strongest first, each with the wishes it can state besides a priority.
LEVELS = {
    "call": ["named"],
    "context": ["named"],
    "set_default_backend()": ["preferred"],
    "environment": ["force", "preferred"],
    "file": ["force", "preferred"],
}


def wish_of(level, kind, backend):
    return Wishes(level, **{kind: backend})


def every_wish():
    return [(level, kind) for level, kinds in LEVELS.items() for kind in kinds]


@pytest.mark.parametrize(("level", "kind"), every_wish())
def test_a_level_alone_decides(level, kind):
    decision = decide([wish_of(level, kind, "opencl")])
    assert (decision.mode, decision.source) == (kind, level)
    assert decision.candidates[0] == "opencl"


@pytest.mark.parametrize(
    ("upper", "lower"),
    [
        pytest.param(upper, lower, id=f"{'-'.join(upper)} over {'-'.join(lower)}")
        for upper, lower in itertools.combinations(every_wish(), 2)
        if upper[0] != lower[0]
    ],
)
def test_every_level_goes_before_every_lower_one(upper, lower):
    decision = decide([wish_of(*upper, "opencl"), wish_of(*lower, "cpp")])
    assert (decision.mode, decision.source) == (upper[1], upper[0])
    assert decision.candidates[0] == "opencl"


@pytest.mark.parametrize(("level", "kind"), every_wish())
def test_a_level_that_says_nothing_is_passed_over(level, kind):
    silent = [Wishes(name) for name in LEVELS]
    decision = decide([*silent, wish_of(level, kind, "opencl"), *silent])
    assert (decision.source, decision.candidates[0]) == (level, "opencl")


@pytest.mark.parametrize(("level", "kind"), [wish for wish in every_wish() if wish[1] != "force"])
@pytest.mark.parametrize("below", ["force", "preferred"])
def test_auto_is_a_wish_too(level, kind, below):
    decision = decide([wish_of(level, kind, "auto"), wish_of("below", below, "cpp")])
    assert (decision.mode, decision.source) == ("auto", level)
    assert decision.candidates == DEFAULT_PRIORITY


@pytest.mark.parametrize("level", ["environment", "file"])
def test_force_goes_before_the_rest_of_its_level(level):
    wishes = Wishes(level, force="cuda", preferred="cpp", priority=("opencl", "python"))
    decision = decide([wishes])
    assert (decision.mode, decision.candidates) == ("force", ("cuda",))


def test_preferred_goes_before_the_priority_of_its_level():
    decision = decide([Wishes("file", preferred="cpp", priority=("opencl", "cuda"))])
    assert decision.mode == "preferred"
    assert decision.candidates == ("cpp", "opencl", "cuda", "python")


@pytest.mark.parametrize("preferred", [None, "auto"])
def test_a_priority_without_a_preference_is_auto(preferred):
    decision = decide([Wishes("file", preferred=preferred, priority=("cpp", "cuda"))])
    assert (decision.mode, decision.source) == ("auto", "file")
    assert decision.candidates == ("cpp", "cuda", "python")


def test_nothing_anywhere_is_the_built_in_default():
    decision = decide([])
    assert (decision.mode, decision.source) == ("auto", BUILT_IN.source)
    assert decision.candidates == decision.priority == ("cuda", "opencl", "cpp", "python")


# What one level leaves out of its order of fall-back comes from the levels below it.
@pytest.mark.parametrize("kind", ["named", "preferred"])
@pytest.mark.parametrize(
    ("priorities", "expected"),
    [
        ([None, None], DEFAULT_PRIORITY),
        ([None, ("cpp", "python")], ("cpp", "python")),
        ([("opencl", "python"), ("cpp", "python")], ("opencl", "python")),
        ([("opencl", "python"), None], ("opencl", "python")),
    ],
)
def test_the_order_of_fall_back_is_the_strongest_one_given(kind, priorities, expected):
    below = [Wishes(f"level {n}", priority=given) for n, given in enumerate(priorities)]
    assert decide([wish_of("top", kind, "auto"), *below]).candidates == expected


def test_a_preference_takes_the_order_of_a_lower_level():
    levels = [
        Wishes("env", preferred="cpp"),
        Wishes("file", force="cuda", priority=("opencl", "cuda")),
    ]
    decision = decide(levels)
    assert (decision.mode, decision.source) == ("preferred", "env")
    assert decision.candidates == ("cpp", "opencl", "cuda", "python")


def test_a_higher_priority_goes_before_a_lower_preference_and_force():
    levels = [Wishes("env", priority=("opencl",)), Wishes("file", force="cuda", preferred="cpp")]
    decision = decide(levels)
    assert (decision.mode, decision.source) == ("auto", "env")
    assert decision.candidates == ("opencl", "python")


@pytest.mark.parametrize(
    ("priority", "expected"),
    [
        (("cuda", "cpp"), ("cuda", "cpp", "python")),
        (("cpp", "python", "cuda"), ("cpp", "python", "cuda")),
        (("python", "cpp"), ("python", "cpp")),
        (("python",), ("python",)),
    ],
)
def test_python_keeps_its_place_and_is_the_floor(priority, expected):
    assert decide([Wishes("file", priority=priority)]).candidates == expected


@pytest.mark.parametrize(
    ("preferred", "expected"),
    [
        ("python", ("python", "cuda", "opencl", "cpp")),
        ("cpp", ("cpp", "cuda", "opencl", "python")),
        ("plug-in", ("plug-in", "cuda", "opencl", "cpp", "python")),
    ],
)
def test_a_preference_stands_once_and_first(preferred, expected):
    assert decide([Wishes("file", preferred=preferred)]).candidates == expected


@pytest.mark.parametrize(("level", "kind"), every_wish())
def test_force_and_a_name_allow_one_backend_and_a_preference_falls_back(level, kind):
    decision = decide([wish_of(level, kind, "opencl")])
    assert decision.strict == (kind != "preferred")
    assert (decision.candidates == ("opencl",)) == decision.strict


def test_auto_is_not_strict():
    assert not decide([]).strict


def test_strictness_keeps_the_priority_for_those_who_list_backends():
    levels = [Wishes("call", named="python"), Wishes("file", priority=("cpp", "python"))]
    assert decide(levels).priority == ("cpp", "python")


def test_levels_may_be_any_iterable():
    assert decide(iter([Wishes("call", named="cpp")])).candidates == ("cpp",)


def test_choose_takes_the_first_without_a_reason():
    reasons = {"cuda": "no driver", "cpp": None, "python": None}
    expected = Choice("cpp", (Step("cuda", "no driver"), Step("cpp", None)))
    assert choose(reasons, reasons.get) == expected


def test_choose_asks_for_no_more_than_it_needs():
    asked = []
    choose(("cpp", "python"), asked.append)
    assert asked == ["cpp"]


def test_choose_says_why_each_candidate_fell_out():
    choice = choose(("cuda", "cpp"), "no {}".format)
    assert choice == Choice(None, (Step("cuda", "no cuda"), Step("cpp", "no cpp")))


@pytest.mark.parametrize("reason", ["", "no"])
def test_choose_takes_an_empty_reason_for_a_reason(reason):
    assert choose(["cpp"], lambda name: reason).backend is None
