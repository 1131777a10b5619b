"""The measured servers, each with the defaults of its documentation."""

from __future__ import annotations

from .centrifugo import CENTRIFUGO, CENTRIFUGO_HISTORY, CENTRIFUGO_IDS
from .headgate import APPEND, FUNCTIONS, HEADGATE, LOG_KEY, fcall, headgate_connect, mint
from .sink import SINK, SINK_ADDRESSED
from .socketio_peers import NODE, NODE_STREAMS
from .variant import Addressing, Kind, Variant

__all__ = [
    "FUNCTIONS",
    "LOG_KEY",
    "VARIANTS",
    "Addressing",
    "Kind",
    "Variant",
    "fcall",
    "headgate_connect",
    "mint",
]

_ALL = (
    HEADGATE,
    APPEND,
    NODE,
    NODE_STREAMS,
    CENTRIFUGO,
    CENTRIFUGO_HISTORY,
    CENTRIFUGO_IDS,
    SINK,
    SINK_ADDRESSED,
)
VARIANTS = {variant.name: variant for variant in _ALL}
