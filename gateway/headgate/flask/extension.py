"""`Headgate(app)` adds the gateway to a Flask application, and publishing to every process that imports it.

    app = Flask(__name__)
    gate = Headgate(app, authenticator=who)

Settings come from `app.config`, then the environment (both as `HEADGATE_*`), to which `headgate serve` adds its options.

A process serves browsers if gevent has patched it, as `headgate serve` does, and the extra `server` is installed. It listens to
the bus from the first request on, or from `gate.start()`, which `headgate serve` calls. In any other process that imports the
application (`flask run`, `flask shell`, a test client, a Celery worker, a cron job) `publish`, `revoke` and the application's own
routes work. Such a process starts nothing, does not import gevent, connects to Redis at the first publish, and refuses browsers
that connect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, wraps
from importlib import import_module
from inspect import iscoroutinefunction, signature
from itertools import product
from threading import Lock
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from flask import Flask
from werkzeug.exceptions import MethodNotAllowed, NotFound
from werkzeug.routing import RequestRedirect

from headgate.auth.identity import Answerer, Authenticator, Authorizer, Handshake, Identity
from headgate.errors import HeadgateError, SettingsError, leaving, stays_in_its_process
from headgate.events.event import Event, JsonText
from headgate.events.numbers import check_flag
from headgate.events.topic import check_pattern, check_topic
from headgate.events.wire.requests import MAX_OFFSET
from headgate.flask.page_files import add_page_files
from headgate.installation import MissingExtra, needing
from headgate.redis.pauses import PUBLISHES
from headgate.runtime.patching import NOT_PATCHED, is_patched
from headgate.runtime.wsgi_servers import advice
from headgate.services.clients import Clients
from headgate.services.publisher import Durable, NonePublished, Prepared, Publisher, Receipt, find_redis_url, publisher_of
from headgate.settings.settings import Settings, environment, variables_set

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from headgate.node.gateway import Gateway
    from headgate.redis.inbox import InboxPage
    from headgate.runtime.shared_rates import SharedRates
    from headgate.transport.http_answers import Answer
    from headgate.transport.http_routes import Route, RoutedRequest, Routes

SOCKET_PATH = "/socket.io/"
# Some clients omit the slash.
SOCKET_PATH_WITHOUT_SLASH = "/socket.io"
STREAM_PATHS = ("/api/v1/stream", "/api/v1/request")
# A request of a client without a stream, which has nowhere to move (node/requests/streams.py).
REQUEST_PATHS = (SOCKET_PATH + "request", "/api/v1/request")
# Flask needs these for a request. They are missing in the handshake that a gateway keeps of a connection.
_BARE_REQUEST = {"REQUEST_METHOD": "GET", "wsgi.url_scheme": "http"}
AnswererT = TypeVar("AnswererT", bound=Answerer)


P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def _of(find: Callable[[Headgate], T], method: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[Headgate, P], R]:
    """Return a method of the extension that calls a method of the result of `find`. It works in every importing process."""

    @wraps(method)
    def call(self: Headgate, /, *args: P.args, **options: P.kwargs) -> R:
        return method(find(self), *args, **options)

    return call


class Headgate:
    """The Flask extension. `app.extensions["headgate"]` is the instance.

    Args:
        app: the application, or None and `init_app` later.
        authenticator: maps a handshake to an identity, or to None to refuse it. Without one, tokens decide (tokens.py:
            `HEADGATE_TOKEN_SECRET` or `HEADGATE_TOKEN_KEYS`), and `HEADGATE_ANONYMOUS_SUBSCRIBE` and `HEADGATE_DEV`.
        settings: complete settings. Without them `app.config`, as of `init_app`, and the environment are read. The environment
            wins.
    """

    def __init__(
        self, app: Flask | None = None, *, authenticator: Authenticator | None = None, settings: Settings | None = None
    ) -> None:
        if not isinstance(settings, Settings | None):
            raise TypeError(f"settings: expected Settings, got {type(settings).__name__}")
        self._authenticator: Authenticator | None = None
        self._authorizer: Authorizer | None = None
        self._app: Flask | None = None
        self._answerers: dict[str, Answerer] = {}
        self._given = settings
        self._settings: Settings | None = None
        self._config: dict[str, Any] = {}
        self._gateway: Gateway | None = None
        self._publisher: Publisher | None = None
        self._clients: Clients | None = None
        self._making = Lock()
        self._has_logged_refusal = self._started = self._closed = False
        self._front: WSGIApplication | None = None
        self._routes: dict[tuple[str, str], Route] = {}
        if authenticator is not None:
            self.authenticate(authenticator)
        if app is not None:
            self.init_app(app)

    __reduce__ = stays_in_its_process

    def init_app(self, app: Flask) -> None:
        """Attach the gateway to an application, with `app.extensions["headgate"]` and the client for a script tag.

        Called again, as when tests call an application factory, it follows the newest application, and closes everything for an
        application with other settings.

        Raises:
            SettingsError: with every fault of the configuration.
            BusUnavailable: the process must serve browsers, and no Redis is set.
        """
        if not isinstance(app, Flask):
            raise TypeError(f"app: expected a Flask application, got {type(app).__name__}")
        config = {} if self._given else variables_set(app.config)
        settings = self._given or Settings.read(config, environment())
        if self._closed or self._settings not in (None, settings):
            self.close()
            self._gateway = self._publisher = self._clients = None
            self._started = self._closed = False
        self._settings, self._config = settings, config
        app.extensions["headgate"] = self
        self._app = app
        if _cannot_serve() is None:
            _ = self.gateway  # created now, so that a fault appears at the start and not at the first request
            # Flask never sees a request for a socket, so no code of the application can come first.
            from headgate.transport.http_routes import BeginsInHub  # imported here, because the package needs gevent

            for path in (SOCKET_PATH, SOCKET_PATH_WITHOUT_SLASH):
                self.add_route("GET", path, BeginsInHub(self._handshake))
        add_page_files(app)
        self._front = app.wsgi_app = self._in_front_of(app)  # type: ignore[assignment, method-assign]

    @property
    def gateway(self) -> Gateway:
        """The gateway of the application, in a process that can serve browsers.

        Raises:
            RuntimeError: `init_app` was not called, gevent has not patched this process, or the extra `server` is not installed.
                The message gives the remedy.
        """
        if self._gateway is None:
            settings = self._attached()
            if (reason := _cannot_serve()) is not None:
                raise RuntimeError(reason)
            from headgate.node.gateway import Gateway  # imported here, because it imports gevent

            with self._making:
                self._gateway = self._gateway or Gateway(settings, self._authenticator)
                self._gateway.set_authorizer(self._authorizer)
                self._gateway.requests.page_requests.answerers = self._answerers
        return self._gateway

    @property
    def settings(self) -> Settings:
        """The settings in force, from the configuration of this application and the environment, or from the last reload.

        Raises:
            RuntimeError: `init_app` was not called.
        """
        attached = self._attached()
        return attached if self._gateway is None else self._gateway.settings

    def check_config(self) -> None:
        """Internal: raise SettingsError if settings in `app.config` have changed since `init_app` read them, without effect."""
        now = {} if self._app is None or self._given else variables_set(self._app.config)
        changed = sorted(name for name in now.keys() | self._config.keys() if now.get(name) != self._config.get(name))
        if changed:
            raise SettingsError([f"{name} in app.config changed after Headgate(app) read it: set it before" for name in changed])

    @property
    def has_authenticator(self) -> bool:
        """Whether the application identifies handshakes itself."""
        return self._authenticator is not None

    @property
    def lets_nobody_in(self) -> bool:
        """Whether no client may connect, because there is no authenticator and no setting admits one."""
        return not self.has_authenticator and self._attached().lets_nobody_in

    def admit_console(self, admit: Authenticator) -> None:
        """Admit pages of the console with the identity from `admit`, in a process that serves browsers."""
        if self._gateway is not None:
            self._gateway.access.logins.console = admit

    def authenticate(self, authenticator: Authenticator) -> Authenticator:
        """Set the authenticator; a decorator. It runs in a request context of the handshake's request, which is not saved.

        So it may read `request`, `session` and, with Flask-Login, `current_user`.
        """
        self._authenticator = self._in_context(_function(authenticator, "authenticator", "handshake"))
        if self._gateway is not None:
            self._gateway.set_authenticator(self._authenticator)
        return authenticator

    def authorize(self, authorizer: Authorizer) -> Authorizer:
        """Set the function that decides each pattern after the grants; a decorator.

        It gets the identity, the pattern, and the action `subscribe`, `replay` or `presence`, and returns True to allow it. Any
        other result refuses with `forbidden`, and so does raising `Forbidden`. Any other exception, or more than 5 s for all
        patterns of a request, refuses with `authorize_failed`, and the page tries again. It runs in an application context,
        and may wait. A yes is remembered for the connection until its grants change.
        """
        self._authorizer = self._in_context(_function(authorizer, "authorizer", "identity", "pattern", "action"))
        if self._gateway is not None:
            self._gateway.set_authorizer(self._authorizer)
        return authorizer

    def on_request(self, name: str) -> Callable[[AnswererT], AnswererT]:
        """Let a function answer the page's `request(gate, name, data)`; a decorator.

        It gets a `PageRequest` and returns JSON data, as `publish` takes it, of at most HEADGATE_MAX_PAYLOAD_BYTES. A
        `HeadgateError` that it raises, such as `RequestRefused` or `Forbidden`, refuses the request with its code. For any
        other exception the page gets only `request_failed`. The function runs in its own greenlet and application context, and
        may wait. After HEADGATE_REQUEST_TIMEOUT_S, and when the page cancels, `GreenletExit` is raised in its wait. The name
        has the grammar of a topic, and a page needs a publish grant for it.

        Raises:
            InvalidTopic: the name is invalid.
            ValueError: another function answers it. The same one may be defined again, as by an application factory.
        """
        check_topic(name)

        def register(function: AnswererT) -> AnswererT:
            known: Any = getattr(self._answerers.get(name), "__wrapped__", function)
            if getattr(known, "__code__", known) is not getattr(function, "__code__", function):
                raise ValueError(f"on_request({name!r}): another function answers it")

            self._answerers[name] = self._in_context(_function(function, f"on_request({name!r})", "request"))
            return function

        return register

    def _in_context(self, function: Callable[P, T]) -> Callable[P, T]:
        """Return the function in a context of the application, which returns a database's session afterwards.

        For a function of a handshake it is the context of the handshake's request.
        """

        @wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> T:
            assert self._app is not None  # only an attached application serves
            shown = args[0] if args else None
            with (
                self._app.request_context({**_BARE_REQUEST, **shown.environ})
                if isinstance(shown, Handshake)
                else self._app.app_context()
            ):
                return function(*args, **kwargs)

        return called

    def check_authorized(self, identity: Identity, pattern: str, action: str) -> None:
        """Ask the function of `authorize` about an HTTP caller whose grants cover a pattern. May wait.

        It decides for users only. An API key belongs to the operator.

        Raises:
            Forbidden.
            AuthorizeFailed: the function raised, or took too long.
            RuntimeError: as `gateway`.
        """
        if identity.scopes is None:
            self.gateway.authorizing.ask(identity, pattern, action)

    def publish(
        self,
        topic: str,
        data: object,
        id: str | None = None,
        namespace: str | None = None,
        *,
        user: str | None = None,
        by: str | None = None,
        durable: Durable = None,
        traceparent: str | None = None,
        id_for_s: int | None = None,
    ) -> Receipt:
        """Publish an event, to everyone or to one `user`; return its receipt. See `Publisher.publish`. May switch greenlets.

        Works in every process that imports the application.

        Raises:
            UnknownNamespace: this gateway does not serve it.
            HeadgateError: as `Publisher.publish`.
        """
        served = self._attached().served(namespace)
        receipt = self._find_publisher().publish(
            topic, data, id, served, user=user, by=by, durable=durable, traceparent=traceparent, id_for_s=id_for_s
        )
        if self._gateway is not None and served in self._gateway.namespaces:
            self._gateway.namespaces[served].receipts.published((receipt,))
        return receipt

    def publish_each(
        self,
        events: Sequence[tuple[str, object, str | None]],
        namespace: str | None = None,
        *,
        by: str | None = None,
        all_or_none: bool = False,
        traceparent: str | None = None,
        id_for_s: int | None = None,
    ) -> list[Receipt | HeadgateError]:
        """Publish events (topic, data, id) independently; return a receipt or an error for each. May switch greenlets.

        In a gateway they go to Redis together with the events of other callers at that moment (node/requests/publish_queue.py).
        `by`, `traceparent` and `id_for_s` are as of `Publisher.publish`. With `all_or_none`, nothing is published if any event
        is invalid. A refusal by Redis itself comes too late for that.

        Raises:
            UnknownNamespace: this gateway does not serve it.
            LimitReached: the queue is full; nothing was published.
            Paused: an operator has paused it; nothing was published.
            NonePublished: with `all_or_none`, an event is invalid.
        """
        check_flag(all_or_none, "all_or_none")
        served = self._attached().served(namespace)
        gateway = self._gateway
        if gateway is not None:
            gateway.cluster.pauses.check(PUBLISHES, served)
        publisher = self._find_publisher() if gateway is None else gateway.publisher
        prepared = publisher.prepare_each(events, served, by=by, traceparent=traceparent, id_for_s=id_for_s)
        valid = [event for event in prepared if isinstance(event, Prepared)]
        if all_or_none and len(valid) != len(prepared):
            raise NonePublished({at: each for at, each in enumerate(prepared) if isinstance(each, HeadgateError)})
        outcomes = _published(publisher, valid) if gateway is None else gateway.requests.publish_queues[served].publish(valid)
        if len(valid) == len(prepared):
            return outcomes
        rest = iter(outcomes)
        return [next(rest) if isinstance(event, Prepared) else event for event in prepared]

    def publishes_at_once(self, handshake: Handshake) -> Identity | None:
        """Internal: return the identity of an earlier handshake if neither `identify` nor `begin_publish` waits or refuses it."""
        gateway = self._gateway
        if gateway is None or gateway.publisher.checks_schemas:
            return None
        return gateway.access.logins.identified_at_once(handshake)

    def begin_publish(
        self,
        event: tuple[str, JsonText, str | None],
        namespace: str,
        done: Callable[[Receipt | HeadgateError], object],
        *,
        by: str,
        traceparent: str | None = None,
        id_for_s: int | None = None,
    ) -> None:
        """Internal: publish an event of checked parts as `publish_each`, but without a wait. `done` gets its outcome in the hub.

        Call `publishes_at_once` before. Raises LimitReached, Paused, PayloadTooLarge.
        """
        gateway = self._gateway or self.gateway
        gateway.cluster.pauses.check(PUBLISHES, namespace)
        prepared = gateway.publisher.prepare_checked(*event, namespace, by, traceparent, id_for_s)
        gateway.requests.publish_queues[namespace].begin(prepared, done)

    def _find_publisher(self) -> Publisher:
        """Return the gateway's publisher, or a separate one if there is no gateway."""
        settings = self._attached()
        if self._gateway is not None:
            return self._gateway.publisher
        with self._making:
            if self._publisher is None:
                self.check_config()
                self._publisher = publisher_of(settings, find_redis_url(settings, within_s=0.0))  # a request waits for it
        return self._publisher

    def _find_clients(self) -> Clients:
        settings = self._attached()
        with self._making:
            if self._clients is None:
                self.check_config()
                self._clients = Clients(find_redis_url(settings, within_s=0.0))
        return self._clients

    publish_ephemeral = _of(_find_publisher, Publisher.publish_ephemeral)
    revoke = _of(_find_publisher, Publisher.revoke)
    position = _of(_find_publisher, Publisher.position)
    presence = _of(_find_publisher, Publisher.presence)
    presence_page = _of(_find_publisher, Publisher.presence_page)

    clients = _of(_find_clients, Clients.page)
    client = _of(_find_clients, Clients.client)
    disconnect = _of(_find_clients, Clients.disconnect)
    send = _of(_find_clients, Clients.send)
    regrant = _of(_find_clients, Clients.regrant)

    def identify(self, handshake: Handshake) -> Identity:
        """Return the identity of a handshake, by the same authenticator, revocations and expiry as for a connection.

        Raises:
            Unauthorized: with the reason.
            RuntimeError: as `gateway`.
        """
        return (self._gateway or self.gateway).access.logins.identify(handshake, again=True)

    def check_revoked(self, identity: Identity) -> None:
        """Refuse a revoked identity. Never waits.

        Raises:
            Unauthorized: it is revoked.
            BusUnavailable: this gateway does not know the revocations yet.
            RuntimeError: as `gateway`.
        """
        self.gateway.access.revocations.check(identity)

    def events(
        self, pattern: str, first: int = 1, last: int | None = None, namespace: str | None = None
    ) -> tuple[str, list[Event], int | None]:
        """Return the log's epoch, a page of matching events from offset `first`, and the offset to continue from or None.

        Skips offsets below the oldest one of the log. May switch greenlets.

        Raises:
            UnknownNamespace, InvalidPattern, BusUnavailable, BusRefused.
            RuntimeError: as `gateway`.
        """
        space = self.gateway.namespaces[self._attached().served(namespace)]
        epoch = space.bus.epoch
        events, next_ = space.search.page(check_pattern(pattern), first, MAX_OFFSET if last is None else last, epoch)
        return epoch or "", events, next_

    def current_inbox(
        self, read: Callable[[], InboxPage], had: tuple[str, int] | None = None, namespace: str | None = None
    ) -> InboxPage:
        """Return a page of an inbox, not older than the events of this gateway and of its reader (epoch, offset).

        May switch greenlets. Raises as `Namespace.current_inbox`, UnknownNamespace, and RuntimeError as `gateway`.
        """
        return self.gateway.namespaces[self._attached().served(namespace)].current_inbox(read, had)

    def ready(self) -> Mapping[str, object]:
        """Return `{ready, bus, namespaces}`, whether events flow. Never waits. Not ready in a process without browsers."""
        if self._gateway is None and (reason := _cannot_serve()) is not None:
            return {"ready": False, "bus": "down", "error": reason, "namespaces": {}}
        return self.gateway.ready()

    def add_route(self, method: str, path: str, route: Route) -> None:
        """Answer requests below WSGI, where no code of the application sees them."""
        self._routes[method, path] = route

    def share_rates(self, *rates: SharedRates) -> None:
        """Apply rates over all gateways of this Redis, in a process that serves browsers."""
        if self._gateway is not None:
            for each in rates:
                self._gateway.cluster.share(each)

    def routes(self, app: Flask) -> Routes:
        """Return the routes that the HTTP server answers below WSGI, for an application about to be served.

        Empty if the application's `wsgi_app` was wrapped after `init_app`, because the wrapper expects to see every request.
        """
        return dict(self._routes) if app.wsgi_app == self._front else {}

    def answers_to(self, environ: Mapping[str, Any]) -> bool:
        """Return whether a request is to one of this gateway's hosts. The WSGI side refuses others. Starts the gateway."""
        return self._begun().answers_to(environ)

    def _begun(self) -> Gateway:
        gateway = self._gateway or self.gateway
        if not self._started:
            gateway.start()
            self._started = True
        return gateway

    def start(self) -> None:
        """Start listening to the bus before the first request. Idempotent.

        Raises:
            RuntimeError: as `gateway`.
        """
        self.gateway.start()

    def close(self) -> None:
        """End every session, stop listening, and close the connections to Redis. Idempotent."""
        self._closed = True
        for part in (self._gateway, self._publisher, self._clients):
            if part is not None:
                part.close()

    def _attached(self) -> Settings:
        if self._settings is None:
            raise RuntimeError("Headgate is not attached to an application yet: call init_app(app)")
        return self._settings

    def _in_front_of(self, app: Flask) -> WSGIApplication:
        """Return a WSGI application with the gateway on Socket.IO's path and the streams', and `app` everywhere else."""
        inner: WSGIApplication = app.wsgi_app
        outer: WSGIApplication | None = None
        own: frozenset[str] | None = None

        def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            nonlocal outer, own
            if environ["PATH_INFO"] == SOCKET_PATH_WITHOUT_SLASH and "EIO=" in environ.get("QUERY_STRING", ""):
                environ["PATH_INFO"] = SOCKET_PATH
            own = _own_paths(app) if own is None else own  # at the first request an application has all its routes
            path = str(environ["PATH_INFO"])
            is_ours = (path.startswith(SOCKET_PATH) or path in STREAM_PATHS) and path not in own
            if self._gateway is None and _cannot_serve() is not None:
                return self._refuse(app, environ, start_response) if is_ours else inner(environ, start_response)
            gateway = self.gateway
            gateway.start()
            comes = is_ours and path not in REQUEST_PATHS and "sid=" not in environ.get("QUERY_STRING", "")
            if gateway.draining and comes:
                # Not CONNECT_ERROR. A load balancer takes it for success, and socket.io clients do not come back after it.
                return self._refusal("503 Service Unavailable", leaving().to_wire(), environ)(environ, start_response)
            outer = outer or gateway.wsgi_app(inner, own)
            return outer(environ, start_response)

        return answer

    def _handshake(self, request: RoutedRequest) -> Answer | None:
        """Answer a request for a WebSocket below WSGI. A gateway about to stop leaves newcomers to `_in_front_of`."""
        gateway = self._begun()
        return None if gateway.draining else gateway.handshake(request)

    def _refuse(self, app: Flask, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Refuse a browser in a process that serves none. Logs only the first, because browsers keep retrying."""
        message = f"{advice(environ)}. Publishing works here as it is."
        if not self._has_logged_refusal:
            self._has_logged_refusal = True
            app.logger.error("A browser was refused: %s", message)
        error = {"code": "not_implemented", "message": message, "retry": False}
        return self._refusal("501 Not Implemented", error, environ)(environ, start_response)

    def _refusal(self, status: str, error: Mapping[str, Any], environ: WSGIEnvironment) -> Answer:
        """Return a refusal that pages of the allowed origins may read."""
        from headgate.node.access.origin import readable_by_pages
        from headgate.transport.http_answers import error_answer

        return readable_by_pages(self._attached(), error_answer(status, error), environ)


def _cannot_serve() -> str | None:
    """Return the reason why this process cannot serve browsers, with the remedy, or None if it can."""
    return _missing_extra() if is_patched() else NOT_PATCHED


@cache
def _missing_extra() -> str | None:
    try:
        with needing("server", "serving browsers"):
            import_module("headgate.node.gateway")
    except MissingExtra as error:
        return str(error)
    return None


def _function(value: T, name: str, *arguments: str) -> T:
    """Check a function of the application. Raises TypeError for a coroutine, other arguments, or anything else."""
    expected = f"{name}: expected a function of ({', '.join(arguments)})"
    if not callable(value):
        raise TypeError(f"{expected}, got {type(value).__name__}")
    if iscoroutinefunction(value):
        raise TypeError(f"{expected}, not a coroutine (async def)")
    with suppress(ValueError):  # a function in C without a signature
        try:
            signature(value, follow_wrapped=False).bind(*arguments)
        except TypeError as error:
            raise TypeError(f"{expected}; this one has another signature: {error}") from error
    return value


def _published(publisher: Publisher, events: Sequence[Prepared]) -> list[Receipt | HeadgateError]:
    """Publish without a gateway. If Redis does not answer, every event has that error."""
    try:
        return publisher.publish_prepared(events)
    except HeadgateError as error:
        return [error] * len(events)


def _own_paths(app: Flask) -> frozenset[str]:
    """Return the STREAM_PATHS for which an application has its own route. A route for any path does not count."""
    own, url_map = set(), app.url_map
    places = {rule.host or rule.subdomain or "" for rule in url_map.iter_rules()}
    hosts = [url_map.bind(each) if url_map.host_matching else url_map.bind("", subdomain=each) for each in places]
    for urls, path, method in product(hosts, STREAM_PATHS, ("GET", "POST")):
        try:
            rule, _ = urls.match(path, method, return_rule=True)
        except (NotFound, MethodNotAllowed):
            continue
        except RequestRedirect:  # to the same path with a slash at its end
            own.add(path)
        else:
            if "<path:" not in rule.rule:
                own.add(path)
    return frozenset(own)
