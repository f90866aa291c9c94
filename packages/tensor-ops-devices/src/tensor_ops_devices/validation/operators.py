"""Checks of whether the operators that a model calls have kernels for a device."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tensor_ops_devices.hardware import xla
from tensor_ops_devices.validation.model import ModelFacts, observe
from tensor_ops_devices.validation.report import ValidationCheck, failed, passed, skipped, warning

__all__ = ["check_operators"]

_GIVE_INPUTS = "pass example_inputs=(...) to have the model called once and its operators seen"


def check_operators(
    model: nn.Module, facts: ModelFacts, example_inputs: Any, key: str
) -> list[ValidationCheck]:
    """Call a model once, and check the operators that it calls.

    `example_inputs` are what `observe` takes; with None the model is not called. `key` is the
    dispatch key of the device, "CUDA" or "XLA".
    """
    names, unknown = ("operators", "dynamic shapes"), "not known before the model runs"
    if example_inputs is None:
        return [skipped(each, unknown, _GIVE_INPUTS) for each in names]
    if facts.lazy is not None:
        # A call would initialize the parameters, and nothing is to be changed.
        todo = f"call it before, which initializes {facts.lazy}"
        return [skipped(each, unknown, todo) for each in names]
    seen = observe(model, example_inputs)
    if seen.error is not None:
        message = f"the model raised {type(seen.error).__name__}: {seen.error}"
        todo = "give inputs that it can be called with, where it is"
        return [failed("operators", message, todo)]
    return [_kernels(seen.names, key), _dynamic(seen.dynamic, key)]


def _kernels(names: set[str], key: str) -> ValidationCheck:
    # A PyTorch without the hardware has none of its own kernels for it, but those of extensions.
    # Operators for XLA are registered when torch_xla is imported.
    broken = xla.why_not_importable() if key == "XLA" and xla.is_installed() else None
    present = torch.version.cuda if key == "CUDA" else xla.is_installed() and broken is None
    known = {each for each in names if present or not each.startswith("aten::")}
    missing = sorted(each for each in known if not _has_kernel(each, key))
    if missing and key == "CUDA":
        return failed(
            "operators", f"no CUDA kernel for {', '.join(missing)}", "replace what calls it"
        )
    own = [each for each in missing if not each.startswith("aten::")]
    if own:
        return failed("operators", f"XLA cannot run {', '.join(own)}", "replace what calls it")
    if missing:
        return warning(
            "operators",
            f"XLA runs {', '.join(missing)} on the CPU, with copies there and back",
            "replace what calls it",
        )
    unknown = len(names) - len(known)
    if unknown:
        there = "CUDA" if key == "CUDA" else "torch_xla"
        text = f"{unknown} of PyTorch's own were seen"
        if broken is not None:
            text += f", and {broken}"
        return skipped("operators", text, f"run it where {there} is")
    return passed("operators", f"all {len(names)} have kernels")


def _has_kernel(name: str, key: str) -> bool:
    keys = (key, "CompositeImplicitAutograd", "CompositeExplicitAutograd")
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(name, each) for each in keys)


def _dynamic(names: list[str], key: str) -> ValidationCheck:
    if not names:
        return passed("dynamic shapes", "none: no shape depends on values")
    text = f"{', '.join(names)}: results whose shape depends on values"
    if key == "CUDA":
        return passed("dynamic shapes", f"{text}, which CUDA takes")
    return warning(
        "dynamic shapes",
        f"{text}, for which XLA waits, and may compile again",
        "use masks and torch.where in place of indices",
    )
