"""The configuration file of a serving process, read again on SIGHUP.

Its settings go into the environment, where applications and workers read them. Variables already set win. An invalid file
changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

from headgate.runtime.operator_lines import say
from headgate.settings.file import find_file, read_settings
from headgate.settings.settings import PREFIX, Settings, environment, service_links_ignored

# A variable that lists the names set by the file. Child processes inherit it.
_OF_FILE = "_HEADGATE_OF_FILE"


class SettingsFile:
    """See the module. `path` is None without a file."""

    def __init__(self, path: str | None) -> None:
        self.path = path

    @classmethod
    def of_config(cls, config: str | None) -> SettingsFile:
        """Return the named file, else the file of HEADGATE_CONFIG, else ./headgate.toml.

        Call it once, at the start of a process, because it also reports variables that are not settings.
        """
        if (line := service_links_ignored(environment())) is not None:
            say(line)
        return cls(find_file(config))

    def read(self, environ: Mapping[str, str], beside: Mapping[str, object] | None = None) -> dict[str, str]:
        """Return the HEADGATE_ variables of the environment and the file. They win over `beside`, an application's settings.

        Raises SettingsError with every fault.
        """
        own = _own(environ)
        values = own if self.path is None else read_settings(self.path, own)
        Settings.read(beside or {}, values)
        return values

    def put(self, values: Mapping[str, str], environ: MutableMapping[str, str]) -> None:
        """Put the result of `read` into an environment, in place of an earlier result."""
        own = _own(environ)
        for name in environ.get(_OF_FILE, "").split(","):
            environ.pop(name, None)
        environ.update(values)
        environ[_OF_FILE] = ",".join(name for name in values if own.get(name) != values[name])


def _own(environ: Mapping[str, str]) -> dict[str, str]:
    of_file = environ.get(_OF_FILE, "").split(",")
    return {name: value for name, value in environ.items() if name.startswith(PREFIX) and name not in of_file}
