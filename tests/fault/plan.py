"""The plan of a mixture, with faults one after the other or during another. No I/O.

It is drawn from a seed alone: `draw` returns the same steps for the same seed, whatever happens in between, and each step has
random numbers for its details.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# How many steps are something that lasts, in which other things may happen.
LASTING_SHARE = 0.4


@dataclass(frozen=True, slots=True)
class Step:
    """The faults: `during` one, `inside` it others; the lengths are shares of the load's longest."""

    during: str | None
    is_pause: bool
    length: float
    inside: tuple[str, ...]
    rest_s: float
    seed: int


@dataclass(frozen=True, slots=True)
class Kinds:
    """The names of faults: at once, lasting, paused processes; `calm` are those that need no Redis."""

    at_once: Sequence[str]
    lasting: Sequence[str]
    paused: Sequence[str]
    calm: Sequence[str]
    needs_calm: Sequence[str]


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a mixture: pieces; in each so many steps, and pauses of one process, in each of which so many things happen."""

    pieces: int
    steps: int
    pauses: int
    pause_s: float
    in_a_pause: int
    only_losses: bool = False
    """Of the faults at once those that lose the end of the log; of lasting ones a storm, and those of the ground."""


def draw(seed: int, number: int, kinds: Kinds, size: Size) -> list[Step]:
    """Return the plan of one piece. Every kind of fault comes in its turn, and so does every paused process."""
    moments = random.Random(f"{seed}/{number}")
    at_once, lasting = _deck(moments, kinds.at_once), _deck(moments, kinds.lasting)
    paused = random.Random(seed).sample(list(kinds.paused), len(kinds.paused))
    steps = []
    for at in range(size.steps):
        during = next(lasting) if moments.random() < LASTING_SHARE else None
        inside = (next(at_once),) if during is None or moments.random() < 0.5 else ()
        steps.append(Step(during, False, moments.uniform(0.1, 1), inside, moments.uniform(0.1, 0.6), moments.getrandbits(32)))
        if at < size.pauses:
            name = paused[(number * size.pauses + at) % len(paused)]
            pool = kinds.calm if name in kinds.needs_calm else kinds.at_once
            some = tuple(moments.choices(pool, k=size.in_a_pause))
            steps.append(Step(name, True, 1.0, some, moments.uniform(0.1, 0.6), moments.getrandbits(32)))
    return steps


def _deck(moments: random.Random, names: Sequence[str]) -> Iterator[str]:
    while True:
        yield from moments.sample(list(names), len(names))
