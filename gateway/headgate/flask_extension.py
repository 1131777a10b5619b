"""`Headgate(app)`: the gateway inside a Flask application. The one file of this package that imports Flask.

    app = Flask(__name__)
    gate = Headgate(app, authenticator=who)

Settings come from `app.config`, then the environment (both as `HEADGATE_*`), to which `headgate serve` adds its options. The bus
is listened to from the first request on, or from `gate.start()`, which `headgate serve` calls.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from flask import Flask

from .audit import audit
from .event import Event
from .gateway import Gateway, check_served
from .identity import Authenticator, Handshake, Identity
from .loop import is_patched
from .publisher import Receipt
from .requests import MAX_OFFSET, Replay
from .revocation import DEFAULT_REVOKED_S
from .settings import Settings
from .topic import check_pattern


class Headgate:
    """The Flask extension. `app.extensions["headgate"]` is the instance.

    Args:
        app: the application, or None and `init_app` later.
        authenticator: from a handshake to an identity, or None to refuse it. Without one, tokens decide (tokens.py:
            `HEADGATE_TOKEN_SECRET` or `HEADGATE_TOKEN_KEYS`), and `HEADGATE_ANONYMOUS_SUBSCRIBE` and `HEADGATE_DEV`.
        settings: complete settings; otherwise they are read from `app.config` and the environment, which wins.
    """

    def __init__(
        self, app: Flask | None = None, *, authenticator: Authenticator | None = None, settings: Settings | None = None
    ) -> None:
        self._authenticator = authenticator
        self._settings = settings
        self._gateway: Gateway | None = None
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Attach the gateway to an application: its WSGI side, `app.extensions["headgate"]`.

        Raises:
            RuntimeError: gevent has not been patched in, with the line that does it.
            SettingsError: with every fault of the configuration.
        """
        if not is_patched():
            raise RuntimeError(
                "Headgate needs gevent's cooperative sockets. Start the application with `headgate serve module:app`, or put "
                "`from gevent import monkey; monkey.patch_all()` at the very top of the program, before any other import."
            )
        settings = self._settings or Settings.read(app.config, os.environ)
        self._gateway = Gateway(settings, self._authenticator)
        app.extensions["headgate"] = self
        inner = app.wsgi_app
        outer = self._gateway.wsgi_app(inner)

        def started(environ: Mapping[str, Any], start_response: Any) -> Any:
            self.gateway.start()
            if self.gateway.draining and _is_handshake(environ):
                # Not CONNECT_ERROR, which a load balancer takes for success and after which socket.io clients do not come back.
                start_response("503 Service Unavailable", [("Content-Length", "0"), ("Retry-After", "1")])
                return []
            return outer(environ, start_response)

        app.wsgi_app = started  # type: ignore[method-assign]

    @property
    def gateway(self) -> Gateway:
        """The gateway behind the application.

        Raises:
            RuntimeError: `init_app` has not been called.
        """
        if self._gateway is None:
            raise RuntimeError("Headgate is not attached to an application yet: call init_app(app)")
        return self._gateway

    def authenticate(self, authenticator: Authenticator) -> Authenticator:
        """Set the authenticator; a decorator."""
        self._authenticator = authenticator
        if self._gateway is not None:
            self._gateway.authenticator = authenticator
        return authenticator

    def publish(
        self, topic: str, data: Any, id: str | None = None, namespace: str | None = None, *, user: str | None = None
    ) -> Receipt:
        """Publish an event, to everyone or to one `user`; return its receipt. See `Publisher.publish`. May switch greenlets.

        Raises:
            UnknownNamespace: this gateway does not serve it.
            HeadgateError: as `Publisher.publish`.
        """
        return self.gateway.publisher.publish(topic, data, id=id, namespace=check_served(self.gateway, namespace), user=user)

    def revoke(self, *, user: str | None = None, token_id: str | None = None, for_s: int = DEFAULT_REVOKED_S) -> None:
        """Refuse a user, or one token, for `for_s` seconds, on every gateway; 0 lifts it. May switch greenlets.

        Raises:
            HeadgateError: as `Publisher.revoke`.
        """
        self.gateway.publisher.revoke(user=user, token_id=token_id, for_s=for_s)
        audit.revoked(
            kind="user" if user is not None else "token", name=user or token_id or "", for_s=for_s, by="this application"
        )

    def identify(self, handshake: Handshake) -> Identity:
        """Return who a handshake is from, by the same authenticator, revocations and expiry as a connection's.

        Raises:
            Unauthorized: with the reason.
        """
        return self.gateway.identify(handshake)

    def events(
        self, pattern: str, first: int = 1, last: int | None = None, namespace: str | None = None
    ) -> tuple[str, list[Event], int | None]:
        """Read a page of the log: its epoch, matching events from offset `first` on, the offset to go on from or None.

        What lies below the oldest offset that the log still holds is passed over. May switch greenlets.

        Raises:
            UnknownNamespace, InvalidPattern, BusUnavailable, BusRefused.
        """
        found = self.gateway.namespaces[check_served(self.gateway, namespace)]
        events, next_ = found.page(Replay(check_pattern(pattern), first, MAX_OFFSET if last is None else last))
        return found.bus.epoch or "", events, next_

    def ready(self) -> dict[str, Any]:
        """Return `{ready, bus, namespaces}`: whether events flow. Never waits."""
        return self.gateway.ready()

    def start(self) -> None:
        """Start listening to the bus before the first request. Idempotent."""
        self.gateway.start()

    def close(self) -> None:
        """End every session and stop listening. Idempotent."""
        self.gateway.close()


def _is_handshake(environ: Mapping[str, Any]) -> bool:
    """Return whether a request asks for a new connection."""
    return str(environ.get("PATH_INFO")).startswith("/socket.io/") and "sid=" not in environ.get("QUERY_STRING", "")
