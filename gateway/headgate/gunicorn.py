"""The public name of the worker class: `gunicorn -k headgate.gunicorn.Worker`."""

from .workers.gunicorn_worker import Worker

__all__ = ["Worker"]
