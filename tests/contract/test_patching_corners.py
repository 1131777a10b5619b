"""gevent asks for its plugins by the function that headgate.runtime.patching answers from one search."""

import subprocess
import sys

PROGRAM = """
from importlib import metadata
from gevent import monkey
from headgate.runtime.patching import plugins_loaded_once

searched = []
asked, search = metadata.entry_points, metadata.Distribution.discover
metadata.Distribution.discover = classmethod(lambda cls, **wanted: searched.append(wanted) or search(**wanted))
with plugins_loaded_once():
    monkey.patch_all()
print(len(searched), monkey.is_module_patched("socket"), metadata.entry_points is asked)
"""


def test_the_packages_are_searched_once_for_all_of_gevents_plugins() -> None:
    """And everything is as before afterwards, but for the sockets, which are cooperative."""
    outcome = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert outcome.stdout.split() == ["1", "True", "True"]


def test_who_asks_for_a_group_gets_the_plugins_of_this_group() -> None:
    from importlib import metadata

    from headgate.runtime.patching import plugins_loaded_once

    expected = metadata.entry_points(group="console_scripts")
    with plugins_loaded_once():
        assert set(metadata.entry_points(group="console_scripts")) == set(expected)
        assert not metadata.entry_points(group="gevent.plugins.monkey.nothing")
