"""A Dockerfile as its stages and their instructions, for tests without Docker."""

import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["PATH", "Stage", "stages"]

PATH = Path(__file__).parents[2] / "docker" / "Dockerfile"


@dataclass
class Stage:
    """Additions of a stage to the one that it builds on."""

    name: str
    base: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def all(self, keyword):
        """Return what follows each use of an instruction."""
        return [rest for word, rest in self.instructions if word == keyword]

    def variables(self):
        """Return what ENV sets."""
        pairs = [pair for rest in self.all("ENV") for pair in shlex.split(rest)]
        return dict(pair.split("=", 1) for pair in pairs)

    def health_check(self):
        """Return the words of the command that HEALTHCHECK runs."""
        (rest,) = self.all("HEALTHCHECK")
        return json.loads(rest.partition("CMD ")[2])


def stages():
    """Return the stages of the Dockerfile by name, in order."""
    text = PATH.read_text(encoding="utf-8").replace("\\\n", " ")
    found = {}
    for line in text.splitlines():
        word, _, rest = line.strip().partition(" ")
        if not word or word.startswith("#"):
            continue
        if word == "FROM":
            base, name = re.fullmatch(r"(\S+) AS (\S+)", rest.strip()).groups()
            current = found[name] = Stage(name, base)
        elif found:
            current.instructions.append((word, rest.strip()))
    return found
