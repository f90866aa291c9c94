"""The images of docker/Dockerfile: its steps in a chroot, or by an engine for containers."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from dockerfile import PATH, stages
from interpreters import HERE, run

__all__ = ["Chroot", "Engine"]

STAGES = stages()
# Runs a command in a private mount namespace, where a layer lies above this system. What it writes
# is in the layer, or is an error where that is mounted for reading only.
IN_CHROOT = """
root=$1 options=$2 wheels=$3; shift 3
mount -t overlay overlay -o "$options" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
[ -z "$wheels" ] || mount --bind "$wheels" "$root/wheels"
exec chroot "$@"
"""


@dataclass
class Chroot:
    """Images as layers above the system that the tests run on, in place of a base image."""

    folder: Path
    python: str
    wheels: Path

    def why_not(self):
        """Return why it cannot be used here, None if it can."""
        if sys.platform != "linux" or os.geteuid() != 0:
            return "a chroot of its own needs root on Linux"
        if any(shutil.which(name) is None for name in ("unshare", "chroot", "useradd")):
            return "unshare, chroot or useradd is missing"
        done = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
        return None if done.returncode == 0 else "mount namespaces are not allowed here"

    def build(self, image):
        """Run the instructions of an image's stages, word for word."""
        packages, layer = self._layer(f"{image}-packages"), self._layer(image)
        for stage in ("packages", f"{image}-packages"):
            for step in STAGES[stage].all("RUN"):
                self._build_step(packages, step, {"PIP_NO_INDEX": "1"})
        for step in STAGES["runtime"].all("RUN"):
            self._build_step(layer, step, {})
        (copied,) = STAGES[image].all("COPY")
        _, source, target = copied.split()
        target = layer / target.lstrip("/")
        target.parent.mkdir(parents=True)
        shutil.copytree(packages / source.lstrip("/"), target, symlinks=True)
        (workdir,) = STAGES["runtime"].all("WORKDIR")
        made = layer / workdir.lstrip("/")
        made.mkdir()
        # An image's folder is empty, whatever this system has there.
        os.setxattr(made, "trusted.overlay.opaque", b"y")

    def run(self, image, *words, status=0):
        """Run a command as in a container of the image that cannot write to its root."""
        layer = self.folder / image
        (user,) = STAGES[image].all("USER")
        variables = STAGES["runtime"].variables() | STAGES[image].variables()
        path = variables["PATH"].replace("$PATH", "/usr/local/bin:/usr/bin:/bin")
        given = [f"{name}={value}" for name, value in (variables | {"PATH": path}).items()]
        command = [f"--userspec={user}:{user}", "ROOT", "env", "-i", "-C", "/work", *given, *words]
        return self._chroot(layer, command, mode="ro", status=status)

    def size(self, image):
        """Return the bytes that an image adds to its base."""
        files = [path for path in (self.folder / image).rglob("*") if path.is_file()]
        return sum(path.stat().st_size for path in files if not path.is_symlink())

    def _layer(self, name):
        layer = self.folder / name
        for place in ("usr/local/bin", "wheels"):
            (layer / place).mkdir(parents=True)
        # Where Python's image has it; not that of an environment, which may be hidden.
        (layer / "usr/local/bin/python").symlink_to(Path(self.python).resolve())
        return layer

    def _build_step(self, layer, step, variables):
        given = [f"{name}={value}" for name, value in variables.items()]
        path = "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        command = ["ROOT", "env", "-i", path, *given, "sh", "-euc", step]
        self._chroot(layer, command, wheels=self.wheels)

    def _chroot(self, layer, command, mode="rw", wheels="", status=0):
        root, work = self.folder / "root", self.folder / "work"
        root.mkdir(exist_ok=True)
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        options = f"{mode},lowerdir=/,upperdir={layer},workdir={work}"
        words = [str(root) if word == "ROOT" else word for word in command]
        isolated = ["unshare", "--mount", "--pid", "--fork", "bash", "-euc", IN_CHROOT, "bash"]
        return run(*isolated, root, options, wheels, *words, status=status)


@dataclass
class Engine:
    """Images of Docker or Podman, on the base that the variable PYTHON_IMAGE names."""

    program: str
    folder: Path
    wheels: Path

    def why_not(self):
        """Return why it cannot be used here, None if it can."""
        if shutil.which(self.program) is None:
            return f"there is no {self.program} here"
        done = subprocess.run([self.program, "info"], capture_output=True, text=True, check=False)
        *_, last = ["", *(done.stdout + done.stderr).splitlines()]
        return None if done.returncode == 0 else f"{self.program}: {last}"

    @property
    def base(self):
        return os.environ.get("PYTHON_IMAGE", f"python:{HERE}-slim-bookworm")

    def build(self, image):
        """Build an image without network."""
        context = self.folder / "context"
        if not context.exists():
            shutil.copytree(self.wheels, context / "dist")
            shutil.copytree(PATH.parent, context / "docker")
        words = [f"--build-arg=PYTHON_IMAGE={self.base}", "--build-arg=PIP_NO_INDEX=1"]
        words += ["--network=none", f"--target={image}", f"--tag={self._tag(image)}"]
        # Images of the OCI have no health checks.
        words += ["--format=docker"] if self.program == "podman" else []
        file = f"--file={context / 'docker' / 'Dockerfile'}"
        run(self.program, "build", *words, file, context)

    def run(self, image, *words, status=0):
        """Run a command in a container that cannot write to its root and has no capability."""
        options = ["--rm", "--read-only", "--network=none", "--cap-drop=ALL"]
        # Tests run the command of the health check themselves.
        options += ["--security-opt=no-new-privileges", "--no-healthcheck"]
        return run(self.program, "run", *options, self._tag(image), *words, status=status)

    def size(self, image):
        """Return the bytes that an image adds to its base."""
        ask = (self.program, "image", "inspect", "--format={{.Size}}")
        return int(run(*ask, self._tag(image))) - int(run(*ask, self.base))

    def _tag(self, image):
        return f"tensor-ops-tested:{image}"
