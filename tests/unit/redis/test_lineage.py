"""The lineage of a log: the positions on the line that leads to its head."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from headgate.redis.lineage import MAX_LOST, read_lineage


@given(st.lists(st.integers(min_value=0, max_value=5), min_size=1, max_size=12), st.randoms())
def test_an_event_is_on_the_line_exactly_while_its_epoch_lasts(lengths: list[int], random: object) -> None:
    """Against a list of the writers. A position is on the line if that epoch has the line's event there, or leads to it."""
    written = [number for number, length in enumerate(lengths) for _ in range(length)]
    firsts = [sum(lengths[:number]) + 1 for number in range(len(lengths))]
    epochs = [(str(number), first, number) for number, first in enumerate(firsts)]
    random.shuffle(epochs)  # type: ignore[attr-defined]

    lineage = read_lineage(str(len(lengths) - 1), epochs)

    for number in range(len(lengths)):
        end = max((offset for offset, epoch in enumerate(written, 1) if epoch <= number), default=0)
        assert lineage.end_of(str(number), len(written)) == end
    assert [lineage.epoch_at(offset) for offset in range(1, len(written) + 1)] == list(map(str, written))


def test_of_many_epochs_that_are_lost_at_once_the_newest_are_remembered() -> None:
    """Most clients come from those."""
    many = 3 * MAX_LOST
    before = read_lineage(f"e{many}", [(f"e{number}", 10 * number + 1, number) for number in range(many + 1)])
    after = read_lineage("f", [("e0", 1, 0), ("f", 6, 1)]).following(before)

    newest = [f"e{number}" for number in range(many - MAX_LOST + 1, many + 1)]
    assert [after.end_of(epoch, 100) for epoch in newest] == [5] * MAX_LOST
    assert after.end_of("e1", 100) is None


def test_few_lost_epochs_are_remembered() -> None:
    """A gateway with a Redis that is put back again and again keeps the newest of the lost ones."""
    line = read_lineage("0", [("a", 1, 0), ("0", 5, 1)])
    for number in range(1, 200):
        line = read_lineage(str(number), [("a", 1, 0), (str(number), 5, 1)]).following(line)

    assert len(line.lost) == 64
    assert line.end_of("198", 9) == 4
    assert line.end_of("1", 9) is None


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 5), st.integers(0, 4)), min_size=1, max_size=8))
def test_two_lines_part_where_their_events_differ(steps: list[tuple[int, int, int]]) -> None:
    """Against the events themselves. Each epoch takes an earlier one over, without some of its end, and writes some events."""
    epochs: list[list[tuple[str, int, int]]] = [[("0", 1, 0)]]
    lines: list[list[str]] = [["a0"]]
    for number, (from_, lost, written) in enumerate(steps, 1):
        from_ %= len(lines)
        # At most the events of the epoch itself, because a browser that loses more takes an earlier one over.
        kept = max(len(lines[from_]) - lost, epochs[from_][-1][1] - 1)
        epochs.append([*epochs[from_], (str(number), kept + 1, len(epochs[from_]))])
        lines.append([*lines[from_][:kept], *(f"{number}.{each}" for each in range(written))])

    for one, other in product(range(len(lines)), repeat=2):
        mine, theirs = (read_lineage(epochs[each][-1][0], epochs[each]) for each in (one, other))
        shared = 0
        while lines[one][shared : shared + 1] == lines[other][shared : shared + 1] != []:
            shared += 1

        end = mine.fork(theirs, len(lines[other]))

        assert end is not None
        assert min(end, len(lines[one])) == shared
