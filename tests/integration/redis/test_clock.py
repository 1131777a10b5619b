"""The clock of the data (clock.lua): in a real Redis' Lua, with a wall clock of the tests, against the true time."""

import json
import random
from importlib.resources import files

import pytest

from headgate.redis.client import Client, call

LEAP_MS, GRACE_MS, SAVE_MS = 10_000, 20_000, 10_000
HOUR_MS = 3_600_000
T0 = 1_800_000_000_000
WATCH_MS = 5_000
# Runs steps in one call and answers the time of each. A step is the wall clock to read at, perhaps with the time that was
# reported and how long ago that was; an empty one ends the process, and another begins with the saved state.
LIBRARY = """#!lua name=headgate_clock_test
{clock}
redis.register_function('headgate_clock_test', function(keys, args)
  local clock, saved, shift = nil, nil, 0
  local answers = {{}}
  for index, step in ipairs(cjson.decode(args[1])) do
    if #step == 0 then
      clock, answers[index] = nil, 0
    else
      clock = clock or start_clock(step[1], saved, shift)
      answers[index] = read_clock(clock, step[1], step[2], step[3])
      if is_unsaved(clock) then saved, shift, clock.saved = clock.last, clock.shift, clock.last end
    end
  end
  return answers
end)
"""

Step = tuple[int, ...]
RESTART: Step = ()


@pytest.fixture
def client(redis_client: Client) -> Client:
    """A client of a Redis with the clock alone."""
    clock = files("headgate.redis").joinpath("clock.lua").read_text("utf-8")
    call(redis_client, "FUNCTION", "LOAD", "REPLACE", LIBRARY.format(clock=clock))
    return redis_client


def run(client: Client, *steps: Step) -> list[int]:
    """Return how far the clock is from T0 at each step."""
    return [int(answer) - T0 for answer in call(client, "FCALL", "headgate_clock_test", 0, json.dumps(steps))]


def watch(client: Client, wall_of: list[int]) -> list[int]:
    """Read the clock every second of true time at these wall clocks, with a watcher that calls every WATCH_MS; return the times.

    The watcher passes on the time reported to it, and by its own monotonic clock how long ago.
    """
    # The reported times are known only as the script runs, so the script is run once for each further word of it.
    told: dict[int, int] = {}
    watching = list(range(0, len(wall_of), WATCH_MS // 1000))
    answers: list[int] = []
    for upto in [*watching[1:], len(wall_of)]:
        steps: list[Step] = []
        for second in range(upto):
            before = second - WATCH_MS // 1000
            spoken = second in watching and before in told
            steps.append((T0 + wall_of[second], told[before], WATCH_MS) if spoken else (T0 + wall_of[second],))
        answers = run(client, *steps)
        told = {second: T0 + answers[second] for second in watching if second < upto}
    return answers


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS, 30 * 86_400_000, -400 * 86_400_000])
def test_a_wall_clock_that_is_set_moves_it_by_no_more_than_the_tolerance(client: Client, step_ms: int) -> None:
    """However far, on or back, and back again."""
    walls = [1000 * second + (step_ms if 33 <= second < 77 else 0) for second in range(120)]

    times = watch(client, walls)

    assert times == sorted(times)
    assert all(abs(time - 1000 * second) <= LEAP_MS for second, time in enumerate(times))


def test_the_wall_clock_is_followed_closely_while_nobody_sets_it(client: Client) -> None:
    """To the millisecond, watched or not."""
    walls = [1000 * second + second % 7 for second in range(60)]

    assert watch(client, walls) == walls
    assert run(client, *[(T0 + wall,) for wall in walls]) == walls


def test_a_silence_that_a_watcher_has_lived_through_is_believed_at_once(client: Client) -> None:
    """It was given a time before, and knows how long ago that was, so Redis or the network stood still."""
    assert run(client, (T0,), (T0 + HOUR_MS, T0, HOUR_MS - 40)) == [0, HOUR_MS]


def test_a_silence_without_a_watcher_is_believed_when_nobody_contradicts(client: Client) -> None:
    """All were stopped over night. For a while the ones that come do not know, and then it is true for all."""
    awake: list[Step] = [(T0,), *[(T0 + HOUR_MS + ms,) for ms in range(0, GRACE_MS + 1, 2000)]]

    times = run(client, *awake)
    assert times == [*(0,), *(ms + 1 for ms in range(0, GRACE_MS, 2000)), HOUR_MS + GRACE_MS]
    # A new watcher from then on knows nothing about the time before.
    awake[4] = (T0 + HOUR_MS + 6000, T0 + 4001, 2000)
    assert run(client, *awake) == times


def test_one_who_calls_rarely_and_alone_is_a_call_behind_at_most(client: Client) -> None:
    """A publisher without any gateway, once an hour, for which time goes on."""
    times = run(client, *[(T0 + number * HOUR_MS,) for number in range(10)])

    assert all(number * HOUR_MS - time <= HOUR_MS for number, time in enumerate(times))


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS])
def test_another_process_with_another_wall_clock_goes_on_where_the_one_before_was(client: Client, step_ms: int) -> None:
    """As after a failover to a machine that is an hour ahead, or slow."""
    steps: list[Step] = [(T0 + 1000 * second,) for second in range(26)]
    wall = T0 + step_ms + 30_000

    watched: list[Step] = [(wall,), (wall + 1000, T0 + 25_000, 6_000), (wall + 60_000, T0 + 30_000, 60_000)]
    *_, told, _, first, proven, last = run(client, *steps, RESTART, *watched)

    assert told == 25_000
    assert all(abs(time - true) <= LEAP_MS for time, true in ((first, 30_000), (proven, 31_000), (last, 90_000)))
    assert first >= told - SAVE_MS


def test_another_process_of_the_same_machine_goes_on_without_a_word(client: Client) -> None:
    """A restart of Redis within seconds is none for this clock."""
    assert run(client, (T0,), (T0 + 9000,), RESTART, (T0 + 9500,)) == [0, 9000, -T0, 9500]


def test_a_word_that_cannot_be_true_moves_it_by_a_month_at_most(client: Client) -> None:
    """A broken caller does not end time."""
    assert run(client, (T0,), (T0 + 1, 10**14, 10**14))[1] <= 31 * 86_400_000 + 1


@pytest.mark.parametrize("seed", range(40))
def test_at_random_it_never_goes_back_and_stays_near_the_true_time(client: Client, seed: int) -> None:
    """Wall clocks set at random, any distance, watched. Each of them costs the tolerance at most, and seldom that."""
    chance = random.Random(seed)
    walls, ahead, steps_ = [], 0, 0
    for second in range(100):
        if second % 10 == 7 and chance.random() < 0.6:  # one between two words of the watcher
            ahead += chance.choice([-1, 1]) * chance.choice([3, 400, 9_000, 15_000, HOUR_MS, 10**9])
            steps_ += 1
        walls.append(1000 * second + ahead)

    times = watch(client, walls)

    assert times == sorted(times)
    assert all(abs(time - 1000 * second) <= LEAP_MS * (1 + steps_) for second, time in enumerate(times))
