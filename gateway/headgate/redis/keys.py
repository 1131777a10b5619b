"""Where things are in Redis: every key and channel name, and the functions that append, in one place. No I/O.

The namespace is the hash tag, so all keys of one namespace live in one slot and the function library can touch them
in one step. log.lua builds the same names from the log's key; a test holds the two together.

Keys live in a database, channels do not: a message reaches subscribers in all databases of a server. So the name of a channel
says the database (`@1`, behind the hash tag), unless it is 0. No namespace has an `@`.
"""

from __future__ import annotations

# Of all namespaces: the sorted set of what is revoked (score: until when, in seconds since 1970).
REVOKED = "hg:revoked"
DEFAULT_REVOKED_S = 3600
# The sorted set of what operators have paused (score: until when, in seconds since 1970; +inf: until they resume it).
PAUSED = "hg:paused"
# The hash of API keys by id (api_keys.py has its values).
API_KEYS = "hg:api-keys"
# The hash of gateway processes with the row of each, and of an operator's wish that they be balanced (loads.py).
LOADS = "hg:loads"
# While a console watches: the hash of what each gateway process says of itself (process_stats.py).
VITALS = "hg:vitals"
# The hash of the users who have explicit grants in place of their own (auth/regrants.py).
REGRANTED = "hg:regranted"
# The sorted set of those that gateways serve (score: when one last said so).
NAMESPACES = "hg:namespaces"
# The hash of the demo's orders, and the secret of its tokens (headgate_server/demo/kept.py).
DEMO_ORDERS, DEMO_SECRET = "hg:demo:orders", "hg:demo:secret"


# The function for those who have checked the payload; and the one that checks it once more, in Redis.
TRUSTED, STRICT = "headgate_append", "headgate_publish"


def _of(database: int) -> str:
    """Return the mark of a database in the names of channels."""
    return f"@{database}" if database else ""


def revoked_channel(database: int) -> str:
    """Return the channel of the news of what is revoked."""
    return f"{REVOKED}{_of(database)}"


def questions_channel(database: int) -> str:
    """Return the channel of questions to all gateway processes (questions.py)."""
    return f"hg:questions{_of(database)}"


def table_key(kind: str, process_id: str) -> str:
    """Return the key of the hash with what a process shares of a kind (shared_table.py)."""
    return f"hg:table:{kind}:{process_id}"


def answers_key(question_id: str) -> str:
    """Return the key of the list with the answers to a question."""
    return f"hg:answers:{question_id}"


def log_key(namespace: str) -> str:
    """Return the key of the namespace's stream; its entry ids are `<offset>-0`."""
    return f"hg:{{{namespace}}}:log"


def namespace_of(log_key: str) -> str:
    """Return the namespace of a stream's key."""
    return log_key[len("hg:{") : -len("}:log")]


def trial_key(namespace: str) -> str:
    """Return a key beside the namespace's log that is never there: a write to it is refused as one to the log is."""
    return f"hg:{{{namespace}}}:trial"


def head_key(namespace: str) -> str:
    """Return the key of the hash with epoch and offset (and the retention that the gateway wrote)."""
    return f"hg:{{{namespace}}}:head"


def ids_key(namespace: str, number: int) -> str:
    """Return the key of a hash with the ids of recent events, and where each event is (log.lua has its fields)."""
    return f"hg:{{{namespace}}}:id:{number}"


def epochs_key(namespace: str) -> str:
    """Return the key of the hash with the lineage of the log: each epoch with its first offset."""
    return f"hg:{{{namespace}}}:epochs"


def channel(namespace: str, topic: str, database: int = 0) -> str:
    """Return the channel on which events of a topic are published."""
    return f"hg:{{{namespace}}}{_of(database)}:{topic}"


def channel_prefix(namespace: str, database: int = 0) -> str:
    """Return what every channel of the namespace starts with; the rest is the topic."""
    return f"hg:{{{namespace}}}{_of(database)}:"


def mixed_prefix(namespace: str, database: int = 0) -> str:
    """Return what every channel of the namespace starts with that brings several topics; no channel of a topic does."""
    return f"hg:{{{namespace}}}{_of(database)}/"


def feed_channel(namespace: str, database: int = 0) -> str:
    """Return the sharded channel on which the function library repeats every logged event in a Cluster, behind its topic."""
    return f"hg:{{{namespace}}}{_of(database)}/feed"


def gateways_key(namespace: str) -> str:
    """Return the key of the sorted set of gateways that serve the namespace (score: when each last said so)."""
    return f"hg:{{{namespace}}}:gateways"


def group_key(namespace: str, group: str) -> str:
    """Return the key of a consumer group's hash; its other keys begin with it and a colon (groups.lua builds the same names)."""
    return f"hg:{{{namespace}}}:group:{group}"


def group_in_log(group: str, epoch: str) -> str:
    """Return what Redis' own group on the log is called that a consumer reads with (groups.lua builds the same name)."""
    return f"{group}@{epoch}"


def schemas_key(namespace: str) -> str:
    """Return the key of the hash with the schemas of the namespace's topics (schemas/registry.py has its fields)."""
    return f"hg:{{{namespace}}}:schemas"


def seen_key(namespace: str, user: str) -> str:
    """Return the key of the sorted set of event ids that this user's browsers have shown (score: when that was told)."""
    return f"hg:{{{namespace}}}:seen:{user}"


def inbox_key(namespace: str, word: str) -> str:
    """Return the key of the hash with the inbox of the user whose word in topics this is (inbox.lua has its fields)."""
    return f"hg:{{{namespace}}}:inbox:{word}"


def mutes_key(namespace: str, word: str) -> str:
    """Return the key of the hash with what the user whose word this is has muted: channels by pattern."""
    return f"{inbox_key(namespace, word)}:mutes"


def trace_key(namespace: str, part: int) -> str:
    """Return the key of a hash with what gateways did with single events (traces.py says which)."""
    return f"hg:{{{namespace}}}:trace:{part}"


def user_channel(namespace: str, user: str, database: int = 0) -> str:
    """Return the channel on which the function library publishes every logged event under `users.<user>`, behind its topic.

    Not one that `channel_prefix` begins, so that whoever listens to the whole feed does not get these events twice.
    """
    return f"hg:{{{namespace}}}{_of(database)}/users.{user}"


def presence_key(namespace: str) -> str:
    """Return the key of the sorted set of processes with members (score: when each last beat); presence.lua builds the others."""
    return f"hg:{{{namespace}}}:presence"


def presence_database_key(namespace: str, database: int) -> str:
    """Return the name by which presence.lua learns the database of its channels. There is no such key."""
    return f"hg:{{{namespace}}}:presence{_of(database)}"


def presence_topic_key(namespace: str, topic: str) -> str:
    """Return the key of the set of processes that have members in a topic."""
    return f"hg:{{{namespace}}}:presence:topic:{topic}"


def presence_members_key(namespace: str, topic: str, process: str) -> str:
    """Return the key of the hash with a process's members in a topic, by user."""
    return f"hg:{{{namespace}}}:presence:members:{topic}:{process}"


def presence_news_key(namespace: str) -> str:
    """Return the key of the list of `occupied` and `vacated` events that are to be published."""
    return f"hg:{{{namespace}}}:presence:news"


def presence_channel(namespace: str, topic: str, database: int = 0) -> str:
    """Return the channel of the changes of a topic's members. Not one that `channel_prefix` begins."""
    return f"hg:{{{namespace}}}{_of(database)}/presence.{topic}"
