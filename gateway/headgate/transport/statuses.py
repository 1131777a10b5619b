"""The status of an HTTP answer for each error of the tree (RFC 9110, section 15). No I/O."""

from __future__ import annotations

from http import HTTPStatus

from headgate.errors import HeadgateError, LimitReached

# Any other code is the caller's fault: 400.
STATUS_BY_CODE = {
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "unknown_namespace": 404,
    "not_acceptable": 406,
    "conflict": 409,
    "payload_too_large": 413,
    "unsupported_media_type": 415,
    "unknown_host": 421,
    "origin_not_allowed": 403,
    "batch_refused": 422,
    "schema_violation": 422,
    # 429 where waiting helps.
    "limit_reached": 409,
    "bus_refused": 502,
    "bus_unavailable": 503,
    "overloaded": 503,
    "paused": 503,
}
STATUS_LINES = {status.value: f"{status.value} {status.phrase}" for status in HTTPStatus}
# For an error without its own time that can be tried again.
RETRY_AFTER_S = 1


def status_of(error: HeadgateError) -> int:
    """Return the status for an error."""
    return 429 if error.code == LimitReached.code and error.retry else STATUS_BY_CODE.get(error.code, 400)
