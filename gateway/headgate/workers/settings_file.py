"""SettingsFile: the configuration file of a process that serves, which it reads again on SIGHUP.

In: the path, and the process' environment, which wins over it. Out: the environment with the settings of the file in it, as
applications and workers read it. A file that is wrong changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

from headgate.consumers.process.config import find_file, read_settings
from headgate.runtime.operator_lines import say
from headgate.settings import PREFIX, Settings, environment, service_links_ignored

# Tells, in an environment, which names a file has put there; processes that are started from there inherit it.
_OF_FILE = "_HEADGATE_OF_FILE"


class SettingsFile:
    """See the module. `path` None: there is no file."""

    def __init__(self, path: str | None) -> None:
        self.path = path

    @classmethod
    def found(cls, config: str | None) -> SettingsFile:
        """Return the file that is named, else the one of HEADGATE_CONFIG, else headgate.toml where it is in this folder.

        A process calls it once, at its start: the operator reads here which variables are no settings.
        """
        if (line := service_links_ignored(environment())) is not None:
            say(line)
        return cls(find_file(config))

    def read(self, environ: Mapping[str, str], beside: Mapping[str, object] | None = None) -> dict[str, str]:
        """Return the HEADGATE_ variables, with those of the file; `beside` are an application's, over which all of these win.

        Raises:
            SettingsError: with every fault of the file, or of all together.
        """
        own = _own(environ)
        found = own if self.path is None else read_settings(self.path, own)
        Settings.read(beside or {}, found)
        return found

    def put(self, found: Mapping[str, str], environ: MutableMapping[str, str]) -> None:
        """Put what `read` has returned into an environment, and take out what an earlier file had put there."""
        own = _own(environ)
        for name in environ.get(_OF_FILE, "").split(","):
            environ.pop(name, None)
        environ.update(found)
        environ[_OF_FILE] = ",".join(name for name in found if own.get(name) != found[name])


def _own(environ: Mapping[str, str]) -> dict[str, str]:
    of_file = environ.get(_OF_FILE, "").split(",")
    return {name: value for name, value in environ.items() if name.startswith(PREFIX) and name not in of_file}
