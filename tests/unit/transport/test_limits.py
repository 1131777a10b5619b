"""The limits of a session are the settings of the same names."""

from __future__ import annotations

from dataclasses import fields

from headgate.settings.settings import DEFAULTS
from headgate.transport.limits import TransportLimits


def test_every_limit_has_the_default_of_its_setting() -> None:
    """One limit is no setting: the largest message is the gateway's payload limit, and Engine.IO's for an application."""
    limits = TransportLimits()
    names = {field.name for field in fields(limits)} - {"max_message_bytes"}

    assert {name: getattr(limits, name) for name in names} == {name: getattr(DEFAULTS, name) for name in names}
    assert limits.max_message_bytes == 1_000_000
