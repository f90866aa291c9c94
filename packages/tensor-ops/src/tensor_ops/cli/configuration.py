"""The configuration as it stands, broken or not, with where each setting comes from."""

from dataclasses import dataclass
from typing import Any

from tensor_ops import backends, config
from tensor_ops.backends.names import FASTEST
from tensor_ops.config import location, selection, state, tuning_table, variables
from tensor_ops.config.selection import BUILT_IN, ConfigLevel, Decision
from tensor_ops.errors import ConfigError

__all__ = ["Configuration"]


@dataclass(frozen=True)
class Configuration:
    """Settings that environment and file ask for."""

    # The default one where there is no valid file.
    file: config.Config
    environment: tuple[ConfigLevel, ...]
    # Reasons for which ``import tensor_ops`` fails.
    problems: tuple[str, ...]

    @classmethod
    def read(cls) -> "Configuration":
        """Read both; what is broken becomes a problem."""
        problems: list[str] = []
        file = config.Config()
        environment: tuple[ConfigLevel, ...] = ()
        try:
            if path := location.find():
                file = config.Config(path)
                file = config.load(path, backends.INSTALLED)
        except ConfigError as error:
            problems.append(str(error))
        try:
            environment = config.environment_levels(backends.INSTALLED)
        except ConfigError as error:
            problems.append(str(error))
        return cls(file, environment, tuple(problems))

    def decision(self) -> Decision | None:
        """Return which backends may run, None if the configuration is broken."""
        return None if self.problems else selection.decide(self._levels())

    def considered(self, default: tuple[str, ...]) -> tuple[str, ...]:
        """Return the backends that may be imported without being named."""
        decision = self.decision()
        return (*decision.candidates, *decision.priority) if decision else default

    def selection(self) -> dict[str, Any] | None:
        """Return what runs and the walk that finds it, None if the configuration is broken.

        Raises ConfigError if a setting of a backend's own is wrong.
        """
        decision = self.decision()
        if decision is None:
            return None
        choice = selection.choose_for(decision, backends.reason_against, backends.kind_of_device)
        return {
            "backend": choice.backend,
            "mode": decision.mode,
            "decided_by": decision.source,
            "steps": [step._asdict() for step in choice.steps],
            "times": _times(decision),
        }

    def as_dict(self) -> dict[str, Any]:
        """Return the three settings, each with the level it comes from."""
        settings = {
            "preferred_backend": self._setting("preferred"),
            "backend_priority": self._setting("priority"),
            "force_backend": self._setting("force"),
        }
        return {
            "file": None if self.file.path is None else str(self.file.path),
            "settings": settings,
            "unread_variables": variables.unread(),
            "problems": list(self.problems),
        }

    def _levels(self) -> list[ConfigLevel]:
        levels = state.ProcessSettings(None, self.environment, self.file).levels()
        return [*levels, BUILT_IN]

    def _setting(self, name: str) -> dict[str, Any]:
        levels = self._levels()
        setting = next((level for level in levels if getattr(level, name) is not None), BUILT_IN)
        value = getattr(setting, name)
        return {
            "value": list(value) if isinstance(value, tuple) else value,
            "source": setting.source,
            "overridden_by": self._overriding(name, setting),
        }

    def _overriding(self, name: str, setting: ConfigLevel) -> str | None:
        """Return the level that decides instead; only a force leaves no use for a priority."""
        decision = self.decision()
        if decision is None or (name == "priority" and setting.wanted is not None):
            return None
        if setting.source in decision.overridden:
            return decision.source
        if name == "priority":
            return None
        sources = [level.source for level in self._levels()]
        stronger = sources.index(decision.source) < sources.index(setting.source)
        return decision.source if stronger and setting is not BUILT_IN else None


def _times(decision: Decision) -> str | None:
    """Return what is known of the times that the fastest backend is chosen by, if it is to be."""
    if decision.mode != FASTEST:
        return None
    found = tuning_table.use(decision.candidates)
    count = len(found.table.entries) if found.table else 0
    return found.reason or f"for each call, the fastest of {count} measurements runs"
