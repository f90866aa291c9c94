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
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu_checks.record import Record

__all__ = ["Done", "FailedError", "SkippedError", "Stage", "Workplace", "run_stages"]

# What is kept of the output of a stage that fails.
TAIL = 4000
# Less than this is no time to start anything in.
SHORTEST = 5.0


class SkippedError(Exception):
    """What a stage needs is not on this machine."""


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

    `do` returns details to keep, or raises one of the errors above. It has at most `limit` seconds;
    `reserve` of them are kept for it by the stages before.
    """

    name: str
    summary: str
    do: Callable[["Workplace"], dict[str, Any]]
    limit: int
    reserve: int = 0
    needs_install: bool = True


@dataclass
class Workplace(AbstractContextManager["Workplace"]):
    """The checkout, a folder to install into, a log, and a clock."""

    root: Path
    out: Path
    budget: float
    emulate: bool = False
    site_given: Path | None = None
    started: float = field(default_factory=time.monotonic)
    until: float = field(default=float("inf"))
    output: str = ""

    def __enter__(self) -> "Workplace":
        self.scratch = Path(tempfile.mkdtemp(prefix="gpu-check-"))
        self.site = (self.site_given or self.scratch / "site").resolve()
        self.log = (self.out / "gpu_check.log").open("w", encoding="utf-8")
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

    def python(self, *words: str | Path, **environment: str) -> Done:
        """Run this interpreter on what is installed in the site."""
        return self.run([sys.executable, *map(str, words)], **environment)

    def run(self, words: Sequence[str], **environment: str) -> Done:
        """Run a program until it ends or the stage's time is up, all of its children with it."""
        paths = os.pathsep.join(filter(None, [str(self.site), os.environ.get("PYTHONPATH")]))
        variables = os.environ | {"PYTHONPATH": paths, "PYTHONUNBUFFERED": "1"} | environment
        began = time.monotonic()
        with tempfile.NamedTemporaryFile(dir=self.scratch) as file:
            process = subprocess.Popen(
                words,
                cwd=self.root,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                status: int | None = process.wait(max(1.0, self.until - began))
            except subprocess.TimeoutExpired:
                status = None
            finally:
                _end(process)
            file.seek(0)
            output = file.read().decode(errors="replace")
        self.output += output
        print(f"$ {' '.join(words)}\n{output}", file=self.log, flush=True)
        return Done(status, output, time.monotonic() - began)


def run_stages(stages: Sequence[Stage], place: Workplace, record: Record) -> None:
    """Run stages one after another, and keep what each of them found."""
    for number, stage in enumerate(stages):
        kept = sum(later.reserve for later in stages[number + 1 :])
        print(f"{stage.name}: {stage.summary}", file=sys.stderr, flush=True)
        record.add(stage.name, _result(stage, place, min(stage.limit, place.left - kept)))
    record.content["complete"] = True
    record.content["seconds"] = round(time.monotonic() - place.started)
    record.write()


def _result(stage: Stage, place: Workplace, seconds: float) -> dict[str, Any]:
    began = time.monotonic()
    place.until, place.output = began + seconds, ""
    status, reason = "passed", None
    details: dict[str, Any] = {}
    try:
        if seconds < SHORTEST:
            raise SkippedError("no time was left for it")
        if stage.needs_install and not place.is_installed:
            raise SkippedError("tensor_ops_cuda could not be installed")
        details = stage.do(place)
    except SkippedError as error:
        status, reason = "skipped", str(error)
    except FailedError as error:
        status, reason = "failed", str(error)
    except Exception as error:  # a fault of the stage must not take the others along
        status, reason = "failed", f"{type(error).__name__}: {error}"
        place.output += traceback.format_exc()
    figures = figures_of(place)
    result = {"status": status, "seconds": round(time.monotonic() - began, 1), "details": details}
    if reason:
        result["reason"] = without_paths(reason)
    if status == "failed":
        result["output"] = without_paths(place.output[-TAIL:])
    return result | {"figures": figures}


def figures_of(place: Workplace) -> list[dict[str, Any]]:
    """Return, and forget, what programs of this stage have left as lines of JSON."""
    path = place.scratch / "figures.jsonl"
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    path.unlink()
    found = []
    for line in lines:
        try:
            found.append(json.loads(line))
        except ValueError:
            break  # written when the time was up
    return found


def without_paths(text: str) -> str:
    """Return a message without the folders of this machine."""
    return re.sub(r"(?:/[\w.+-]+){2,}/", ".../", text)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a process and whatever it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
