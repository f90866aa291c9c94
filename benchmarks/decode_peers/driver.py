"""Measuring: in each round all cases, in each case all engines, one after another."""

import contextlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from comparison.record import Elsewhere
from decode_peers import models
from decode_peers.cases import CASES, ENGINES, START_ROOM, Case, Engine, Model, Room, steps, turns
from decode_peers.kinds import kind_of
from decode_peers.process import EngineProcess
from decode_peers.record import Record

__all__ = ["Places", "kind_here", "measure"]


@dataclass(frozen=True)
class Places:
    """Where things are: the files of models, and the interpreters that have engines' libraries."""

    folder: Path
    pythons: Mapping[str, str]

    def python(self, engine: Engine) -> str:
        """Return the interpreter of an engine."""
        return self.pythons.get(engine.module, sys.executable)

    def file(self, model: Model, engine: Engine) -> Path:
        """Return what an engine opens: the model's file, or what is made of it for the engine."""
        path = models.file_of(model, self.folder)
        if engine.module != "onnxruntime_genai":
            return path
        return models.export_of(path, self.folder, self.python(engine))


def kind_here() -> str:
    """Return the kind of this processor, whatever a limit in the environment says.

    Other engines do not obey that limit, so that a record made under it would compare two kinds.
    """
    import tensor_ops_cpp
    from tensor_ops import machine

    info = tensor_ops_cpp.get_optimization_info()
    levels = [level for level in info["cpu_levels"] if level in info["compiled_levels"]]
    return kind_of(levels, has_tiles="amx_tile" in machine.facts()["simd"])


def measure(
    model: Model, cases: tuple[str, ...], rounds: int, record: Record, places: Places
) -> None:
    """Measure a model into a record, which is written after each round."""
    path = models.file_of(model, places.folder)
    _read(path)
    record.add_model(model, models.traffic(path))
    elsewhere = Elsewhere()
    wanted = list(turns(model, cases))
    with contextlib.ExitStack() as stack:
        running = [(case, engines) for case, engines in wanted if case.kind != "start"]
        names = dict.fromkeys(engine.name for _, engines in running for engine in engines)
        room = _room([case for case, _ in running])
        processes = {}
        for name in names:
            process = stack.enter_context(_process(ENGINES[name], places))
            if _open(process, places, room, record, model):
                processes[name] = process
        for number in range(min(rounds, model.most_rounds)):
            for case, engines in wanted:
                print(f"{model.name}, {case.name}: round {number + 1}", file=sys.stderr)
                for engine in engines[:: -1 if number % 2 else 1]:
                    if case.kind == "start":
                        _start(engine, places, record, model, case)
                    elif engine.name in processes:
                        _take_turn(processes[engine.name], record, model, case)
            record.write()
    record.add_elsewhere(model, elsewhere.cores())
    record.write()


def _process(engine: Engine, places: Places) -> EngineProcess:
    return EngineProcess(engine, places.python(engine))


def _room(cases: Sequence[Case]) -> Room:
    """Return what all of the cases fit into."""
    return Room(
        sequences=max((case.sequences for case in cases), default=1),
        positions=max((case.length + max(case.new, 128) for case in cases), default=1024),
    )


def _open(
    process: EngineProcess, places: Places, room: Room, record: Record, model: Model
) -> dict[str, float] | None:
    """Load the library and open the model; None if one of them fails, which the record says."""
    answer = process.ask("load")
    if "failure" not in answer:
        record.add_engine(process.engine, answer["versions"])
        size = {"sequences": room.sequences, "positions": room.positions}
        try:
            path = places.file(model, process.engine)
        except subprocess.CalledProcessError as error:
            answer = {"failure": f"its export failed with exit status {error.returncode}"}
        else:
            answer = process.ask("open", model=str(path), **size)
    if "failure" in answer:
        record.add_missing(model, process.engine, answer["failure"])
        return None
    return answer


def _start(engine: Engine, places: Places, record: Record, model: Model, case: Case) -> None:
    """Open the model in a new process, unless the engine has done so often enough.

    Before the first time it is opened once more where the engine keeps a file of it.
    """
    done = record.rounds(model, case, engine)
    if record.is_missing(model, engine) or done == engine.most_starts:
        return
    if done == 0 and "cache" in engine.settings:
        with _process(engine, places) as process:
            _open(process, places, START_ROOM, record, model)
    with _process(engine, places) as process:
        answer = _open(process, places, START_ROOM, record, model)
    for name, value in (answer or {}).items():
        record.add(model, case, engine, name, value)


def _take_turn(process: EngineProcess, record: Record, model: Model, case: Case) -> None:
    """Ask for the seconds of a case; before the first time, once to warm up.

    An engine that has failed has no more turns, so that the rounds of all stay side by side.
    """
    engine = process.engine
    if record.has_failed(model, case, engine):
        return
    asked = {"decode": CASES["decode"]} if engine.name in case.after_decode else {}
    asked["seconds"] = case
    for _ in range(2 if record.rounds(model, case, engine) == 0 else 1):
        answers = {
            what: process.ask(each.kind, **_size(model, engine, each))
            for what, each in asked.items()
        }
    for answer in answers.values():
        if "failure" in answer:
            record.add_failure(model, case, engine, answer["failure"])
            return
    for what, answer in answers.items():
        record.add(model, case, engine, what, answer["seconds"])


def _size(model: Model, engine: Engine, case: Case) -> dict[str, int]:
    """Return what a process is asked about a case with."""
    if case.kind != "decode":
        return {"length": case.length, "sequences": case.sequences}
    new = steps(model, engine, case)
    return {"sequences": case.sequences, "context": case.length, "new": new}


def _read(path: Path) -> None:
    """Bring a file into the page cache."""
    with path.open("rb") as file:
        while file.read(1 << 24):
            pass
