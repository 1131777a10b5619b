"""A figure, a size, a limit or a version on several pages has one source, and each page agrees with it."""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from bench import page as benchmarks
from bench.page import Figure
from headgate import __version__
from headgate.auth import claims, client_counts, grants, regrants, revocation, tokens
from headgate.auth.api_keys import MAX_NAMESPACES
from headgate.consumers.work.dead_letters import PAGE_LETTERS
from headgate.consumers.work.spec import RunnerOptions
from headgate.delivery import client as delivery_client
from headgate.delivery import fanout, matcher, page_cache
from headgate.delivery import replay_start as past
from headgate.delivery.bus import interest, listener
from headgate.events import event, topic
from headgate.events.wire.requests import MAX_LAST
from headgate.node import gateway, log_search
from headgate.node.cluster import answers
from headgate.node.presence import room
from headgate.node.requests import publish_queue
from headgate.redis import api_keys, budget, lineage, pauses, registry
from headgate.redis.log import DEFAULT_MAX_BYTES, PAGE_EVENTS
from headgate.runtime import log_throttle, rates, standard_streams
from headgate.services import clients, log_writer, publisher
from headgate.services.schemas import documents
from headgate.settings.settings import Settings
from headgate.transport import descriptors, frame_parser, http_limits, http_parser, send_queue, websocket
from headgate.transport.inbox import FULL_MESSAGES
from headgate.workers.worker_sockets import HAND_OVER_S, MAX_MESSAGE_BYTES
from headgate_server.api import shares
from headgate_server.api.v1 import publishing as over_http
from headgate_server.api.v1.publishing import MAX_BATCH_KEY_LENGTH
from headgate_server.api.v1.reading import MAX_LOOKED_AT, MAX_LOOKED_AT_BYTES
from tools.release import NAMED, NAMING

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md"), ROOT / "web" / "README.md"]
NOT_PAGES = ("node_modules", "CHANGELOG.md", "docs/decisions")
BENCHMARKS = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
BUILD = (ROOT / "web" / "build.mjs").read_text("utf-8")
LUA = (ROOT / "gateway" / "headgate" / "redis" / "log.lua").read_text("utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
# The peers that keep a log too, in the order in which a line names them.
LIKE_FOR_LIKE = ("centrifugo-history", "node-streams")


def text_of(page: str) -> str:
    return (ROOT / page).read_text("utf-8")


def measured(scenario: str) -> Figure:
    """The figures of a scenario in docs/benchmarks.md, from the run that it names."""
    (found,) = [each for each in benchmarks.SUMMARY.finditer(BENCHMARKS) if scenario in each[3].split()]
    return benchmarks.figure(found[2], scenario)


def ratios(scenarios: tuple[str, ...], peer: str) -> tuple[str, str]:
    """The least and the greatest ratio to a peer, with one decimal, as pages write them."""
    found = [1 / (measured(scenario).times_worse(peer) or 1) for scenario in scenarios]
    return f"{min(found):.1f}", f"{max(found):.1f}"


BROADCAST = ("throughput-1000x256B-w8", "throughput-5000x256B-w8")
DIRECTED = ("directed-5000",)
MEMORY = f"{measured('memory').of['']:.1f} KiB"


@pytest.mark.parametrize("page_name", ["README.md", "docs/index.md", "docs/comparison.md"])
def test_a_page_compares_as_the_benchmarks_do(page_name: str) -> None:
    """Each names broadcasts. Each figure that it names is that of the tables."""
    text = text_of(page_name)
    for what, scenarios in (("broadcast", BROADCAST), ("one of 5,000 users", DIRECTED)):
        line = next((line for line in text.splitlines() if what in line and ("Centrifugo" in line)), "")
        assert line or what != "broadcast"
        if line:
            said = re.findall(r"([\d.]+)(?: to ([\d.]+))? (?:×|times)", line)
            assert [(low, high or low) for low, high in said] == [ratios(scenarios, peer) for peer in LIKE_FOR_LIKE], line
    idle = re.findall(r"([\d.]+ KiB?)\b", "\n".join(line for line in text.splitlines() if "idle client" in line))
    assert set(idle) <= {MEMORY}


def test_a_page_that_is_not_that_of_the_benchmarks_has_no_ratio_of_its_own() -> None:
    """A second one would be another figure after the next run."""
    for page in ("README.md", "docs/index.md"):
        lines = [line for line in text_of(page).splitlines() if re.search(r"\d (?:×|times)", line)]
        assert all("broadcast" in line or "5,000 users" in line for line in lines), lines


@pytest.mark.parametrize(
    ("page", "pattern", "part"),
    [
        ("README.md", r"A page loads ([\d.]+) KB \(", "connect"),
        ("README.md", r"([\d.]+) KB by terser", "terser"),
        ("README.md", r"([\d.]+) KB with everything", "everything"),
        ("web/README.md", r"([\d.]+) KB by terser", "terser"),
        ("web/README.md", r"but the parts of frameworks ([\d.]+) KB", "everything"),
        ("docs/comparison.md", r"JavaScript of a page, gzip[^|]*\| ([\d.]+) KB \|", "connect"),
        ("web/README.md", r"imports `connect` loads ([\d.]+) KB", "connect"),
        ("web/README.md", r"\| headgate \| [^|]* \| ([\d.]+) \|", "connect"),
        ("web/README.md", r"with all helpers ([\d.]+) KB", "backbone"),
        ("web/README.md", r"live models and lists \| [^|]* \| ([\d.]+) \|", "backbone"),
        ("web/README.md", r"script tag ([\d.]+) KB", "script"),
    ],
)
def test_a_size_of_the_client_is_what_the_build_allows(page: str, pattern: str, part: str) -> None:
    """The build measures each, and fails above its limit."""
    found = re.search(rf"\b{part}: ([\d_]+)", BUILD)
    assert found is not None
    assert re.findall(pattern, re.sub(r"\s+", " ", text_of(page))) == [f"{int(found[1].replace('_', '')) / 1000:.1f}"]


def test_every_name_with_a_version_has_the_present_one() -> None:
    """A release writes each of them, and the files with one are in its list."""
    named = re.compile(NAMED.format(r"(\d+\.\d+\.\d+)"))
    files = {path for pattern in NAMING for path in ROOT.glob(pattern)}
    for path in {*PAGES, *files}:
        if any(part in str(path) for part in NOT_PAGES):
            continue
        versions = {version for _, version in named.findall(path.read_text("utf-8"))}
        assert versions <= {__version__}, path
        assert not versions or path in files, f"{path} is not in tools/release.py's NAMING"


LEAST_PYTHON = PROJECT["requires-python"].removeprefix(">=")
PYTHONS = [each.rpartition(" ")[2] for each in PROJECT["classifiers"] if ":: 3." in each]
NEWEST_PYTHON = max(PYTHONS, key=lambda each: int(each[2:]))
LEAST_NODE = json.loads(text_of("package.json"))["engines"]["node"].removeprefix(">=")
LEAST_IDS = re.search(r"LEAST_IDS = (\d+)\n", LUA)
assert LEAST_IDS is not None
LEAST_EVENTS = f"{int(LEAST_IDS[1]):,}"


@pytest.mark.parametrize(
    ("page", "pattern", "values"),
    [
        ("README.md", r"Python ≥ ([\d.]+), Node ≥ (\d+)", (LEAST_PYTHON, LEAST_NODE)),
        ("CONTRIBUTING.md", r"Python ([\d.]+) or newer, Node (\d+) or newer", (LEAST_PYTHON, LEAST_NODE)),
        ("CONTRIBUTING.md", r"each of Python ([\d.]+) to ([\d.]+)", (LEAST_PYTHON, NEWEST_PYTHON)),
        ("docs/tutorial.md", r"Python ([\d.]+) or newer", (LEAST_PYTHON,)),
        ("docs/support.md", r"\| Python \| ([\d.]+) \| ([\d.]+) \|", (LEAST_PYTHON, NEWEST_PYTHON)),
        ("docs/support.md", r"\| Node [^|]*\| (\d+) \|", (LEAST_NODE,)),
        ("docs/operations/scale.md", r"([\d.]+ KiB) for each idle one", (MEMORY,)),
        ("docs/howto/sizing.md", r"each second, ([\d.]+ KiB) in the gateway", (MEMORY,)),
        (
            "docs/http-api.md",
            r"A key has at most (\d+) characters, for a batch (\d+)",
            (event.MAX_ID_LENGTH, MAX_BATCH_KEY_LENGTH),
        ),
        (
            "docs/http-api.md",
            r"a batch at most (\d+) events and (\d+) MiB",
            (over_http.MAX_BATCH_EVENTS, over_http.MAX_BATCH_BYTES >> 20),
        ),
        ("docs/http-api.md", r"at most an event and a (K)iB around it", ("K" if over_http.ENVELOPE_BYTES == 1024 else "",)),
        (
            "docs/http-api.md",
            r"among the newest ([\d,]+) events and (\d+) MiB",
            (f"{MAX_LOOKED_AT:,}", MAX_LOOKED_AT_BYTES >> 20),
        ),
        ("docs/http-api.md", r"A page holds some (\d+) events", (PAGE_EVENTS,)),
        ("docs/protocol.md", r"JWT of at most (\d+) KiB", (tokens.MAX_TOKEN_BYTES >> 10,)),
        ("docs/protocol.md", r"a list of at most (\d+) names of namespaces", (MAX_NAMESPACES,)),
        ("docs/protocol.md", r"lists of at most (\d+) patterns each", (claims.MAX_GRANTS,)),
        ("docs/protocol.md", r"the last n that match \(at most ([\d,]+)\)", (f"{MAX_LAST:,}",)),
        (
            "docs/protocol.md",
            r"topic is 1 to (\d+) words of [^,]*, at most (\d+) bytes",
            (topic.MAX_TOPIC_WORDS, topic.MAX_TOPIC_BYTES),
        ),
        ("docs/protocol.md", r"nested at most (\d+) deep", (event.MAX_DEPTH,)),
        ("docs/reference/python.md", r"\(less at a high rate\)\. 1 to (\d+) characters", (event.MAX_ID_LENGTH,)),
        ("docs/guarantees.md", r"Those of the newest ([\d,]+) events count", (LEAST_EVENTS,)),
        ("docs/guide.md", r"for the newest ([\d,]+) events at any rate", (LEAST_EVENTS,)),
    ],
)
def test_a_page_names_the_limit_that_the_code_has(page: str, pattern: str, values: tuple[object, ...]) -> None:
    """Once or more, and each time the same."""
    found = re.findall(pattern, re.sub(r"\s+", " ", text_of(page)))
    assert found
    assert {each if isinstance(each, tuple) else (each,) for each in found} == {tuple(map(str, values))}


def thousands(*numbers: float) -> tuple[str, ...]:
    """Numbers as pages write them."""
    return tuple(f"{number:,.0f}" for number in numbers)


def kib(*sizes: int) -> tuple[str, ...]:
    return thousands(*(size / 1024 for size in sizes))


def mib(*sizes: int) -> tuple[str, ...]:
    return thousands(*(size / (1 << 20) for size in sizes))


def in_lua(*names: str) -> tuple[str, ...]:
    """Whole numbers of log.lua, of a line `local A, B = 1, 2`."""
    found = {
        name: value for line in re.findall(r"^local ([A-Z_, ]+ = [\d, ]+)$", LUA, re.MULTILINE) for name, value in assigned(line)
    }
    return tuple(found[name] for name in names)


def assigned(line: str) -> Iterator[tuple[str, str]]:
    names, values = (part.split(",") for part in line.split("="))
    return ((name.strip(), value.strip()) for name, value in zip(names, values, strict=True))


def in_javascript(file: str, pattern: str) -> tuple[str, ...]:
    """A whole number of a file of the browser client."""
    return thousands(*(int(number) for number in re.findall(pattern, text_of(f"web/src/{file}"))))


GROUPS = text_of("gateway/headgate/consumers/work/groups.lua")
PROMISED = [
    (r"plus one write \((\d+) KiB\)", kib(fanout.MAX_SLICE_BYTES)),
    (r"control lane \| (\d+) frames, (\d+) KiB", (*thousands(send_queue.MAX_CONTROL_FRAMES), *kib(send_queue.MAX_CONTROL_BYTES))),
    (
        r"twice `max_payload_bytes` \+ (\d+) KiB, [^;]*; ([\d,]+) fragments",
        (*kib(gateway.ENVELOPE_BYTES), *thousands(frame_parser.MAX_FRAGMENTS)),
    ),
    (r"a process remembers ([\d,]+) users", thousands(rates.MAX_CALLERS)),
    (r"A batch: (\d+) events, (\d+) MiB", (*thousands(over_http.MAX_BATCH_EVENTS), *mib(over_http.MAX_BATCH_BYTES))),
    (
        r"those of clients too: ([\d,]+) and (\d+) MiB",
        (*thousands(publish_queue.MAX_WAITING_EVENTS), *mib(publish_queue.MAX_WAITING_BYTES)),
    ),
    (r"of more than (\d+) KiB each \| (\d+) of the", (*kib(shares.AT_ONCE_BYTES), *thousands(shares.PER_CALLER))),
    (r"and gateway; (\d+) in all", thousands(shares.IN_ALL)),
    (r"signature is remembered \| ([\d,]+),", thousands(tokens.MAX_PROVEN)),
    (r"for every (\d+) events searched, .*?, (\d+) in a process", thousands(PAGE_EVENTS, shares.MAX_SEARCHES)),
    (r"four times as many at once; a process remembers ([\d,]+)\[", thousands(rates.MAX_CALLERS)),
    (r"request's headers \| (\d+) KiB, (\d+) lines", (*kib(http_parser.MAX_HEADER_BYTES), str(http_parser.MAX_HEADER_LINES))),
    (r"`max_payload_bytes` \+ (\d+) KiB, a batch (\d+) MiB", (*kib(over_http.ENVELOPE_BYTES), *mib(over_http.MAX_BATCH_BYTES))),
    (r"standard output and error \| (\d+) MiB", mib(standard_streams.MAX_QUEUED_BYTES)),
    (r"once in (\d+) s: the traceback", thousands(log_throttle.EVERY_S)),
    (r"waiting for application code \| (\d+),", thousands(FULL_MESSAGES)),
    (r"refused after (\d+) s\[\^replay\]", thousands(log_search.READ_WAIT_S)),
    (r"refused \(`bus_unavailable`\) after (\d+) s", thousands(listener.ACTIVE_TIMEOUT_S)),
    (r"subscriptions per client \| (\d+), of them (\d+)", thousands(Settings().max_subscriptions, Settings().max_wildcards)),
    (r"wait for a page: (\d+) KiB", kib(room.MAX_WAITING_BYTES)),
    (r"any \(at most (\d+)\) grants", thousands(claims.MAX_GRANTS)),
    (
        r"users with explicit grants \| ([\d,]{5}), ([\d,]{5}), ([\d,]{5}), ([\d,]{6})",
        thousands(answers.MAX_WAITING, answers.MAX_WAITING, clients.MAX_PAGE_CLIENTS, regrants.MAX_REGRANTS),
    ),
    (r"at most (\d+) MiB; the owner has (\d+) s", (*mib(MAX_MESSAGE_BYTES), *thousands(HAND_OVER_S))),
    (r"pauses \| ([\d,]{5}), each of at most (\d+) days", thousands(pauses.MAX_PAUSES, pauses.MAX_PAUSED_S / 86400)),
    (
        r"schemas \| (\d+) documents of (\d+) KiB, (\d+) MiB together",
        (*thousands(documents.MAX_DOCUMENTS), *kib(documents.MAX_DOCUMENT_BYTES), *mib(documents.MAX_BYTES)),
    ),
    (r"log pages held for readers \| (\d+) MiB", mib(page_cache.MAX_CACHE_BYTES)),
    (r"held for `since` \| ([\d,]+) events", thousands(past.MAX_PAGES * past.TOPIC_PAGE_OFFSETS)),
    (r"held compiled \| (\d+) sets", thousands(grants.MAX_COMPILED)),
    (r"patterns, ([\d,]+) to ([\d,]+) per namespace", thousands(matcher.MIN_CACHED_TOPICS, matcher.MAX_CACHED_TOPICS)),
    (r"last client has left \| ([\d,]+) per namespace", thousands(matcher.MAX_VACANT_PATTERNS)),
    (
        r"listens to \| ([\d,]+) and (\d+) per namespace, .*? after (\d+) s, and at most ([\d,]+) wait",
        thousands(interest.MAX_CHANNELS, interest.MAX_GLOBS, interest.LINGER_S, interest.MAX_LINGERING),
    ),
    (r"wait to be accepted \| ([\d,]+), cut", thousands(http_limits.BACKLOG)),
    (
        r"the last (\d+), or a sixteenth .*? nor are (\d+) more",
        thousands(descriptors.MAX_OWN_DESCRIPTORS, descriptors.MAX_PLACES),
    ),
    (r"all logs, (\d+) MiB each without one; an event counts (\d+) bytes", (*mib(DEFAULT_MAX_BYTES), *in_lua("ENTRY_BYTES"))),
    (r"epochs in Redis \| the newest (\d+) of each log", in_lua("MAX_EPOCHS")),
    (r"in a gateway \| the newest (\d+) of each namespace", thousands(lineage.MAX_LOST)),
    (r"wait for a client \| (\d+) beyond its queue", thousands(delivery_client.MAX_NOTICES)),
    (
        r"goes after (\d+) s of silence; of namespaces ([\d,]{5}), each for (\d+) days",
        thousands(registry.FORGOTTEN_S, registry.MAX_NAMESPACES, registry.KEPT_S / 86400),
    ),
    (r"costs at most one read \((\d+) KiB\)", kib(websocket.READ_BYTES)),
    (r"`timeout_s`, (\d) s by default", thousands(publisher.DEFAULT_TIMEOUT_S)),
    (r"a batch of more than (\d+) events ends", thousands(log_writer.MAX_BATCH_EVENTS)),
    (r"fail at once for (\d) s", thousands(budget.OPEN_S)),
    (r"`hg:revoked`, at most ([\d,]{6})", thousands(revocation.MAX_REVOCATIONS)),
    (r"`hg:api-keys`, at most ([\d,]{5}), SHA", thousands(api_keys.MAX_KEYS)),
    (
        r"per user (\d+), over .*?; per address ([\d,]{5}), likewise",
        thousands(Settings().max_clients_per_user, Settings().max_clients_per_address),
    ),
    (r"tried again after (\d+) s", thousands(client_counts.PLACE_RETRY_S)),
    (r"messages that wait in a page \| ([\d,]+) ", in_javascript("language/options.js", r"inboxLimit: \[COUNT, ([\d_]+)\]")),
    (
        r"another \| (\d+) messages .*? the leader remembers ([\d,]+) messages",
        (
            *in_javascript("tabs/hub.js", r"const WINDOW = (\d+);"),
            *in_javascript("tabs/recent.js", r"const MAX_ENTRIES = (\d+);"),
        ),
    ),
    (r"`maxEvents` ([\d,]+), ", in_javascript("offline/index.js", r"maxEvents: \[COUNT, ([\d_]+)\]")),
    (r"`max_waiting` 10,000, and (\d+) KiB for each", kib(int(re.findall(r"TASK_BYTES = (\d+)", GROUPS)[0]))),
    (r"`max_waiting` ([\d,]+),", thousands(RunnerOptions().max_waiting)),
    (
        r"`max_dead` ([\d,]+) and `max_dead_bytes` (\d+) MiB",
        (*thousands(RunnerOptions().max_dead), *mib(RunnerOptions().max_dead_bytes)),
    ),
]


@pytest.mark.parametrize(("pattern", "values"), PROMISED, ids=lambda each: each if isinstance(each, str) else "")
def test_a_promise_names_the_bound_that_the_code_has(pattern: str, values: tuple[str, ...]) -> None:
    """The behaviour at each bound has a separate test, which the page names."""
    (found,) = re.finditer(pattern, re.sub(r"\s+", " ", text_of("docs/guarantees.md")))
    assert found.groups() == values


# Each text from which a reader learns that an id makes a publish safe to repeat.
TEXTS_ABOUT_IDS = (
    *(f"docs/{page}.md" for page in ("guarantees", "protocol", "http-api", "guide", "howto/celery")),
    *("docs/reference/python.md", "docs/reference/commands.md", "examples/progress/tasks.py"),
    *("gateway/headgate/services/publisher.py", "gateway/headgate/cli/events.py"),
    "web/src/offline/entry.js",
)
TEXTS = (
    "README.md",
    "docs/**/*.md",
    "examples/**/*.py",
    *(f"gateway/**/*.{end}" for end in ("py", "lua")),
    "server/**/*.py",
    "web/src/**/*.js",
)
OF_300_S = re.compile(r"\b(300 s|300 seconds|five minutes)\b")
OF_AN_ID = re.compile(r"\bids?\b|idempoten|duplicate", re.IGNORECASE)
# The reasons for the rule, or a decision by its time.
REASONS = {
    *("docs/guarantees.md", "docs/decisions/0061-the-usual-append.md"),
    *("gateway/headgate/diagnosis/redis_state.py", "gateway/headgate/redis/event_ids.py"),
}


def texts() -> Iterator[str]:
    for path in (path for pattern in TEXTS for path in sorted(ROOT.glob(pattern))):
        if not {"node_modules", "static", ".venv"}.intersection(path.parts):
            yield str(path.relative_to(ROOT))


def test_every_text_says_for_how_long_an_id_counts_in_the_same_words() -> None:
    """Those of `event.ID_RULE`, with the time of the function library; also where a sentence is broken over two lines."""
    assert f"local IDEMPOTENCY_MS = {event.ID_COUNTS_S}000\n" in LUA
    said = {name: re.sub(r'[\s"]+(?:[*#]|--)?[\s"]*', " ", text) for name in texts() if OF_300_S.search(text := text_of(name))}
    sentences = [(name, sentence) for name, text in said.items() for sentence in re.split(r"[.|;] ", text)]
    rule = event.ID_RULE.removesuffix(")")  # a link to the reason may follow
    other = [(name, each) for name, each in sentences if OF_300_S.search(each.replace(rule, "")) and OF_AN_ID.search(each)]
    assert {name for name, _ in other} == REASONS, other
    assert all(rule in said[name] for name in TEXTS_ABOUT_IDS)


def test_the_constants_of_the_code_agree_with_each_other() -> None:
    """Where two parts cannot share one, an event over HTTP is published as one of a batch of the publisher's."""
    assert over_http.MAX_BATCH_EVENTS <= publisher.MAX_BATCH_EVENTS
    assert over_http.MAX_BATCH_BYTES <= publisher.MAX_BATCH_BYTES


UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "s": 1}
SETTING = re.compile(r"`(?:HEADGATE_)?([A-Za-z_]+)`,? \(?(\d[\d,.]*\d|\d)(?: (KiB|MiB|GiB|s)\b)?")
# A suggested value, and no default, as `HEADGATE_TRACE_EVERY` 1 takes every event.
NO_DEFAULT = {("docs/operations/trace.md", "trace_every")}


def test_a_default_that_a_page_names_is_that_of_the_setting() -> None:
    """As in "`queue_bytes` 1 MiB" and "`ping_interval_s` (25 s)"."""
    defaults = Settings()
    named = 0
    for page in PAGES:
        if any(part in str(page) for part in NOT_PAGES):
            continue
        where = str(page.relative_to(ROOT))
        for name, number, unit in SETTING.findall(re.sub(r"\s+", " ", page.read_text("utf-8"))):
            default = getattr(defaults, name.lower(), None)
            if isinstance(default, int | float) and (where, name.lower()) not in NO_DEFAULT:
                named += 1
                assert float(number.replace(",", "")) * UNITS[unit] == default, (where, name, number, unit)
    assert named > 20


def test_the_options_of_a_command_have_the_bounds_of_what_it_calls() -> None:
    """A command imports the rest when it runs, so its option has the number a second time."""
    from headgate.cli.consumers import list_letters as listed

    (limit,) = [each for each in listed.params if each.name == "limit"]
    assert isinstance(limit.type, click.IntRange)
    assert (limit.type.min, limit.type.max) == (1, PAGE_LETTERS)
