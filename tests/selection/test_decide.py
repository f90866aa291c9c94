"""The table of the selection rule, as pure functions."""

import itertools

import pytest

from tensor_ops.backends.names import DEFAULT_PRIORITY
from tensor_ops.config.selection import (
    BUILT_IN,
    Choice,
    ConfigLevel,
    Decision,
    Step,
    choose_for,
    decide,
    in_measured_order,
)
from tensor_ops.errors import BackendError

# Strongest first, each with what it can state besides a priority.
LEVELS = {
    "call": ["named"],
    "context": ["named"],
    "set_default_backend()": ["preferred"],
    "environment": ["force", "preferred"],
    "file": ["force", "preferred"],
}


def wish_of(level, kind, backend):
    return ConfigLevel(level, **{kind: backend}, lift=f"change the {level}")


def in_order(*candidates, **attributes):
    """Return a decision for these candidates in a user's order."""
    return Decision("auto", candidates, "file", candidates, **attributes)


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
        if upper[0] != lower[0] and (lower[1] != "force" or upper[1] == "force")
    ],
)
def test_every_level_goes_before_every_lower_one(upper, lower):
    decision = decide([wish_of(*upper, "opencl"), wish_of(*lower, "cpp")])
    assert (decision.mode, decision.source) == (upper[1], upper[0])
    assert decision.candidates[0] == "opencl"


@pytest.mark.parametrize("forcing", ["environment", "file"])
@pytest.mark.parametrize("level", ["call", "context"])
def test_a_name_under_a_force_is_an_error_that_says_how_to_lift_it(level, forcing):
    levels = [wish_of(level, "named", "opencl"), wish_of(forcing, "force", "cpp")]
    with pytest.raises(BackendError) as caught:
        decide(levels)
    for text in ("'opencl'", level, "'cpp'", forcing, f"change the {forcing}"):
        assert text in str(caught.value)


@pytest.mark.parametrize("level", ["call", "context"])
@pytest.mark.parametrize(
    ("named", "forced", "runs"),
    [
        ("cpp", "cpp", "cpp"),
        ("opencl", "opencl:gpu", "opencl:gpu"),
        ("opencl:gpu", "opencl", "opencl:gpu"),
        ("opencl:gpu", "opencl:gpu", "opencl:gpu"),
        ("opencl:cpu", "opencl:gpu", None),
        ("opencl:gpu", "cuda", None),
    ],
)
def test_a_name_under_a_force_of_the_same_backend(level, named, forced, runs):
    levels = [wish_of(level, "named", named), wish_of("file", "force", forced)]
    if runs is None:
        with pytest.raises(BackendError, match="may not run"):
            decide(levels)
        return
    decision = decide(levels)
    assert (decision.mode, decision.source, decision.candidates) == ("force", "file", (runs,))
    assert decision.narrowed_by == (level if runs != forced else None)


@pytest.mark.parametrize("level", ["set_default_backend()", "environment"])
def test_a_preference_gives_way_to_a_weaker_force(level):
    levels = [wish_of(level, "preferred", "opencl"), wish_of("file", "force", "cpp")]
    decision = decide(levels)
    assert (decision.mode, decision.source, decision.candidates) == ("force", "file", ("cpp",))
    assert decision.overridden == (level,)
    levels[0] = wish_of(level, "preferred", "cpp")
    assert decide(levels).overridden == ()


def test_a_priority_does_not_undo_a_weaker_force():
    decision = decide([ConfigLevel("env", priority=("opencl",)), ConfigLevel("file", force="cuda")])
    assert (decision.mode, decision.source, decision.candidates) == ("force", "file", ("cuda",))
    assert decision.overridden == ("env",)
    agreeing = [ConfigLevel("env", priority=("cuda", "opencl")), ConfigLevel("file", force="cuda")]
    assert decide(agreeing).overridden == ()


def test_a_priority_beside_or_below_a_force_is_not_overridden():
    order = ("opencl", "python")
    levels = [ConfigLevel("env", force="cpp"), ConfigLevel("env", priority=order)]
    assert decide([*levels, ConfigLevel("file", priority=order)]).overridden == ()


def test_the_stronger_of_two_forces_holds():
    decision = decide([wish_of("environment", "force", "cpp"), wish_of("file", "force", "cuda")])
    assert (decision.source, decision.candidates) == ("environment", ("cpp",))
    assert decision.overridden == ("file",)


@pytest.mark.parametrize(
    ("stronger", "weaker", "overridden"),
    [
        ("opencl", "opencl:gpu", ("file",)),
        ("opencl:gpu", "opencl", ()),
        ("opencl:cpu", "opencl:gpu", ("file",)),
    ],
)
def test_a_weaker_force_of_the_same_backend(stronger, weaker, overridden):
    levels = [ConfigLevel("environment", force=stronger), ConfigLevel("file", force=weaker)]
    decision = decide(levels)
    assert (decision.source, decision.candidates) == ("environment", (stronger,))
    assert decision.overridden == overridden


@pytest.mark.parametrize(("level", "kind"), every_wish())
def test_a_level_that_says_nothing_is_passed_over(level, kind):
    silent = [ConfigLevel(name) for name in LEVELS]
    decision = decide([*silent, wish_of(level, kind, "opencl"), *silent])
    assert (decision.source, decision.candidates[0]) == (level, "opencl")


@pytest.mark.parametrize(("level", "kind"), [wish for wish in every_wish() if wish[1] != "force"])
def test_auto_is_a_wish_too(level, kind):
    decision = decide([wish_of(level, kind, "auto"), wish_of("below", "preferred", "cpp")])
    assert (decision.mode, decision.source) == ("auto", level)
    assert decision.candidates == DEFAULT_PRIORITY


@pytest.mark.parametrize(("level", "kind"), [wish for wish in every_wish() if wish[1] != "force"])
def test_auto_means_what_a_weaker_level_forces(level, kind):
    decision = decide([wish_of(level, kind, "auto"), wish_of("below", "force", "cpp")])
    assert (decision.mode, decision.source, decision.candidates) == ("force", "below", ("cpp",))
    assert decision.overridden == ()


@pytest.mark.parametrize(("level", "kind"), [wish for wish in every_wish() if wish[1] != "force"])
@pytest.mark.parametrize("below", ["auto", "cpp"])
def test_the_fastest_is_a_wish_too(level, kind, below):
    decision = decide([wish_of(level, kind, "fastest"), wish_of("below", "preferred", below)])
    assert (decision.mode, decision.source, decision.strict) == ("fastest", level, False)
    assert decision.candidates == DEFAULT_PRIORITY


@pytest.mark.parametrize("below", ["environment", "file"])
@pytest.mark.parametrize(("level", "kind"), [wish for wish in every_wish() if wish[1] != "force"])
def test_the_fastest_under_a_force_is_the_forced_one(level, kind, below):
    decision = decide([wish_of(level, kind, "fastest"), wish_of(below, "force", "cpp")])
    assert (decision.mode, decision.candidates, decision.overridden) == ("force", ("cpp",), ())


def test_the_fastest_keeps_to_the_priority_of_any_level():
    levels = [
        ConfigLevel("call", named="fastest"),
        ConfigLevel("file", priority=("opencl", "cuda")),
    ]
    assert decide(levels).candidates == ("opencl", "cuda", "python")


def test_what_was_measured_goes_before_the_rest():
    decision = decide([ConfigLevel("file", preferred="fastest", priority=("a", "b:gpu", "c", "d"))])
    found = in_measured_order(decision, ["c", "z", "b"])
    assert found.candidates == ("c", "b:gpu", "a", "d", "python")
    assert found.measured == ("c", "b:gpu")
    assert in_measured_order(decision, []).candidates == decision.candidates


@pytest.mark.parametrize("level", ["environment", "file"])
def test_force_goes_before_the_rest_of_its_level(level):
    level = ConfigLevel(level, force="cuda", preferred="cpp", priority=("opencl", "python"))
    decision = decide([level])
    assert (decision.mode, decision.candidates) == ("force", ("cuda",))


def test_preferred_goes_before_the_priority_of_its_level():
    decision = decide([ConfigLevel("file", preferred="cpp", priority=("opencl", "cuda"))])
    assert decision.mode == "preferred"
    assert decision.candidates == ("cpp", "opencl", "cuda", "python")


@pytest.mark.parametrize("preferred", [None, "auto"])
def test_a_priority_without_a_preference_is_auto(preferred):
    decision = decide([ConfigLevel("file", preferred=preferred, priority=("cpp", "cuda"))])
    assert (decision.mode, decision.source) == ("auto", "file")
    assert decision.candidates == ("cpp", "cuda", "python")


def test_nothing_anywhere_is_the_built_in_default():
    decision = decide([])
    assert (decision.mode, decision.source) == ("auto", BUILT_IN.source)
    assert decision.candidates == decision.priority == ("cuda", "opencl", "cpp", "python")


# Backends that one level leaves out of its order of fall-back come from the levels below it.
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
    below = [ConfigLevel(f"level {n}", priority=given) for n, given in enumerate(priorities)]
    assert decide([wish_of("top", kind, "auto"), *below]).candidates == expected


def test_a_preference_takes_the_order_of_a_lower_level():
    levels = [
        ConfigLevel("env", preferred="cpp"),
        ConfigLevel("file", preferred="cuda", priority=("opencl", "cuda")),
    ]
    decision = decide(levels)
    assert (decision.mode, decision.source) == ("preferred", "env")
    assert decision.candidates == ("cpp", "opencl", "cuda", "python")


def test_a_higher_priority_goes_before_a_lower_preference():
    levels = [ConfigLevel("env", priority=("opencl",)), ConfigLevel("file", preferred="cpp")]
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
    assert decide([ConfigLevel("file", priority=priority)]).candidates == expected


@pytest.mark.parametrize(
    ("preferred", "expected"),
    [
        ("python", ("python", "cuda", "opencl", "cpp")),
        ("cpp", ("cpp", "cuda", "opencl", "python")),
        ("plug-in", ("plug-in", "cuda", "opencl", "cpp", "python")),
    ],
)
def test_a_preference_stands_once_and_first(preferred, expected):
    assert decide([ConfigLevel("file", preferred=preferred)]).candidates == expected


@pytest.mark.parametrize(("level", "kind"), every_wish())
def test_force_and_a_name_allow_one_backend_and_a_preference_falls_back(level, kind):
    decision = decide([wish_of(level, kind, "opencl")])
    assert decision.strict == (kind != "preferred")
    assert (decision.candidates == ("opencl",)) == decision.strict


def test_auto_is_not_strict():
    assert not decide([]).strict


def test_strictness_keeps_the_priority_for_those_who_list_backends():
    levels = [ConfigLevel("call", named="python"), ConfigLevel("file", priority=("cpp", "python"))]
    assert decide(levels).priority == ("cpp", "python")


def test_levels_may_be_any_iterable():
    assert decide(iter([ConfigLevel("call", named="cpp")])).candidates == ("cpp",)


def no_kind(name):
    return None


def test_choose_takes_the_first_without_a_reason():
    reasons = {"cuda": "no driver", "cpp": None, "python": None}
    expected = Choice("cpp", (Step("cuda", "no driver"), Step("cpp", None)))
    assert choose_for(in_order(*reasons), reasons.get, no_kind) == expected


def test_choose_asks_for_no_more_than_it_needs():
    asked = []
    choose_for(in_order("cpp", "python"), asked.append, asked.append)
    assert asked == ["cpp"]


def test_choose_says_why_each_candidate_fell_out():
    choice = choose_for(in_order("cuda", "cpp"), "no {}".format, no_kind)
    assert choice == Choice(None, (Step("cuda", "no cuda"), Step("cpp", "no cpp")))


@pytest.mark.parametrize("reason", ["", "no"])
def test_choose_takes_an_empty_reason_for_a_reason(reason):
    assert choose_for(in_order("cpp"), lambda name: reason, no_kind).backend is None


def test_choose_gives_the_backend_without_the_kind_of_device():
    choice = choose_for(in_order("opencl:gpu"), lambda name: None, no_kind)
    assert choice == Choice("opencl", (Step("opencl:gpu", None),))
