"""The tables that are made from a record, and sentences about it."""

import math
from collections.abc import Callable

from decode_peers.cases import CASES, ENGINES, HYBRIDS, MIXTURES, MODELS, PROMPTS
from decode_peers.goals import CAUSES, ONE_TERM, SMALL, goals
from decode_peers.kinds import KINDS
from decode_peers.results import Results
from decode_peers.shapes import Shape
from harness.rounds import Figure
from harness.tables import table

__all__ = ["PROCESSOR", "figure", "hybrids", "mixtures", "section"]

PEER, FORK = "llama.cpp", "ik_llama.cpp"
OURS, ROUNDING = "cpp", "OpenVINO GenAI"
# Bandwidths of a desktop and of a server, in GB/s.
RATES = (80, 400)
# Models as they are released, with the one that was measured in the same format, and their words.
WHOLE = {
    "gpt-oss 20B": (Shape("gpt-oss", 2880, 24, 64, 8, 64, 2880, 32, 4), "OSS MXFP4", 201088),
    "gpt-oss 120B": (Shape("gpt-oss", 2880, 36, 64, 8, 64, 2880, 128, 4), "OSS MXFP4", 201088),
    "Qwen 3 30B-A3B, Q4_K": (
        Shape("qwen3moe", 2048, 48, 32, 4, 128, 768, 128, 8),
        "A3B Q4_K",
        151936,
    ),
}
# Figures of the processor by itself, beside which engines are measured.
PROCESSOR = ("read", "multiply")


def section(results: Results, again: Results | None = None) -> str:
    """Return all that is said of a record, with headings; `again` is a second one of the same.

    A heading names the kind of processor, since other sections have the same.
    """
    kind = KINDS.get(results.kind)
    title = kind.title if kind else results.kind
    parts = {
        "Goals": goal_table(results),
        "SmolLM2-135M": small(results),
        "A billion weights": large(results),
        "First tokens and memory": start(results),
        "What did not run": missing(results),
    }
    below = [f"### {heading} on {title}\n\n{text}" for heading, text in parts.items()]
    return "\n\n".join([setting(results), agreement(results, again), *below])


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
            *_settings(results),
            f"Processors that other processes kept busy meanwhile: {busy or 'unknown'}.",
        ]
    )


def goal_table(results: Results) -> str:
    """Return the table of goals, and why those are missed that are."""
    listed = goals(results)
    if not listed:
        return "There are no goals for this kind of processor."
    lines = ["| goal | bound | measured | |", "|---|---|---|---|"]
    for goal in listed:
        bound = f"at {'most' if goal.is_most else 'least'} {goal.bound:g}"
        words = {True: "met", False: "**missed**", None: "not measured"}[goal.is_met]
        lines.append(f"| {goal.name} | {bound} | {figure(goal.figure)} | {words} |")
    missed: dict[tuple[str, str], list[str]] = {}  # figures by what was measured, and why
    for goal in listed:
        if goal.is_met is False:
            model, _, what = goal.name.partition(": ")
            cause = CAUSES.get(goal.name) or CAUSES.get(what, "the cause is not known.")
            missed.setdefault((what, cause), []).append(f"{model} {figure(goal.figure)}")
    causes = [f"- {what}, {'; '.join(of)}: {cause}" for (what, cause), of in missed.items()]
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
    return _cases(results, lambda model: model.startswith("SmolLM2"))


def mixtures(results: Results) -> str:
    """Return what is said of a record of mixtures of experts."""
    parts = [setting(results), _cases(results, MIXTURES.__contains__), predictions(results)]
    return "\n\n".join(parts)


def hybrids(results: Results) -> str:
    """Return what is said of a record of hybrids."""
    return "\n\n".join([setting(results), _cases(results, HYBRIDS.__contains__)])


def predictions(results: Results) -> str:
    """Return how fast whole models should decode elsewhere, at the fraction that was measured."""
    lines = [
        "Predicted, not measured: tokens per second of whole models after a short prompt, at the "
        "part of the read bandwidth that the model of the same format reaches above.",
        "",
        "| model | MB of weights a token | 80 GB/s | 400 GB/s |",
        "|---|---|---|---|",
    ]
    for name, (shape, like, words) in WHOLE.items():
        read = shape.bytes_of_token(MODELS[like].kind, words)
        reached = results.of_bandwidth(like, "decode", OURS)
        rates = [f"{reached.value * rate * 1e9 / read:.0f}" if reached else "" for rate in RATES]
        lines.append(f"| {name} | {read / 1e6:,.0f} | {' | '.join(rates)} |")
    return "\n".join(lines)


def _cases(results: Results, is_meant: Callable[[str], bool]) -> str:
    """Return the table of every engine on some of the models, case by case."""
    lines = [
        "| engine | tokens per second | beside llama.cpp | beside ik_llama.cpp "
        "| of what the processor can do |",
        "|---|---|---|---|---|",
    ]
    for model in results.content["models"]:
        if not is_meant(model):
            continue
        for name in MODELS[model].cases:
            case = CASES[name]
            if case.kind == "start" or not results.engines(model, name):
                continue
            rate = _rate_of_processor(results, model, name)
            lines.append(f"| **{model}: {case.title}** | | | | {rate} |")
            lines += [
                f"| {engine} {_speed(results, model, name, engine)}"
                for engine in _in_order(results.engines(model, name))
            ]
    return "\n".join([*lines, *_little_attention(results)])


def _little_attention(results: Results) -> list[str]:
    """Return what the ratio of prompts is where they are short, and so have little attention."""
    ratios = [results.times_as_fast(SMALL, case, ONE_TERM, ROUNDING) for case in PROMPTS]
    if None in ratios:
        return []
    one, many = map(figure, ratios)
    return [
        "",
        f"16 prompts of 32 tokens have as many products with weights as one of 512, and a "
        f"sixteenth of its attention. `{ONE_TERM}` reads them {many} times as fast as {ROUNDING}, "
        f"and the one {one} times.",
    ]


def large(results: Results) -> str:
    """Return the tables of the random models, a line for each format: decoding, and prompts."""
    models = [model for model in results.content["models"] if model.startswith("1B")]
    decode = [
        [
            MODELS[model].kind,
            _number(results.rate(model, "decode", OURS)),
            *_beside_both(results, model, "decode", OURS),
            figure(results.of_bandwidth(model, "decode", OURS)),
        ]
        for model in models
    ]
    prompt = [
        [
            MODELS[model].kind,
            _number(results.rate(model, "prompt", OURS)),
            *_beside_both(results, model, "prompt", OURS),
            *_beside_both(results, model, "prompt", _alike(model)),
            figure(results.of_products(model, OURS)),
            figure(results.of_products(model, _alike(model))),
        ]
        for model in models
    ]
    beside = [f"beside {PEER}", f"beside {FORK}"]
    alike = [f"alike, {each}" for each in beside]
    first = ["format", "decode: tokens per second", *beside, "of the read bandwidth"]
    cores = "of what the cores multiply"
    second = ["format", "prompt: tokens per second", *beside, *alike, cores, f"alike, {cores}"]
    return "\n\n".join([table(first, decode), table(second, prompt)])


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
        *_beside_both(results, model, case, engine),
        figure(_of_processor(results, model, case, engine)),
    ]
    return f"| {' | '.join(cells)} |"


def _settings(results: Results) -> list[str]:
    """Return a sentence about engines that do not run with their library's defaults."""
    found = [
        f"{engine} ({', '.join(f'{name} {value}' for name, value in settings.items())})"
        for engine, settings in results.content["engines"].items()
        if settings
    ]
    return [f"Settings: {'; '.join(found)}."] if found else []


def _beside_both(results: Results, model: str, case: str, engine: str) -> list[str]:
    """Return how many times as fast an engine is as llama.cpp and as ik_llama.cpp."""
    return [figure(results.times_as_fast(model, case, engine, peer)) for peer in (PEER, FORK)]


def _alike(model: str) -> str:
    """Return the engine that rounds activations to as few bits as llama.cpp does."""
    return "cpp, bfloat16" if MODELS[model].kind == "BF16" else "cpp, int8"


def _of_processor(results: Results, model: str, case: str, engine: str) -> Figure | None:
    """Return the part of the read bandwidth, or of a prompt the part of what the cores multiply."""
    if CASES[case].kind == "prompt":
        alike = engine in (OURS, _alike(model))
        return results.of_products(model, engine, case) if alike else None
    # Several sequences read more experts than one, as many as they choose.
    is_known = model not in (*MIXTURES, *HYBRIDS) or CASES[case].sequences == 1
    return results.of_bandwidth(model, case, engine) if engine == OURS and is_known else None


def _rate_of_processor(results: Results, model: str, case: str) -> str:
    if CASES[case].kind == "prompt":
        found, unit = results.products(model, case), " billion products/s"
    else:
        found, unit = results.bandwidth(model, case), " GB/s"
    return f"{found / 1e9:.0f}{unit}" if found else ""


def _in_order(engines: list[str]) -> list[str]:
    """Return engines in the order of the table, without the processor itself."""
    return [name for name in ENGINES if name in engines and name not in PROCESSOR]


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _digits(value: float) -> str:
    return f"{value:.1f}" if value >= 9.95 else f"{value:.2f}"
