"""Short messages about events, with a title and a body from the operator's templates or built in. No I/O."""

from __future__ import annotations

from headgate.settings.options import text

from .base import Delivery, Reject
from .templates import Template, TemplateFault, template_faults, view

MAX_TITLE_CHARACTERS, MAX_BODY_CHARACTERS = 1_000, 32_000
DEFAULT_TITLE = "{{ event.data.title if event.data is mapping and event.data.title is string else event.topic }}"
DEFAULT_BODY = """\
{% if event.data is mapping %}
{% for key, value in (event.data|items|list)[:20] if key != "title" %}
{{ key|truncate(60) }}: {{ (value if value is string else value|tojson)|string|truncate(500) }}
{% endfor %}
{% else %}
{{ (event.data if event.data is string else event.data|tojson)|string|truncate(2000) }}
{% endif %}
"""


# What the options `title` and `body` of a consumer with messages are, and what is expected.
TITLE = "Title of the message, from `event`. Not set: the data's `title`, else the topic."
BODY = "Body of the message, from `event`. Not set: the data, a line for each of the first 20 keys."
TEMPLATE = text("a Jinja2 template")


class Message:
    """The templates of a message. `title` and `body` are Jinja2; None: the built-in ones.

    Raises:
        TemplateFault: one of them is not a template.
    """

    def __init__(self, title: str | None, body: str | None) -> None:
        self._title = Template("title", title or DEFAULT_TITLE, limit=MAX_TITLE_CHARACTERS)
        self._body = Template("body", body or DEFAULT_BODY, limit=MAX_BODY_CHARACTERS)

    def render(self, delivery: Delivery) -> tuple[str, str]:
        """Return title and body of an event, stripped; one of them may be empty.

        Raises:
            Reject: the templates do not fit the event, or both are empty.
        """
        values = {"event": view(delivery)}
        try:
            title, body = self._title.render(values).strip(), self._body.render(values).strip()
        except TemplateFault as error:
            raise Reject(str(error)) from error
        if not title and not body:
            raise Reject("title and body are empty")
        return title, body


def message_faults(title: str | None, body: str | None) -> list[str]:
    """Return the faults of templates, a line each."""
    return [
        *template_faults("title", title, MAX_BODY_CHARACTERS),
        *template_faults("body", body, MAX_BODY_CHARACTERS),
    ]
