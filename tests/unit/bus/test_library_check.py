"""The library check: the first function library is a fault, and the next connection tells the gap."""

from __future__ import annotations

from headgate.delivery.bus.library_check import BY_USER_LIBRARY, LibraryCheck
from headgate.redis.entries import Head

OLD, NEW = Head("epoch", 9, 1, BY_USER_LIBRARY - 1), Head("epoch", 9, 1, BY_USER_LIBRARY)


def test_only_a_library_without_channels_of_users_is_a_fault() -> None:
    """Any later one publishes on them, perhaps on others as well."""
    check = LibraryCheck()
    assert check.fault_of(NEW) is None
    assert check.gap_start(9) is None
    assert check.fault_of(OLD) is not None


def test_the_gap_begins_above_the_verified_offset_and_is_told_once() -> None:
    """Everything up to the verified offset was published on all channels."""
    check = LibraryCheck()
    check.verified = 4
    check.fault_of(OLD)
    assert check.gap_start(9) == 5
    assert check.gap_start(9) == 5  # until it has been told
    check.gap_reported(9)
    assert (check.gap_start(9), check.verified) == (None, 9)


def test_there_is_no_gap_when_everything_is_verified() -> None:
    """The older library has answered, and the position has not moved since the last fence."""
    check = LibraryCheck()
    check.verified = 9
    check.fault_of(OLD)
    assert check.gap_start(9) is None
    check.gap_reported(9)
    assert check.verified == 9


def test_a_connection_without_an_older_library_verifies_nothing() -> None:
    """Only a fence, or the end of a told gap, moves the verified offset."""
    check = LibraryCheck()
    check.verified = 4
    check.gap_reported(9)
    check.fault_of(OLD)
    assert check.gap_start(9) == 5


def test_the_verified_offset_goes_back_with_the_log_and_never_up() -> None:
    """Offsets above the end of the line are published anew."""
    check = LibraryCheck()
    check.verified = 7
    check.roll_back(5)
    check.roll_back(6)
    assert check.verified == 5
