"""Requests of clients, over Socket.IO or as a stream, and their answers.

In: joined clients, from the population. Out: acknowledgements; events to Redis, from all callers of a moment together.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from headgate.node.access.access import Access
from headgate.node.cluster.answers import Answering
from headgate.node.cluster.cluster import Cluster
from headgate.node.namespace import Namespace
from headgate.node.population.joining import Joining
from headgate.redis.questions import HANDLED, HandledQuestion
from headgate.services.publisher import Publisher
from headgate.settings.settings import Settings
from headgate.transport.socketio_face import ServedNamespace, SocketIOFace

from .handlers import Handlers
from .handling import Handling
from .publish_queue import PublishQueue
from .streams import Streams


class Requests:
    """See the module. `publish_queues` has one queue per namespace, by name. `page_requests`: see `Handlers`."""

    def __init__(
        self,
        settings: Settings,
        sockets: SocketIOFace,
        namespaces: Mapping[str, Namespace],
        access: Access,
        joining: Joining,
        publisher: Publisher,
        cluster: Cluster,
    ) -> None:
        self.publish_queues = {name: PublishQueue(publisher, each.receipts.published) for name, each in namespaces.items()}
        handling = Handling(namespaces)
        cluster.answers.add({HANDLED: Answering(HandledQuestion, handling.find)})
        handlers = Handlers(settings, sockets, access, cluster, publisher, self.publish_queues, handling)
        self.page_requests = handlers.page_requests
        self.streams = Streams(namespaces, settings, joining, handlers, sockets)
        for namespace in namespaces.values():
            served = ServedNamespace(
                f"/{namespace.name}".encode(),
                connect=partial(joining.connect, namespace),
                disconnect=partial(joining.leave, namespace),
                requests=handlers.requests(namespace),
                unknown=partial(handlers.unknown, namespace),
            )
            sockets.serve(served)

    def close(self) -> None:
        """End every stream. Idempotent."""
        self.streams.close()
