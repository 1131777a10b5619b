"""The names of metrics: those that queries and alert rules ask for, and those that an exposition has. No I/O."""

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

_NAME = re.compile(r"\b(?:headgate|process|python)_[a-z0-9_]+")
_TYPE = re.compile(r"^# TYPE (\S+) (\S+)$", re.MULTILINE)
_SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("", "_sum", "_count")}


def exported(exposition: str) -> set[str]:
    """Return the names of all series that an exposition in text has, or would have once something is counted."""
    return {name + suffix for name, kind in _TYPE.findall(exposition) for suffix in _SUFFIXES.get(kind, ("",))}


def asked(expression: str) -> set[str]:
    """Return the names of the series of ours that a PromQL expression asks for."""
    without_text = re.sub(r'"(?:[^"\\]|\\.)*"', '""', expression)
    return set(_NAME.findall(without_text))


def expressions_of_dashboard(text: str) -> list[str]:
    """Return every expression of a Grafana dashboard, those of its variables included."""
    return list(_expressions(json.loads(text)))


def expressions_of_rules(text: str) -> list[str]:
    """Return every expression of a file of alert rules, which is YAML."""
    return list(_expressions(yaml.safe_load(text)))


def _expressions(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        for name, value in part.items():
            if name in ("expr", "query", "definition") and isinstance(value, str):
                yield value
            else:
                yield from _expressions(value)
    elif isinstance(part, list):
        for each in part:
            yield from _expressions(each)
