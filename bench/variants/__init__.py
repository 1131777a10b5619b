"""The measured servers, each with the defaults of its documentation."""

from __future__ import annotations

from .centrifugo import CENTRIFUGO, CENTRIFUGO_HISTORY, CENTRIFUGO_IDS
from .headgate import APPEND, FUNCTIONS, HEADGATE, LOG_KEY, PYTHON, TWO, fcall, headgate_connect, mint
from .sink import SINK, SINK_ADDRESSED, SINK_EACH
from .socketio_peers import FLASK, NODE, NODE_STREAMS, STOCK
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
    PYTHON,
    APPEND,
    TWO,
    STOCK,
    FLASK,
    NODE,
    NODE_STREAMS,
    CENTRIFUGO,
    CENTRIFUGO_HISTORY,
    CENTRIFUGO_IDS,
    SINK,
    SINK_EACH,
    SINK_ADDRESSED,
)
VARIANTS = {variant.name: variant for variant in _ALL}
