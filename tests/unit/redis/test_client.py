"""What a Redis URL alone tells, without a connection."""

from __future__ import annotations

import pytest
import structlog

from headgate.node.gateway import warn_of_open_redis


@pytest.mark.parametrize(
    ("url", "is_so"),
    [
        ("redis://redis.internal:6379/0", True),
        ("redis://10.0.0.7", True),
        ("rediss://redis.internal/0", True),
        ("redis://user@redis.internal", True),
        ("redis://:secret@redis.internal", False),
        ("redis://user:secret@redis.internal/0", False),
        ("redis://redis.internal/0?password=secret", False),
        ("rediss://redis.internal/0?ssl_certfile=own.pem", False),
        ("redis://127.0.0.1:6379", False),
        ("redis://[::1]:6379", False),
        ("redis://localhost/0", False),
        ("redis:///0", False),
        ("unix:///run/redis.sock", False),
    ],
)
def test_a_redis_on_another_machine_should_have_a_password(url: str, is_so: bool) -> None:
    """A gateway says so when it is made, without what the URL holds of secrets."""
    with structlog.testing.capture_logs() as lines:
        warn_of_open_redis(url)
    assert [line["event"] for line in lines if line["log_level"] == "warning"] == ["Redis without a password"] * is_so
    assert "secret" not in str(lines)
