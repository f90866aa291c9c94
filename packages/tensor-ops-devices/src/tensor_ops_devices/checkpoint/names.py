"""Names of parameters, without what wrappers of a model put before them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor, nn

from tensor_ops_devices.checkpoint.shared import memory_of

__all__ = ["ModelNames"]

# The child of torch.compile's wrapper, and that of the data parallel ones.
_COMPILED, _PARALLEL = "_orig_mod", "module"


class ModelNames:
    """The names of the state dict of a model, and those that files may have for them.

    ``torch.compile`` puts ``_orig_mod.`` before the names of what it has wrapped, and data parallel
    wrappers ``module.``, wherever in the model they are. A name without them is a plain one.

    Examples
    --------
    >>> from torch import nn
    >>> names = ModelNames(nn.Sequential(nn.DataParallel(nn.Linear(2, 2))))
    >>> names.plain("0.module.weight")
    '0.weight'
    >>> list(names.of_the_model({"module.0._orig_mod.weight": 1, "module.0._orig_mod.bias": 2}))
    ['0.module.weight', '0.module.bias']
    """

    def __init__(self, model: nn.Module) -> None:
        self._modules = []
        self._wrapped = set()
        for name, module in model.named_modules(remove_duplicate=False):
            self._modules.append(name)
            if name.rpartition(".")[2] == _COMPILED:
                self._wrapped.add(name)
            if isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
                self._wrapped.add(f"{name}.{_PARALLEL}".removeprefix("."))
        state = model.state_dict(keep_vars=True)
        self._own = {self.plain(key): key for key in state}
        # They are those of parameters and modules; a child may itself be called "module".
        self._bare: dict[str, list[str]] = {}
        for name in {*self._own, *map(self.plain, self._modules)}:
            self._bare.setdefault(_without_any(name), []).append(name)
        first: dict[Any, str] = {}
        # For each plain name of a tensor, the first one that the same tensor has.
        self.first_names = {
            self.plain(key): first.setdefault(memory_of(value), self.plain(key))
            for key, value in state.items()
            if isinstance(value, Tensor)
        }

    def plain(self, key: str) -> str:
        """Return the plain name for a name of the model, or of one of its modules."""
        parts = key.split(".")
        kept = (
            each
            for place, each in enumerate(parts)
            if ".".join(parts[: place + 1]) not in self._wrapped
        )
        return ".".join(kept)

    def of_the_model(self, state: Mapping[str, Any]) -> OrderedDict[str, Any]:
        """Return a state dict with the names of the model.

        Of the ways in which wrappers may have changed the names in it, the one is taken that leaves
        the fewest names missing or unexpected. A tensor that the model has under several names may
        be there under any of them.
        """
        rename = min(self._ways(state), key=lambda each: self._distance(map(each, state)))
        plain = {rename(key): value for key, value in state.items()}
        found = OrderedDict((self._own.get(key, key), value) for key, value in plain.items())
        there = {self.first_names[key]: plain[key] for key in plain if key in self.first_names}
        for key, first in self.first_names.items():
            if key not in plain and first in there:
                found[self._own[key]] = there[first]
        # The versions of the modules, by their names; a wrapper takes that of what it has wrapped.
        versions = {rename(key): value for key, value in getattr(state, "_metadata", {}).items()}
        found._metadata = OrderedDict(  # type: ignore[attr-defined]
            (name, versions[self.plain(name)])
            for name in self._modules
            if self.plain(name) in versions
        )
        return found

    def _ways(self, state: Mapping[str, Any]) -> list[Callable[[str], str]]:
        """Return the ways to make names plain that keep all of them apart, the mildest first."""
        ways: list[Callable[[str], str]]
        ways = [str, self.plain, _without_compiled, _without_leading, self._only_match]
        return [each for each in ways if len({each(key) for key in state}) == len(state)]

    def _only_match(self, key: str) -> str:
        """Return the plain name that differs in wrappers only, where there is exactly one."""
        bare = _without_any(key)
        found = self._bare.get(bare, [bare])
        return found[0] if len(found) == 1 else _without_leading(key)

    def _distance(self, plain: Iterable[str]) -> int:
        """Return how many names the model lacks or has alone; names of one tensor are one."""
        found = set(plain)
        there = {self.first_names.get(key, key) for key in found & self._own.keys()}
        wanted = {self.first_names.get(key, key) for key in self._own}
        return len(found - self._own.keys()) + len(wanted - there)


def _without_compiled(key: str) -> str:
    return ".".join(each for each in key.split(".") if each != _COMPILED)


def _without_leading(key: str) -> str:
    return _without_compiled(key).removeprefix(f"{_PARALLEL}.")


def _without_any(key: str) -> str:
    return ".".join(each for each in key.split(".") if each not in (_COMPILED, _PARALLEL))
