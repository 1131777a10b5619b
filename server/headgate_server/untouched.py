"""Whether an application is still in the state of `create_app`, which decides if requests may bypass Flask.

In: the application, once at its creation and once before it is served. If it has gained hooks, error pages or a JSON provider
in between, these must run for every request, so every request then goes through Flask.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from flask import Flask, signals

_SIGNALS = (
    signals.request_started,
    signals.request_finished,
    signals.request_tearing_down,
    signals.appcontext_pushed,
    signals.appcontext_popped,
    signals.appcontext_tearing_down,
    signals.got_request_exception,
)


def watch(app: Flask) -> Callable[[Flask], bool]:
    """Return a function that later returns whether the application is unchanged."""
    made, views = _front(app), dict(app.view_functions)

    def untouched(served: Flask) -> bool:
        same_views = all(served.view_functions.get(endpoint) is view for endpoint, view in views.items())
        return served is app and same_views and _front(served) == made

    return untouched


def _front(app: Flask) -> Hashable:
    """Return everything that runs before, after and around the routes of an application."""
    hooks = (
        app.before_request_funcs,
        app.after_request_funcs,
        app.teardown_request_funcs,
        app.url_value_preprocessors,
    )
    pages = {
        (scope, code, kind): id(page)
        for scope, by_code in app.error_handler_spec.items()
        for code, by_kind in by_code.items()
        for kind, page in by_kind.items()
    }
    return (
        tuple(frozenset((scope, tuple(map(id, called))) for scope, called in by_scope.items() if called) for by_scope in hooks),
        frozenset(pages.items()),
        tuple(map(id, app.teardown_appcontext_funcs)),
        tuple(signal.has_receivers_for(app) for signal in _SIGNALS),
        (id(app.json), id(app.session_interface), type(app), app.config.get("MAX_CONTENT_LENGTH")),
    )
