"""Globs and the channels in them, beside the plain definition of a glob."""

import fnmatch
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from headgate.delivery.bus.globs import SourceCounts, covers, matcher, split
from tests.support.steps import steps_during

PREFIX = b"hg:{n}:"
# Few letters, so that starts, ends and middles meet.
texts = st.text(alphabet="ab.", min_size=1, max_size=6).map(lambda text: PREFIX + text.encode())
globs = st.text(alphabet="ab.*", max_size=6).map(lambda text: PREFIX + text.encode() + b"*") | st.text(
    alphabet="ab.*", max_size=6
).map(lambda text: PREFIX + b"*" + text.encode())


def lies_in(name: bytes, glob: bytes) -> bool:
    """Whether Redis would send a message on this channel through the glob."""
    return fnmatch.fnmatchcase(name.decode(), glob.decode())


@given(st.lists(globs, max_size=20), st.one_of(texts, globs))
def test_globs_cover_what_lies_in_one_of_them(listed: list[bytes], name: bytes) -> None:
    """Names, and globs as they stand. A `*` in the name counts as a byte like any other, which only a `*` matches."""
    assert covers(map(split, listed), name) == any(lies_in(name, glob) for glob in listed)


@given(st.lists(st.tuples(st.booleans(), texts), max_size=40), globs)
def test_the_channels_in_a_glob_are_found_each_once(steps: list[tuple[bool, bytes]], glob: bytes) -> None:
    """However short they are, and however often each is counted."""
    channels, model = SourceCounts(len(PREFIX)), Counter[bytes]()
    for add, name in steps:
        source = (b"subscribe", name)
        if add:
            assert channels.add(source) == (not model[name])
            model[name] += 1
        elif model[name]:
            model[name] -= 1
            assert channels.remove(source) == (not model[name])
        assert (source in channels) == (model[name] > 0)
    there = sorted(name for name in model if model[name])
    assert channels.count == len(there)
    assert sorted(name for _, name in channels) == there
    assert sorted(name for _, name in channels.inside(glob)) == [name for name in there if lies_in(name, glob)]
    channels.clear()
    assert not channels.count
    assert not list(channels)


def test_a_glob_is_held_against_few_of_many_channels() -> None:
    """A look at each of 20,000 would stop the loop for tens of milliseconds."""
    channels = SourceCounts(len(PREFIX))
    for number in range(20_000):
        channels.add((b"subscribe", PREFIX + b"orders.%d" % number))
    for glob in (b"bills.*", b"*paid", b"*.paid", b"orders.*.paid", b"orderly.*.1x"):
        matcher(PREFIX + glob)  # made once for each glob
        assert steps_during(lambda glob=glob: list(channels.inside(PREFIX + glob))) < 400  # type: ignore[misc]
    assert len(list(channels.inside(PREFIX + b"orders.*"))) == 20_000
