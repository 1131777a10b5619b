"""`python -m bench.topics`: matches per second and memory of five matchers, and Headgate's own at 100,000 patterns.

Workload: 1,000 random subscriptions of five words, each word one of ten or, one time in five, `*`; topics from the same words.
*Cold*: every topic is met for the first time. *Hot*: 1,000 topics again and again. *Read-mostly*: one change in 100 operations.
*50/50*: a change, a match, a change, a match. Single process; CPU seconds, median of the rounds.
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
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.machine import describe as described
from headgate.delivery.trie import SubscriptionTrie

from .matchers import InvertedBitmap, Matcher, NaiveMap, OptimizedInvertedBitmap, Trie

WORDS, ALPHABET, SUBSCRIPTIONS = 5, "abcdefghij", 1000
BUDGET_S = 0.4
PUBLISHED_IN_GO = {
    "naive map": 4_000,
    "inverted bitmap": 1_050_000,
    "optimized inverted bitmap": 131_000,
    "trie": 249_000,
    "trie with cache (Headgate)": 341_000,
}


def main() -> None:
    arguments = argparse.ArgumentParser(prog="python -m bench.topics", description="Measure topic matchers side by side.")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--seed", type=int, default=20)
    arguments.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "results")
    options = arguments.parse_args()
    draw = random.Random(options.seed)
    patterns = [
        ".".join(draw.choice(ALPHABET) if draw.random() > 0.2 else "*" for _ in range(WORDS)) for _ in range(SUBSCRIPTIONS)
    ]
    topics = [".".join(draw.choice(ALPHABET) for _ in range(WORDS)) for _ in range(20_000)]
    rows = {name: _measure(make, patterns, topics, options.rounds) for name, make in _matchers(topics).items()}
    report = {"machine": described(), "seed": options.seed, "matchers": rows, "large": _large(draw)}
    text = _markdown(report)
    print(text)
    options.out.mkdir(exist_ok=True)
    (options.out / "topics.json").write_text(json.dumps(report, indent=2) + "\n")
    (options.out / "topics.md").write_text(text)


def _matchers(topics: Sequence[str]) -> dict[str, Callable[[], Matcher]]:
    return {
        "naive map": NaiveMap,
        "inverted bitmap": lambda: InvertedBitmap(topics),
        "optimized inverted bitmap": lambda: OptimizedInvertedBitmap(WORDS),
        "trie": lambda: Trie(cache_topics=0),
        "trie with cache (Headgate)": lambda: Trie(cache_topics=4096),
    }


def _measure(make: Callable[[], Matcher], patterns: Sequence[str], topics: Sequence[str], rounds: int) -> dict[str, float]:
    gc.collect()
    tracemalloc.start()
    matcher = _filled(make(), patterns)
    for topic in topics[:1000]:
        matcher.match(topic)
    kept_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    hot = topics[:1000]
    figures = {
        "cold_per_s": [_rate(_filled(make(), patterns), topics) for _ in range(rounds)],
        "hot_per_s": [_rate(matcher, itertools.cycle(hot), warm=hot) for _ in range(rounds)],
        "read_mostly_per_s": [_mixed(_filled(make(), patterns), patterns, hot, 99) for _ in range(rounds)],
        "half_half_per_s": [_mixed(_filled(make(), patterns), patterns, hot, 1) for _ in range(rounds)],
    }
    return {name: statistics.median(values) for name, values in figures.items()} | {
        "bytes_per_subscription": kept_bytes / len(patterns)
    }


def _filled(matcher: Matcher, patterns: Sequence[str]) -> Matcher:
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
    """Headgate's trie with 100,000 patterns of two to six words, `*` and `#` among them: one uncached match, one cached."""
    vocabulary = [f"w{number}" for number in range(200)]
    gc.collect()
    tracemalloc.start()
    trie: SubscriptionTrie[int] = SubscriptionTrie(1)
    for number in range(100_000):
        words = draw.choices(vocabulary, k=draw.randint(2, 6))
        if draw.random() < 0.2:
            words[draw.randrange(len(words))] = draw.choice("*#")
        trie.add(".".join(words), number)
    kept_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    topics = [".".join(draw.choices(vocabulary, k=draw.randint(2, 6))) for _ in range(5000)]
    began = time.process_time()
    for topic in topics:
        trie.match(topic).clients  # noqa: B018 - the list is built when it is asked for
    uncached_us = (time.process_time() - began) / len(topics) * 1e6
    return {"patterns": trie.patterns, "uncached_match_us": uncached_us, "bytes_per_subscription": kept_bytes / 100_000}


def _markdown(report: dict[str, object]) -> str:
    rows, large = report["matchers"], report["large"]
    assert isinstance(rows, dict)
    assert isinstance(large, dict)
    lines = [
        "# Topic matching",
        "",
        *[f"- {name}: {value}" for name, value in dict(report["machine"]).items()],  # type: ignore[call-overload]
        "",
        "1,000 random five-word subscriptions; matches (mixed: operations) per CPU second in Python, one process.",
        "The last column is what the classic comparison published for Go (16 goroutines, another machine): not to compare.",
        "",
        "| matcher | cold | hot | read-mostly | 50/50 | bytes per subscription | published, Go |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        figures = " | ".join(f"{row[key]:,.0f}" for key in list(row))
        lines.append(f"| {name} | {figures} | {PUBLISHED_IN_GO[name]:,} |")
    lines += [
        "",
        f"Headgate's trie with {large['patterns']:,} patterns of two to six words, one in five with `*` or `#`: an uncached",
        f"match takes {large['uncached_match_us']:.1f} µs; {large['bytes_per_subscription']:,.0f} bytes per subscription.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
