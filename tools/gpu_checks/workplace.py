"""Where stages are run: their folders, their processes, and the time that each has."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from gpu_checks.record import Record

__all__ = [
    "Done",
    "FailedError",
    "SkippedError",
    "Stage",
    "Workplace",
    "figures_of",
    "json_lines",
    "run_stages",
]

Item = TypeVar("Item")

# Characters that are kept of the output of a stage that fails.
TAIL = 4000
# Less than this is no time to start anything in.
SHORTEST = 1.0
# How long a program may take to say what it has found, once its time is up and it is interrupted.
GRACE = 8.0


class SkippedError(Exception):
    """A requirement of a stage is not on this machine."""


class FailedError(Exception):
    """A check failed; the output says more."""


@dataclass(frozen=True)
class Done:
    """A process that has ended: its exit status, None if its time was up, and what it printed."""

    status: int | None
    output: str
    seconds: float


@dataclass(frozen=True)
class Stage:
    """One thing to do.

    `do` returns details, or raises one of the errors above; what it has put into the workplace's
    details by then is kept. It has `limit` seconds, and more where more are left than it and those
    after it need. Each `part` is for a command of its own. Without what `is_vital` nothing after it
    can be done.
    """

    name: str
    summary: str
    do: Callable[["Workplace"], dict[str, Any]]
    limit: int
    part: int = 1
    needs_install: bool = True
    is_vital: bool = False


@dataclass
class Workplace(AbstractContextManager["Workplace"]):
    """The checkout, a folder to install into and one to install from, a log, and a clock.

    What programs print, and their figures, are in the folder of results while they run: so they are
    there even if this program is killed.
    """

    root: Path
    out: Path
    budget: float
    emulate: bool = False
    site_given: Path | None = None
    wheels: Path | None = None
    started: float = field(default_factory=time.monotonic)
    until: float = field(default=float("inf"))
    output: str = ""
    details: dict[str, Any] = field(default_factory=dict)

    def __enter__(self) -> "Workplace":
        self.scratch = Path(tempfile.mkdtemp(prefix="gpu-check-"))
        self.site = (self.site_given or self.scratch / "site").resolve()
        self.log = (self.out / "gpu_check.log").open("ab", buffering=0)
        self.figures = self.out.resolve() / "figures.jsonl"
        self.figures.unlink(missing_ok=True)
        return self

    def __exit__(self, *error: object) -> None:
        self.log.close()
        shutil.rmtree(self.scratch, ignore_errors=True)

    @property
    def left(self) -> float:
        """Seconds until the whole run must have ended."""
        return self.started + self.budget - time.monotonic()

    @property
    def left_of_stage(self) -> float:
        """Seconds until the stage must have ended."""
        return self.until - time.monotonic()

    @property
    def is_installed(self) -> bool:
        return (self.site / "tensor_ops_cuda").is_dir()

    def in_turn(self, items: Sequence[Item]) -> Iterator[Item]:
        """Yield items one after another, each with an equal share of what is left of the time."""
        end = self.until
        for number, item in enumerate(items):
            now = time.monotonic()
            self.until = now + (end - now) / (len(items) - number)
            yield item

    def python(self, *words: str | Path, **environment: str) -> Done:
        """Run this interpreter on what is installed in the site."""
        return self.run([sys.executable, *map(str, words)], **environment)

    def run(self, words: Sequence[str], **environment: str) -> Done:
        """Run a program until it ends or the stage's time is up, all of its children with it."""
        paths = os.pathsep.join(filter(None, [str(self.site), os.environ.get("PYTHONPATH")]))
        variables = os.environ | {"PYTHONPATH": paths, "PYTHONUNBUFFERED": "1"} | environment
        self.log.write(f"$ {' '.join(words)}\n".encode())
        began, start = time.monotonic(), self.log.tell()
        process: subprocess.Popen[bytes] | None = None
        try:  # an interrupt may come as soon as the program has started
            process = subprocess.Popen(
                words,
                cwd=self.root,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=self.log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            status: int | None = process.wait(max(1.0, self.until - began))
        except subprocess.TimeoutExpired:
            status = None
            if process:
                _interrupt(process)
        finally:
            if process:
                _end(process)
            output = Path(self.log.name).read_bytes()[start:].decode(errors="replace")
            self.output += output
        return Done(status, output, time.monotonic() - began)


def run_stages(stages: Sequence[Stage], place: Workplace, record: Record) -> None:
    """Run stages one after another, and keep what each of them found."""
    missing = None
    for number, stage in enumerate(stages):
        print(f"{stage.name}: {stage.summary}", file=sys.stderr, flush=True)
        needed = sum(later.limit for later in stages[number:])
        share = stage.limit * max(1.0, place.left / needed)
        result = _result(stage, place, min(share, place.left), missing)
        record.add(stage.name, result)
        if stage.is_vital and result["status"] != "passed":
            missing = missing or f"{stage.name} has not passed"
    record.content["complete"] = True
    record.content["seconds"] += round(time.monotonic() - place.started)
    record.write()


def _result(stage: Stage, place: Workplace, seconds: float, missing: str | None) -> dict[str, Any]:
    began = time.monotonic()
    place.until, place.output, place.details = began + seconds, "", {}
    status, reason = "passed", None
    try:
        if seconds < SHORTEST:
            raise SkippedError("no time was left for it")
        if missing:
            raise SkippedError(missing)
        place.details |= stage.do(place)
    except SkippedError as error:
        status, reason = "skipped", str(error)
    except FailedError as error:
        status, reason = "failed", str(error)
    except KeyboardInterrupt:
        status, reason, place.budget = "failed", "interrupted", 0.0
    except Exception as error:  # a fault of the stage must not take the others along
        status, reason = "failed", f"{type(error).__name__}: {error}"
        place.output += traceback.format_exc()
    took = round(time.monotonic() - began, 1)
    result = {"status": status, "seconds": took, "details": place.details}
    if reason:
        result["reason"] = without_paths(reason)
    if status == "failed":
        result["output"] = without_paths(place.output[-TAIL:])
    return result | {"figures": figures_of(place)}


def figures_of(place: Workplace) -> list[dict[str, Any]]:
    """Return, and forget, what programs of this stage have left as lines of JSON."""
    if not place.figures.exists():
        return []
    text = place.figures.read_text(encoding="utf-8")
    place.figures.unlink()
    return json_lines(text)


def json_lines(text: str) -> list[dict[str, Any]]:
    """Return the objects of lines of JSON, among others, up to one that is not whole."""
    found = []
    for line in text.splitlines():
        if not line.startswith("{"):
            continue
        try:
            found.append(json.loads(line))
        except ValueError:
            break  # written when the time was up
    return found


def without_paths(text: str) -> str:
    """Return a message without the folders of this machine."""
    return re.sub(r"(?:/[\w.+-]+){2,}/", ".../", text)


def _interrupt(process: "subprocess.Popen[bytes]") -> None:
    """Interrupt a process and its children, as Ctrl-C does: pytest then says what has failed."""
    with suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(process.pid, signal.SIGINT)
        process.wait(GRACE)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a process and whatever it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
