"""`python -m bench.topics`: matches per second, operations per second under churn, and memory of topic matchers, side by side.

Four workloads. *Classic*: 1,000 random subscriptions of five words, each word one of ten or, one time in five, `*`; topics from
the same words. *Churn*: a gateway's clients that come and go (churn.py). *Threads*: the classic one from several threads
(threads.py). *Large*: Headgate alone, with 100,000 patterns.

*Cold*: every topic is met for the first time. *Hot*: 1,000 topics again and again. *Read-mostly*: one change in 100 operations.
*50/50*: a change, a match, a change, a match. Single process; CPU seconds, median of the rounds. Bytes are those that Python
allocated (tracemalloc), with the texts of patterns and topics, the index, and all that is remembered.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import random
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from bench.machine import describe as described
from headgate.delivery.matcher import SubscriptionMatcher

from . import churn, threads
from .concurrent import ConcurrentTrie
from .matchers import Headgate, InvertedBitmap, Matcher, NaiveMap, OptimizedInvertedBitmap, Shapes, WordTrie

WORDS, ALPHABET, SUBSCRIPTIONS = 5, "abcdefghij", 1000
BUDGET_S = 0.4
CHURN_CLIENTS = 5000
CHURN_OPERATIONS = 120_000
PUBLISHED_IN_GO = {
    "naive map": 4_000,
    "inverted bitmap": 1_050_000,
    "optimized inverted bitmap": 131_000,
    "trie of words": 249_000,
    "trie with cache": 341_000,
}
# Those that take the patterns of the churn, `#` among them.
FOR_CHURN: dict[str, Callable[[], Matcher]] = {
    "optimized inverted bitmap": OptimizedInvertedBitmap,
    "trie of words": WordTrie,
    "concurrent trie": ConcurrentTrie,
    "Headgate, nothing remembered": Shapes,
    "Headgate": Headgate,
}


def main() -> None:
    arguments = argparse.ArgumentParser(prog="python -m bench.topics", description="Measure topic matchers side by side.")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--seed", type=int, default=20)
    arguments.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "results")
    arguments.add_argument("--only", choices=("classic", "churn", "threads", "large"), help="print one part, and write nothing")
    arguments.add_argument("--name", default="topics", help="of the two files that are written")
    options = arguments.parse_args()
    draw = random.Random(options.seed)
    patterns = [
        ".".join(draw.choice(ALPHABET) if draw.random() > 0.2 else "*" for _ in range(WORDS)) for _ in range(SUBSCRIPTIONS)
    ]
    topics = [".".join(draw.choice(ALPHABET) for _ in range(WORDS)) for _ in range(20_000)]
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "classic": lambda: {name: _measure(make, patterns, topics, options.rounds) for name, make in _matchers(topics).items()},
        "churn": lambda: _churn(options),
        "threads": lambda: _threads(patterns, topics[:1000], options.rounds),
        "large": lambda: _large(draw),
    }
    if options.only:
        print(json.dumps(parts[options.only](), indent=2))
        return
    report = {"machine": described(), "seed": options.seed, **{name: measure() for name, measure in parts.items()}}
    text = _markdown(report)
    print(text)
    options.out.mkdir(exist_ok=True)
    (options.out / f"{options.name}.json").write_text(json.dumps(report, indent=2) + "\n")
    (options.out / f"{options.name}.md").write_text(text)


def _matchers(topics: Sequence[str]) -> dict[str, Callable[[], Matcher]]:
    return {"naive map": NaiveMap, "inverted bitmap": lambda: InvertedBitmap(topics), **FOR_CHURN}


def _measure(make: Callable[[], Matcher], patterns: Sequence[str], topics: Sequence[str], rounds: int) -> dict[str, float]:
    hot = topics[:1000]
    matcher, kept_bytes = _weighed(lambda: _used(_filled(make(), map(_copy, patterns)), map(_copy, hot)))
    figures = {
        "cold_per_s": [_rate(_filled(make(), patterns), topics) for _ in range(rounds)],
        "hot_per_s": [_rate(matcher, itertools.cycle(hot), warm=hot) for _ in range(rounds)],
        "read_mostly_per_s": [_mixed(matcher, patterns, hot, 99) for _ in range(rounds)],
        "half_half_per_s": [_mixed(matcher, patterns, hot, 1) for _ in range(rounds)],
    }
    return {name: statistics.median(values) for name, values in figures.items()} | {
        "bytes_per_subscription": kept_bytes / len(patterns)
    }


def _churn(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    workloads = {
        "half_half_per_s": churn.operations(CHURN_CLIENTS, options.seed),
        "half_half_without_consoles_per_s": churn.operations(CHURN_CLIENTS, options.seed, consoles=False),
        "read_mostly_per_s": churn.operations(CHURN_CLIENTS, options.seed, matches_per_change=99),
    }
    operations = {name: list(itertools.islice(each, CHURN_OPERATIONS)) for name, each in workloads.items()}
    hot = churn.hot_topics(CHURN_CLIENTS)
    rows = {}
    for name, make in FOR_CHURN.items():
        mixed = {
            name: statistics.median(
                _operations_per_s(_crowded(make(), "without" not in name), each) for _ in range(options.rounds)
            )
            for name, each in operations.items()
        }
        matcher, kept_bytes = _weighed(lambda make=make: _churned(_crowded(make()), options.seed))  # type: ignore[misc]
        rows[name] = {
            **mixed,
            "hot_per_s": statistics.median(_rate(matcher, itertools.cycle(hot), warm=hot) for _ in range(options.rounds)),
            "bytes_per_subscription": kept_bytes / sum(len(churn.subscriptions(client)) for client in range(CHURN_CLIENTS)),
        }
    return rows


def _threads(patterns: Sequence[str], topics: Sequence[str], rounds: int) -> dict[str, dict[str, float]]:
    """Return operations per CPU second by matcher, workload and number of threads."""
    figures = {}
    for name, make in _matchers(topics).items():
        matcher = make() if name == "concurrent trie" else threads.Locked(make())
        _used(_filled(matcher, patterns), topics)
        figures[name] = {
            f"{label}, {count}": statistics.median(
                threads.operations_per_s(matcher, count, patterns, topics, matches, BUDGET_S) for _ in range(rounds)
            )
            for label, matches in (("read-mostly", 99), ("50/50", 1))
            for count in threads.THREADS
        }
    return figures


def _crowded(matcher: Matcher, consoles: bool = True) -> Matcher:
    """Let the first clients come."""
    for client in range(CHURN_CLIENTS):
        for pattern in churn.subscriptions(client, consoles):
            matcher.subscribe(pattern, client)
    return matcher


def _churned(matcher: Matcher, seed: int) -> Matcher:
    """Let clients come and go, each text a new one, until whatever is remembered is full."""
    _operations_per_s(matcher, itertools.islice(churn.operations(CHURN_CLIENTS, seed), CHURN_OPERATIONS))
    return matcher


def _operations_per_s(matcher: Matcher, operations: Iterable[churn.Operation]) -> float:
    """Operations per CPU second in the second half: what is remembered comes up in the first."""
    match, subscribe, unsubscribe = matcher.match, matcher.subscribe, matcher.unsubscribe
    began = 0.0
    for number, (kind, text, client) in enumerate(operations):
        if number == CHURN_OPERATIONS // 2:
            began = time.process_time()
        if kind is churn.MATCH:
            match(text)
        elif kind is churn.SUBSCRIBE:
            subscribe(text, client)
        else:
            unsubscribe(text, client)
    return CHURN_OPERATIONS / 2 / (time.process_time() - began)


def _weighed(make: Callable[[], Matcher]) -> tuple[Matcher, int]:
    """Return a matcher and how many bytes it holds, all texts counted."""
    gc.collect()
    tracemalloc.start()
    matcher = make()
    gc.collect()
    kept_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return matcher, kept_bytes


def _used(matcher: Matcher, topics: Iterable[str]) -> Matcher:
    for topic in topics:
        matcher.match(topic)
    return matcher


def _copy(text: str) -> str:
    return text.encode().decode()


def _filled(matcher: Matcher, patterns: Iterable[str]) -> Matcher:
    for number, pattern in enumerate(patterns):
        matcher.subscribe(pattern, number)
    return matcher


def _rate(matcher: Matcher, topics: itertools.cycle[str] | Sequence[str], warm: Sequence[str] = ()) -> float:
    """Matches per CPU second, over at most BUDGET_S or as long as there are topics."""
    match = matcher.match
    for topic in warm:
        match(topic)
    done, source = 0, iter(topics)
    began = time.process_time()
    while (spent := time.process_time() - began) < BUDGET_S:
        batch = list(itertools.islice(source, 200))
        if not batch:
            break
        for topic in batch:
            match(topic)
        done += len(batch)
    return done / max(spent, 1e-9)


def _mixed(matcher: Matcher, patterns: Sequence[str], topics: Sequence[str], matches_per_change: int) -> float:
    """Operations (matches and changes) per CPU second."""
    order, source = itertools.cycle(range(len(patterns))), itertools.cycle(topics)
    done, began = 0, time.process_time()
    while (spent := time.process_time() - began) < BUDGET_S:
        number = next(order)
        matcher.unsubscribe(patterns[number], number)
        for _ in range(matches_per_change):
            matcher.match(next(source))
        matcher.subscribe(patterns[number], number)
        for _ in range(matches_per_change):
            matcher.match(next(source))
        done += 2 + 2 * matches_per_change
    return done / spent


def _large(draw: random.Random) -> dict[str, float]:
    """Headgate with 100,000 patterns of two to six words, `*` and `#` among them: a match of a topic that is new."""
    vocabulary = [f"w{number}" for number in range(200)]
    gc.collect()
    tracemalloc.start()
    trie: SubscriptionMatcher[int] = SubscriptionMatcher()
    for number in range(100_000):
        words = draw.choices(vocabulary, k=draw.randint(2, 6))
        if draw.random() < 0.2:
            words[draw.randrange(len(words))] = draw.choice("*#")
        trie.add(".".join(words), number)
    kept_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    topics = list({".".join(draw.choices(vocabulary, k=draw.randint(3, 6))) for _ in range(5000)})
    began = time.process_time()
    for topic in topics:
        trie.match(topic).clients  # noqa: B018 - the list is built when it is asked for
    new_us = (time.process_time() - began) / len(topics) * 1e6
    return {"patterns": trie.patterns, "new_match_us": new_us, "bytes_per_subscription": kept_bytes / 100_000}


def _markdown(report: dict[str, object]) -> str:
    rows, churned, large, threaded = report["classic"], report["churn"], report["large"], report["threads"]
    assert isinstance(rows, dict)
    assert isinstance(churned, dict)
    assert isinstance(large, dict)
    assert isinstance(threaded, dict)
    lines = [
        "# Topic matching",
        "",
        *[f"- {name}: {value}" for name, value in dict(report["machine"]).items()],  # type: ignore[call-overload]
        "",
        "Classic: 1,000 random five-word subscriptions; matches (mixed: operations) per CPU second in Python, one process.",
        "Bytes are all that was allocated, with the texts, the index, and what is remembered of 1,000 topics.",
        "The last column is what the classic comparison published for Go (16 goroutines, another machine): not to compare.",
        "",
        "| matcher | cold | hot | read-mostly | 50/50 | bytes per subscription | published, Go |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        figures = " | ".join(f"{row[key]:,.0f}" for key in list(row))
        published = PUBLISHED_IN_GO.get("trie with cache" if name == "Headgate" else name)
        lines.append(f"| {name} | {figures} | {f'{published:,}' if published else ''} |")
    lines += [
        "",
        f"Churn: {CHURN_CLIENTS:,} clients with four subscriptions each come and go (bench/topics/churn.py),",
        "with a few consoles that watch `#`, so that every topic reaches several patterns, and without; bytes at the end.",
        "",
        "| matcher | 50/50 | 50/50 without consoles | read-mostly | hot | bytes per subscription |",
        "|---|---|---|---|---|---|",
    ]
    lines += [f"| {name} | {' | '.join(f'{figure:,.0f}' for figure in row.values())} |" for name, row in churned.items()]
    columns = list(next(iter(threaded.values())))
    lines += [
        "",
        "From several threads: operations per second of CPU of all threads, with Python's global lock; all matchers but the",
        "concurrent trie are behind one lock (bench/topics/threads.py).",
        "",
        f"| matcher | {' | '.join(columns)} |",
        f"|---|{'---|' * len(columns)}",
    ]
    lines += [f"| {name} | {' | '.join(f'{figure:,.0f}' for figure in row.values())} |" for name, row in threaded.items()]
    lines += [
        "",
        f"Headgate with {large['patterns']:,} patterns of two to six words, one in five with `*` or `#`: a topic that is new",
        f"takes {large['new_match_us']:.1f} µs; {large['bytes_per_subscription']:,.0f} bytes per subscription.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
