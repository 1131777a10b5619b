"""All names of keys and channels in Redis, and of the functions that append. No I/O.

The namespace is the hash tag, so all keys of one namespace are in one slot and the function library can use them in one step.
log.lua builds the same names from the log's key, and a test compares the two.

Keys belong to a database, but a message reaches subscribers in all databases of a server. So the name of a channel contains the
database (`@1`, after the hash tag), unless it is 0. A namespace never contains an `@`.
"""

from __future__ import annotations

from collections.abc import Callable

from headgate.events.topic import USERS

# For all namespaces. The sorted set of revocations (score: their end, in seconds since 1970).
REVOKED = "hg:revoked"
DEFAULT_REVOKED_S = 3600
# The sorted set of operators' pauses (score: the end, in seconds since 1970, or +inf).
PAUSED = "hg:paused"
# The hash of API keys by id (api_keys.py has its values).
API_KEYS = "hg:api-keys"
# The hash with the row of each gateway process, and an operator's request for a balance (loads.py).
LOADS = "hg:loads"
# The hash of users with explicit grants in place of those of their login (auth/regrants.py).
REGRANTED = "hg:regranted"
# The sorted set of namespaces that gateways serve (score: time of the last registration).
NAMESPACES = "hg:namespaces"
# The demo's orders as JSON, and the secret of its tokens (headgate_server/demo/kept.py).
DEMO_BOOK, DEMO_LOCK, DEMO_SECRET = "hg:demo:book", "hg:demo:lock", "hg:demo:secret"


# The function for checked payloads, and the one that checks the payload in Redis.
TRUSTED, STRICT = "headgate_append", "headgate_publish"


def _in_namespace(rest: str) -> Callable[..., str]:
    """Return a function that makes a key from a namespace, and from the parts for the gaps in `rest`."""
    if "{}" not in rest:
        return lambda namespace: f"hg:{{{namespace}}}:{rest}"
    return lambda namespace, *parts: f"hg:{{{namespace}}}:{rest.format(*parts)}"


# Keys by namespace. The stream of the log has entries with the ids `<offset>-0`.
log_key = _in_namespace("log")
# A key in the slot of the log that never exists, to test whether Redis takes a write to the log.
trial_key = _in_namespace("trial")
# The hash with epoch and offset (and the retention that the gateway wrote).
head_key = _in_namespace("head")
# The hash with the lineage of the log, the first offset of each epoch.
epochs_key = _in_namespace("epochs")
# The sorted set of gateways that serve the namespace (score: time of the last registration).
gateways_key = _in_namespace("gateways")
# The hash with the schemas of the namespace's topics (schemas/registry.py has its fields).
schemas_key = _in_namespace("schemas")
# The sorted set of processes with members (score: last beat); presence.lua builds the others.
presence_key = _in_namespace("presence")
# By topic, the set of processes with members in it. By topic and process, the hash of these members by user.
presence_topic_key, presence_members_key = _in_namespace("presence:topic:{}"), _in_namespace("presence:members:{}:{}")
# The list of `occupied` and `vacated` events to publish.
presence_news_key = _in_namespace("presence:news")
# By number: a hash with the ids of recent events, and where each event is (log.lua has its fields).
ids_key = _in_namespace("id:{}")
# By consumer: the hash of its group; its other keys begin with it and a colon (groups.lua builds the same names).
group_key = _in_namespace("group:{}")
# By user: the sorted set of event ids that this user's browsers have shown (score: time of the report).
seen_key = _in_namespace("seen:{}")
# By the user's word in topics, the hash of the inbox (inbox.lua has its fields), and the hash of the user's mutes.
inbox_key, mutes_key = _in_namespace("inbox:{}"), _in_namespace("inbox:{}:mutes")
# By part: a hash with the traces of single events (reports.py).
trace_key = _in_namespace("trace:{}")


def _of(database: int) -> str:
    """Return the mark of a database in the names of channels."""
    return f"@{database}" if database else ""


def revoked_channel(database: int) -> str:
    """Return the channel of revocations."""
    return f"{REVOKED}{_of(database)}"


def questions_channel(database: int) -> str:
    """Return the channel of questions to all gateway processes (questions.py)."""
    return f"hg:questions{_of(database)}"


def table_key(kind: str, process_id: str) -> str:
    """Return the key of the hash with a process's values of one kind (shared_table.py)."""
    return f"hg:table:{kind}:{process_id}"


def answers_key(question_id: str) -> str:
    """Return the key of the list with the answers to a question."""
    return f"hg:answers:{question_id}"


def namespace_of(log_key: str) -> str:
    """Return the namespace of a stream's key."""
    return log_key[len("hg:{") : -len("}:log")]


def channel(namespace: str, topic: str, database: int = 0) -> str:
    """Return the channel on which events of a topic are published."""
    return f"hg:{{{namespace}}}{_of(database)}:{topic}"


def channel_prefix(namespace: str, database: int = 0) -> str:
    """Return the prefix of every channel of a topic; the rest is the topic."""
    return f"hg:{{{namespace}}}{_of(database)}:"


def mixed_prefix(namespace: str, database: int = 0) -> str:
    """Return the prefix of every channel with several topics, which no channel of a topic has."""
    return f"hg:{{{namespace}}}{_of(database)}/"


def feed_channel(namespace: str, database: int = 0) -> str:
    """Return the sharded channel with every logged event in a Cluster, after its topic."""
    return f"hg:{{{namespace}}}{_of(database)}/feed"


def live_channel(namespace: str, topic: str, database: int = 0) -> tuple[str, bool]:
    """Return the plain channel that reaches every subscription to a topic, and whether messages there begin with the topic."""
    user = topic.split(".", 2)[1] if topic.startswith(f"{USERS}.") and topic.count(".") > 1 else None
    return (channel(namespace, topic, database), False) if user is None else (user_channel(namespace, user, database), True)


def group_in_log(group: str, epoch: str) -> str:
    """Return the name of the Redis group with which a consumer reads the log (groups.lua builds the same name)."""
    return f"{group}@{epoch}"


def user_channel(namespace: str, user: str, database: int = 0) -> str:
    """Return the channel with every logged event under `users.<user>`, after its topic.

    It does not begin with `channel_prefix`, so that a subscriber of the whole feed does not get these events twice.
    """
    return f"hg:{{{namespace}}}{_of(database)}/users.{user}"


def presence_database_key(namespace: str, database: int) -> str:
    """Return a name that gives presence.lua the database of its channels. No such key exists."""
    return f"hg:{{{namespace}}}:presence{_of(database)}"


def presence_channel(namespace: str, topic: str, database: int = 0) -> str:
    """Return the channel of changes of a topic's members. It does not begin with `channel_prefix`."""
    return f"hg:{{{namespace}}}{_of(database)}/presence.{topic}"
