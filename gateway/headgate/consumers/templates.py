"""Templates over events, for mails and other texts. Only this file imports Jinja2. No I/O.

In: a template's trusted source from the operator, and untrusted values from events. Out: text of bounded length, or a
`TemplateFault` that quotes the template but never the event. The sandbox lets no value reach Python's internals, HTML is
escaped, and an undefined name is a fault instead of a gap in the text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import NoReturn, Self

import jinja2
import jinja2.meta
import jinja2.runtime
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from headgate.events.topic import user_of
from headgate.settings.options import text

from .base import Delivery, Reject

MAX_SOURCE_CHARACTERS = 100_000
SHOWN_CHARACTERS = 80


class TemplateFault(Exception):
    """A template that is invalid or does not fit the event. One line names the template, its line and the fault."""


@dataclass(frozen=True, slots=True)
class EventView:
    """An event in templates: `{{ event.topic }}`.

    `title` is the data's title, else the topic. `time` is a datetime in UTC. `user` is "" except for a user's own topic.
    """

    topic: str
    id: str
    time: datetime
    data: object
    namespace: str
    offset: int | None
    user: str
    title: str


def view(delivery: Delivery) -> EventView:
    """Return the part of a delivery that templates may read."""
    topic, at = delivery.topic, datetime.fromtimestamp(delivery.time_ms / 1000, UTC)
    data = delivery.value()
    title = data.get("title") if isinstance(data, Mapping) else None
    shown = title if isinstance(title, str) and title.strip() else topic
    return EventView(topic, delivery.id or "", at, data, delivery.namespace, delivery.offset, user_of(topic) or "", shown)


class Template:
    """One compiled template.

    Args:
        name: its name in faults, such as the option that holds it.
        source: Jinja2.
        html: escape every value.
        limit: maximum characters of its output.

    Raises TemplateFault if the source is too long or not a template.
    """

    def __init__(self, name: str, source: str, *, html: bool = False, limit: int = 10_000) -> None:
        self.name, self._limit = name, limit
        self._lines = source.splitlines()
        if len(source) > MAX_SOURCE_CHARACTERS:
            raise TemplateFault(f"{name} is longer than {MAX_SOURCE_CHARACTERS} characters")
        environment = _environment(html)
        try:
            self._compiled = environment.from_string(environment.parse(source))
            self.names = frozenset(jinja2.meta.find_undeclared_variables(environment.parse(source)))
        except jinja2.TemplateSyntaxError as error:
            raise TemplateFault(f"{name}, line {error.lineno}: {error.message}") from error

    def render(self, values: Mapping[str, object]) -> str:
        """Return the text.

        Raises TemplateFault for an undefined name, an operation that does not fit the event, or a text above the limit.
        """
        parts: list[str] = []
        length = 0
        try:
            for part in self._compiled.generate(values):
                parts.append(part)
                length += len(part)
                if length > self._limit:
                    raise TextTooLong(f"{self.name}: the text is longer than {self._limit} characters")
        except TemplateFault:
            raise
        except Exception as error:  # noqa: BLE001 - whatever an expression raises on data that it was not written for
            self._refuse(error)
        return "".join(parts)

    def check(self, sample: Mapping[str, object]) -> str | None:
        """Return the fault independent of the event, or None. `sample` has all names of `render`."""
        if unknown := sorted(self.names - sample.keys()):
            return f"{self.name}: unknown name {unknown[0]!r}; there are {', '.join(sorted(sample))}"
        try:
            self.render(sample)
        except TemplateFault as fault:
            # Other errors may come from the sample, which stands for data of any type.
            if isinstance(fault, TextTooLong) or isinstance(fault.__cause__, jinja2.TemplateError):
                return str(fault)
        return None

    def _refuse(self, error: Exception) -> NoReturn:
        """Raise the fault for an error. Its text may quote the event, so only its kind and the template's line are reported."""
        number, trace = 0, error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == "<template>":
                number = trace.tb_lineno
            trace = trace.tb_next
        line = self._lines[number - 1].strip()[:SHOWN_CHARACTERS] if 0 < number <= len(self._lines) else ""
        what = next((text for kind, text in _PHRASES.items() if isinstance(error, kind)), type(error).__name__)
        raise TemplateFault(f"{self.name}, line {number} ({line}): {what}") from error


class TextTooLong(TemplateFault):
    """The text exceeds the template's limit."""


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja2's sandbox, except that `data.items` is the data's key, and that nothing is repeated a billion times."""

    intercepted_binops = frozenset({"*", "**", "%"})

    def getattr(self, obj: object, attribute: str) -> object:
        if isinstance(obj, Mapping):
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)

    def call_binop(self, context: jinja2.runtime.Context, operator: str, left: object, right: object) -> object:
        if isinstance(left, str | bytes | list | tuple) or isinstance(right, str | bytes | list | tuple):
            raise SecurityError(f"{operator} is for numbers")
        if operator == "**" and isinstance(right, int | float) and abs(right) > 100:
            raise SecurityError("an exponent is at most 100")
        return super().call_binop(context, operator, left, right)


class _Anything(jinja2.ChainableUndefined):
    """Unknown data, which has every name and supports nearly every operation."""

    def _itself(self, *_: object, **__: object) -> Self:
        return self

    def __str__(self) -> str:
        return "sample"

    def __int__(self) -> int:  # type: ignore[override]
        return 1

    def __float__(self) -> float:  # type: ignore[override]
        return 1.0

    def __iter__(self) -> Iterator[Self]:
        yield self

    def __len__(self) -> int:
        return 1

    def __bool__(self) -> bool:
        return True

    def _true(self, _: object) -> bool:
        return True

    __call__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _itself  # type: ignore[assignment]
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __neg__ = __pos__ = __round__ = _itself  # type: ignore[assignment]
    __lt__ = __le__ = __gt__ = __ge__ = __contains__ = _true  # type: ignore[assignment]


# A generic event for `check`.
SAMPLE = EventView(
    "users.42.sample", "sample-1", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), _Anything(), "sample", 1, "42", "sample"
)
_PHRASES: dict[type[Exception], str] = {
    jinja2.UndefinedError: "a name that is not there",
    jinja2.TemplateNotFound: "one template cannot include another",
    SecurityError: "not allowed in a template",
}


def render_event(template: Template, delivery: Delivery) -> str:
    """Return the text of a template over one event, stripped. Raises Reject if the template does not fit the event."""
    try:
        return template.render({"event": view(delivery)}).strip()
    except TemplateFault as fault:
        raise Reject(str(fault)) from fault


def template_faults(name: str, source: str | None, limit: int) -> list[str]:
    """Return the fault of a template over `event`, independent of the event, in at most one line. None means unset."""
    try:
        fault = None if source is None else Template(name, source, limit=limit).check({"event": SAMPLE})
    except TemplateFault as error:
        fault = str(error)
    return [fault] if fault else []


MAX_TITLE_CHARACTERS, MAX_BODY_CHARACTERS = 1_000, 32_000
DEFAULT_TITLE = "{{ event.title|truncate(900) }}"
DEFAULT_BODY = """\
{% if event.data is mapping %}
{% for key, value in (event.data|items|list)[:20] if key != "title" %}
{{ key|truncate(60) }}: {{ (value if value is string else value|tojson)|string|truncate(500) }}
{% endfor %}
{% else %}
{{ (event.data if event.data is string else event.data|tojson)|string|truncate(2000) }}
{% endif %}
"""


# The help of the options `title` and `body`, and the form that both expect.
TITLE = "Title of the message, from `event`. Not set: the data's `title`, else the topic."
BODY = "Body of the message, from `event`. Not set: the data, a line for each of the first 20 keys."
TEMPLATE = text("a Jinja2 template")


def read_message(title: str | None, body: str | None) -> Callable[[Delivery], tuple[str, str]]:
    """Return a function for the stripped title and body of an event. One of them may be empty.

    Args:
        title, body: Jinja2; None for the built-in ones.

    Raises TemplateFault for an invalid template. The function raises Reject if they do not fit the event or if both are empty.
    """
    templates = (
        Template("title", title or DEFAULT_TITLE, limit=MAX_TITLE_CHARACTERS),
        Template("body", body or DEFAULT_BODY, limit=MAX_BODY_CHARACTERS),
    )

    def render(delivery: Delivery) -> tuple[str, str]:
        title, body = (render_event(template, delivery) for template in templates)
        if not title and not body:
            raise Reject("title and body are empty")
        return title, body

    return render


def message_faults(title: str | None, body: str | None) -> list[str]:
    """Return the faults of templates, a line each."""
    return [*template_faults("title", title, MAX_TITLE_CHARACTERS), *template_faults("body", body, MAX_BODY_CHARACTERS)]


@lru_cache
def _environment(html: bool) -> jinja2.Environment:
    environment = _Sandbox(
        autoescape=html, undefined=jinja2.StrictUndefined, loader=jinja2.DictLoader({}), trim_blocks=True, lstrip_blocks=True
    )
    # With every letter, & and < as it is, and keys in the publisher's order. HTML is escaped like any other value.
    environment.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    return environment
