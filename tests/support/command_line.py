"""A command of the command line that runs, for tests of what commands print."""

from collections.abc import Iterator
from contextlib import contextmanager

import click


@contextmanager
def running(*, as_json: bool) -> Iterator[None]:
    with click.Context(click.Command("x")) as context:
        context.params["as_json"] = as_json
        yield
