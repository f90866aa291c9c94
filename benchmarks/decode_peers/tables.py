"""The blocks of the page: tables that are made from a record."""

import math

from decode_peers.cases import CASES, ENGINES, MODELS
from decode_peers.goals import CAUSES, goals
from decode_peers.results import Figure, Results

__all__ = ["PROCESSOR", "blocks", "figure"]

PEER = "llama.cpp"
OURS = "cpp"
# What the processor does by itself, beside which engines are measured.
PROCESSOR = ("read", "multiply")


def blocks(results: Results, again: Results | None = None) -> dict[str, str]:
    """Return all blocks by name; `again` is a second record of the same."""
    return {
        "decode-setting": setting(results),
        "decode-again": agreement(results, again),
        "decode-goals": goal_table(results),
        "decode-small": small(results),
        "decode-large": large(results),
        "decode-start": start(results),
        "decode-missing": missing(results),
    }


def setting(results: Results) -> str:
    """Return what was measured where, in sentences."""
    content = results.content
    commit = (content["commit"]["id"] or "unknown")[:7]
    versions = ", ".join(f"{name} {version}" for name, version in content["versions"].items())
    busy = ", ".join(
        f"{cores:.2f} ({model})"
        for model, cores in content["busy_elsewhere"].items()
        if cores is not None
    )
    return "\n\n".join(
        [
            f"{content['machine']['cpu']}, {content['machine']['usable_cpus']} processors; commit "
            f"{commit}; {content['date'][:10]}; {content['seconds'] / 60:.0f} minutes.",
            f"Versions: {versions}.",
            f"Processors that other processes kept busy meanwhile: {busy or 'unknown'}.",
        ]
    )


def goal_table(results: Results) -> str:
    """Return the table of goals, and why those are missed that are."""
    listed = goals(results)
    lines = ["| goal | bound | measured | |", "|---|---|---|---|"]
    for goal in listed:
        bound = f"at {'most' if goal.is_most else 'least'} {goal.bound:g}"
        words = {True: "met", False: "**missed**", None: "not measured"}[goal.is_met]
        lines.append(f"| {goal.name} | {bound} | {figure(goal.figure)} | {words} |")
    missed: dict[tuple[str, str], list[str]] = {}  # models by what was measured, and why
    for goal in listed:
        if goal.is_met is False:
            model, _, what = goal.name.partition(": ")
            cause = CAUSES.get(goal.name) or CAUSES.get(what, "the cause is not known.")
            missed.setdefault((what, cause), []).append(model)
    causes = [f"- {what} ({', '.join(of)}): {cause}" for (what, cause), of in missed.items()]
    return "\n".join([*lines, "", *(causes or ["All goals that were measured are met."])])


def agreement(results: Results, again: Results | None) -> str:
    """Return how the goals' figures agree with those of a second record."""
    if again is None:
        return "There is no second record."
    pairs = [
        (one, other)
        for one, other in zip(goals(results), goals(again), strict=True)
        if one.figure is not None and other.figure is not None
    ]
    apart = [(one, other) for one, other in pairs if not _overlap(one.figure, other.figure)]
    machine = setting(again).partition("\n")[0]
    sentence = (
        f"A second record, of another process: {machine} The intervals of both records overlap in "
        f"{len(pairs) - len(apart)} of the {len(pairs)} goals that both have."
    )
    if not apart:
        return sentence
    lines = ["| goal | this record | the second |", "|---|---|---|"]
    lines += [
        f"| {one.name} | {figure(one.figure)} | {figure(other.figure)} |" for one, other in apart
    ]
    return "\n".join([f"{sentence} In these they do not:", "", *lines])


def _overlap(one: Figure | None, other: Figure | None) -> bool:
    (low, high), (least, most) = _interval(one), _interval(other)
    return low <= most and least <= high


def _interval(found: Figure | None) -> tuple[float, float]:
    """Return the ends of a figure's interval; one of few rounds has none, and any fits it."""
    if found is None or found.low is None or found.high is None:
        return -math.inf, math.inf
    return found.low, found.high


def small(results: Results) -> str:
    """Return the table of every engine on the models of SmolLM2."""
    lines = [
        "| engine | tokens per second | beside llama.cpp | of the read bandwidth |",
        "|---|---|---|---|",
    ]
    for model in results.content["models"]:
        if not model.startswith("SmolLM2"):
            continue
        for name in MODELS[model].cases:
            case = CASES[name]
            if case.kind == "start" or not results.engines(model, name):
                continue
            lines.append(f"| **{model}: {case.title}** | | | {_bandwidth(results, model, name)} |")
            lines += [
                f"| {engine} {_speed(results, model, name, engine)}"
                for engine in _in_order(results.engines(model, name))
            ]
    return "\n".join(lines)


def large(results: Results) -> str:
    """Return the table of the random models, a line for each format."""
    lines = [
        "| format | decode: tokens per second | beside llama.cpp | of the read bandwidth "
        "| prompt: tokens per second | beside llama.cpp | int8, beside llama.cpp "
        "| of what the cores multiply |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for model in results.content["models"]:
        if model.startswith("SmolLM2"):
            continue
        cells = [MODELS[model].kind]
        cells += [
            _number(results.rate(model, "decode", OURS)),
            figure(results.times_as_fast(model, "decode", OURS, PEER)),
            figure(results.of_bandwidth(model, "decode", OURS)),
            _number(results.rate(model, "prompt", OURS)),
            figure(results.times_as_fast(model, "prompt", OURS, PEER)),
            figure(results.times_as_fast(model, "prompt", "cpp, int8", PEER)),
            figure(results.of_products(model, OURS)),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def start(results: Results) -> str:
    """Return the table of first tokens and memory."""
    lines = [
        "| model | engine | seconds to the first token | times as fast as llama.cpp "
        "| memory, MB | mapped files in it | peak, MB |",
        "|---|---|---|---|---|---|---|",
    ]
    for model in results.content["models"]:
        for engine in _in_order(results.engines(model, "start")):
            seconds = results.median(model, "start", engine)
            kinds = ("resident", "mapped", "peak")
            sizes = [results.median(model, "start", engine, kind) for kind in kinds]
            megabytes = " | ".join("" if size is None else f"{size / 1e6:,.0f}" for size in sizes)
            beside = figure(results.times_as_fast(model, "start", engine, PEER))
            lines.append(f"| {model} | {engine} | {seconds:.2f} | {beside} | {megabytes} |")
    return "\n".join(lines)


def missing(results: Results) -> str:
    """Return what engines did not run, with their reasons."""
    content = results.content
    lines = [
        f"- {engine} did not open {model}: {reason}"
        for model, reasons in content["missing"].items()
        for engine, reason in reasons.items()
    ]
    lines += [
        f"- {engine} failed in {case}: {reason}"
        for case, reasons in content["failures"].items()
        for engine, reason in reasons.items()
    ]
    return "\n".join(lines or ["Every engine ran what it was asked for."])


def figure(found: Figure | None) -> str:
    """Return a figure with its interval, if it has one."""
    if found is None:
        return ""
    if found.low is None or found.high is None:
        return _digits(found.value)
    return f"{_digits(found.value)} ({_digits(found.low)} to {_digits(found.high)})"


def _speed(results: Results, model: str, case: str, engine: str) -> str:
    cells = [
        _number(results.rate(model, case, engine)),
        figure(results.times_as_fast(model, case, engine, PEER)),
        figure(results.of_bandwidth(model, case, engine)) if engine == OURS else "",
    ]
    return f"| {' | '.join(cells)} |"


def _bandwidth(results: Results, model: str, case: str) -> str:
    found = results.bandwidth(model, case)
    return f"{found / 1e9:.0f} GB/s" if found else ""


def _in_order(engines: list[str]) -> list[str]:
    """Return engines in the order of the table, without the processor itself."""
    return [name for name in ENGINES if name in engines and name not in PROCESSOR]


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _digits(value: float) -> str:
    return f"{value:.1f}" if value >= 9.95 else f"{value:.2f}"
