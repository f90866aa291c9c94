"""The line that a warning is of: that of the first caller outside of what is ours."""

import copy

import pytest

from tensor_ops.errors import warn_caller

# Code that warns where a module between its own and the caller's uses it.
LAZY = """
import contextlib
import functools
from tensor_ops.errors import warn_caller

class Lazy:
    def warn(self, *arguments):
        warn_caller("look", UserWarning)
        return ""

    value = functools.cached_property(warn)
    __deepcopy__ = warn

    @contextlib.contextmanager
    def block(self):
        self.warn()
        yield
"""
OURS = [
    "tensor_ops.config.state",
    "tensor_ops_cpp",
    "tensor_ops_decode.kernel",
    "tensor_ops_devices.backends",
    "tensor_ops_torch.modules",
]


def within(module, text):
    """Return the names of code as if it were in a module."""
    namespace = {"__name__": module}
    exec(compile(text, module, "exec"), namespace)
    return namespace


def caller(module):
    """Return a function of a module that calls another one."""
    return within(module, "def call(function, *given): return function(*given)")["call"]


def enter(lazy):
    with lazy.block():
        pass


@pytest.mark.parametrize("module", OURS)
@pytest.mark.parametrize(
    "use",
    [
        lambda lazy: lazy.value,
        enter,
        copy.deepcopy,
        lambda lazy: copy.deepcopy([lazy]),
        lambda lazy: caller("torch.nn.modules.module")(lazy.warn),
    ],
    ids=["cached_property", "contextmanager", "deepcopy", "list", "torch"],
)
def test_modules_between_are_passed_over(use, module):
    lazy = within(module, LAZY)["Lazy"]()
    with pytest.warns(UserWarning, match="look") as record:
        use(lazy)
    assert record[0].filename == __file__


@pytest.mark.parametrize("module", ["tensor_ops_mine", "tensor_opsy", "app", "torchlike"])
def test_a_module_of_someone_else_is_the_caller(module):
    with pytest.warns(UserWarning, match="look") as record:
        caller(module)(caller("tensor_ops"), warn_caller, "look", UserWarning)
    assert record[0].filename == module


def test_a_package_can_be_named():
    with pytest.warns(UserWarning, match="look") as record:
        caller("mine.part")(warn_caller, "look", UserWarning, "mine")
    assert record[0].filename == __file__
