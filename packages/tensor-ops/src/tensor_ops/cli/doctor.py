"""``tensor-ops test_capabilities``, also ``doctor``: what is there, what runs, and why."""

import json
import sys
from argparse import ArgumentParser, Namespace
from typing import Any

import tensor_ops
from tensor_ops import backends
from tensor_ops.backends.names import DEFAULT_PRIORITY, KNOWN, LAST_RESORT, install_command, split
from tensor_ops.cli import Commands, add_command, values
from tensor_ops.errors import ConfigError

__all__ = ["add", "report", "run"]


def add(commands: "Commands[ArgumentParser]") -> None:
    """Add this command's parser."""
    parser = add_command(
        commands,
        "test_capabilities",
        run,
        aliases=["doctor"],
        help="the machine, its tools, every backend, and what runs and why",
        description="Look at the machine, its tools, every backend and the configuration. Exits "
        "with 1 when the configuration is broken, a forced backend is missing, or a required one "
        "is unavailable.",
        epilog="example: tensor-ops doctor --require cpp",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--require",
        metavar="NAME",
        type=values.backend,
        action="append",
        default=[],
        help="exit with 1 if this backend is unavailable; may be given more than once",
    )


def run(arguments: Namespace) -> int:
    """Print the report; a problem in it is a failure."""
    found = report(arguments.require)
    print(json.dumps(found, indent=2) if arguments.json else _text(found))
    return 1 if found["problems"] else 0


def report(required: list[str]) -> dict[str, Any]:
    """Return everything that the command prints.

    Nothing here fails on a broken configuration: that is a fact to report.
    """
    from tensor_ops import machine
    from tensor_ops.cli.configuration import Configuration
    from tensor_ops.cli.tools import tools

    configuration = Configuration.read()
    asked_for = (*configuration.considered(DEFAULT_PRIORITY), LAST_RESORT, *required)
    considered = {split(name)[0] for name in asked_for}
    names = dict.fromkeys([*KNOWN, *backends.INSTALLED])
    problems = list(configuration.problems)
    chosen = None
    try:
        chosen = configuration.selection()
    except ConfigError as error:
        problems.append(str(error))
    if chosen is not None and chosen["backend"] is None:
        steps = "; ".join(f"{step['backend']}: {step['reason']}" for step in chosen["steps"])
        problems.append(f"no backend can run ({chosen['mode']} by {chosen['decided_by']}): {steps}")
    problems += [
        f"backend {name!r} (--require) is unavailable: {reason}"
        for name in dict.fromkeys(required)
        if (reason := backends.load(name).reason) is not None
    ]
    return {
        "tensor_ops": tensor_ops.__version__,
        "executable": sys.executable,
        "machine": machine.facts(),
        "tools": tools(),
        "backends": [_backend(name, name in considered) for name in names],
        "configuration": configuration.as_dict(),
        "selection": chosen,
        "advice": _advice(chosen),
        "problems": problems,
    }


def _backend(name: str, considered: bool) -> dict[str, Any]:
    installed = name == LAST_RESORT or name in backends.INSTALLED
    known = KNOWN.get(name)
    facts: dict[str, Any] = {
        "name": name,
        "display_name": known.display_name if known else name,
        "installed": installed,
        "available": None,
        "reason": "outside the priority list: not imported; --require looks at it",
        "exception": None,
        "install": install_command(name),
        "version": None,
        "device_name": None,
        "configuration": None,
        "programs": None,
    }
    if considered or not installed:
        given = backends.info(name)
        error = backends.load(name).error
        facts |= {key: given[key] for key in facts if key in given}
        facts["configuration"] = backends.configuration(name)
        if facts["available"]:
            facts["programs"] = backends.program_note(name)
        facts["exception"] = error and f"{type(error).__name__}: {error}"
    return facts


def _advice(chosen: dict[str, Any] | None) -> str | None:
    """Return how to be faster where NumPy computes because nothing else is installed."""
    if chosen is None or (chosen["backend"], chosen["mode"]) != (LAST_RESORT, "auto"):
        return None
    if "cpp" in backends.INSTALLED:  # whatever is wrong with it stands among the backends
        return None
    return f"NumPy computes; the C++ backend is faster on CPUs: {install_command('cpp')}"


def _text(found: dict[str, Any]) -> str:
    parts = [
        [f"tensor-ops {found['tensor_ops']}"],
        ["Machine", *_table(_machine_rows(found["machine"]))],
        ["Tools to build backends with", *_table(_tool_rows(found["tools"]))],
        ["Backends", *_table([(each["name"], _status(each)) for each in found["backends"]])],
        *_program_parts(found["backends"]),
        ["Configuration", *_table(_configuration_rows(found["configuration"]))],
        ["Selection", *_selection_lines(found["selection"])],
    ]
    if found["advice"]:
        parts.append(["Advice", f"  {found['advice']}"])
    if found["problems"]:
        parts.append(["Problems", *(f"  {problem}" for problem in found["problems"])])
    return "\n\n".join("\n".join(part) for part in parts)


def _table(rows: list[tuple[str, str]]) -> list[str]:
    width = max(len(key) for key, _ in rows)
    return [f"  {key:{width}}  {value}" for key, value in rows]


def _machine_rows(facts: dict[str, Any]) -> list[tuple[str, str]]:
    cpus = f"{facts['usable_cpus']} of {facts['logical_cpus']} logical CPUs usable"
    return [
        ("Python", f"{facts['python']} ({facts['implementation']}, {sys.executable})"),
        ("NumPy", facts["numpy"]),
        ("OS", facts["os"]),
        ("CPU", f"{facts['cpu'] or 'unknown'} ({facts['architecture']}, {cpus})"),
        ("SIMD", ", ".join(facts["simd"]) or "unknown"),
        ("Memory", f"{facts['memory'] / 2**30:.1f} GiB" if facts["memory"] else "unknown"),
    ]


def _tool_rows(tools: dict[str, dict[str, str | None]]) -> list[tuple[str, str]]:
    rows = []
    for name, tool in tools.items():
        version = f" ({tool['version']})" if tool["version"] else ""
        where = f"{tool['path']}{version}" if tool["path"] else "not found"
        rows.append((name, f"{where}, for {tool['backend']}"))
    return rows


def _status(backend: dict[str, Any]) -> str:
    if backend["available"]:
        version = f" {backend['version']}" if backend["version"] else ""
        compiled = f", with {backend['configuration']}" if backend["configuration"] else ""
        name = f"{backend['display_name']}{version}"
        return f"available: {name} on {backend['device_name']}{compiled}"
    if backend["available"] is None:
        return f"installed, {backend['reason']}"
    return f"unavailable: {backend['reason']}"


def _program_parts(found: list[dict[str, Any]]) -> list[list[str]]:
    notes = [(each["name"], each["programs"]) for each in found if each["programs"]]
    return [["Decode programs", *_table(notes)]] if notes else []


def _configuration_rows(configuration: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [("file", configuration["file"] or "none")]
    for key, setting in configuration["settings"].items():
        value = setting["value"]
        text = ", ".join(value) if isinstance(value, list) else str(value)
        overridden = setting["overridden_by"]
        note = f", overridden by {overridden}" if overridden else ""
        rows.append((key, f"{text}  (from {setting['source']}{note})"))
    return [*rows, *configuration["unread_variables"].items()]


def _selection_lines(chosen: dict[str, Any] | None) -> list[str]:
    if chosen is None:
        return ["  none: tensor_ops raises ConfigError until the configuration is mended"]
    runs = f"{chosen['backend']} runs" if chosen["backend"] else "no backend can run"
    lines = [f"  {runs}, decided by {chosen['decided_by']} ({chosen['mode']})"]
    lines += [f"    {chosen['times']}"] if chosen["times"] else []
    lines += [f"    {step['backend']}: {step['reason'] or 'chosen'}" for step in chosen["steps"]]
    return lines
