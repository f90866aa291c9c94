"""A system whose programs are compiled and run here: what the file of ``--system`` says of it."""

import getpass
import json
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["System", "read_system"]

ROOT = Path(__file__).parents[2]
WARNINGS = ["-Wall", "-Wextra", "-Werror"]


@dataclass(frozen=True)
class System:
    """What the file of ``--system`` says."""

    name: str
    c: list[str]
    cxx: list[str]
    launcher: list[str] = field(default_factory=list)
    library: str = ""
    levels: list[str] = field(default_factory=list)
    examples: str = ""  # the folder of the programs of examples/cpp
    environment: dict[str, str] = field(default_factory=dict)
    # Folders of libraries that programs need, which Windows looks for beside a program.
    runtime: list[str] = field(default_factory=list)
    # Options with which a program is linked that starts threads, or loads libraries.
    linked: list[str] = field(default_factory=list)

    @property
    def is_windows(self):
        return self.name == "windows"

    def path(self, path):
        """Return a path of this machine as the system has it; Wine has our files on a drive."""
        return "Z:" + str(path).replace("/", "\\") if self.is_windows else str(path)

    def library_name(self, backend):
        return f"tensor_ops_{backend}.dll" if self.is_windows else f"libtensor_ops_{backend}.so"

    def settings(self, home):
        """Return the user's folder of settings; Wine says itself where it is."""
        if not self.is_windows:
            return home / ".config"
        users = Path(self.environment["WINEPREFIX"], "drive_c/users")
        return users / getpass.getuser() / "AppData/Local"

    def compile(self, source, program, *options):
        """Compile a program, or with ``-shared`` a library, and return its path."""
        source = Path(source)
        is_c = source.suffix == ".c"
        compiler, standard = (self.c, "gnu99") if is_c else (self.cxx, "c++17")
        command = [*compiler, f"-std={standard}", "-O1", *WARNINGS]
        command += ["-I", ROOT / "native/include", *options, source, "-o", program]
        done = subprocess.run(
            [*map(str, command), *self.linked], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        for folder in self.runtime:
            for library in Path(folder).glob("*.dll"):
                shutil.copy(library, Path(program).parent)
        return program

    def run(self, program, *words, text=None, check=True, **variables):
        """Run a program of the system with nothing of ours in its environment but its own."""
        done = subprocess.run(
            [*self.launcher, str(program), *map(str, words)],
            input=text,
            capture_output=True,
            encoding="utf-8",
            env={"PATH": os.defpath, "LC_ALL": "C.UTF-8", **self.environment, **variables},
            timeout=600,
            check=False,
        )
        if check:
            said = f"exit status {done.returncode}\n{done.stdout[-300:]}{done.stderr}"
            assert done.returncode == 0, said
        return done


def read_system(path):
    """Return the system that a file describes."""
    return System(**json.loads(Path(path).read_text(encoding="utf-8")))
