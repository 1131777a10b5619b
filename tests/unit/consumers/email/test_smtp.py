"""email/smtp.py without a server: its settings."""

from __future__ import annotations

from headgate.consumers.email.smtp import Server


def test_the_password_is_in_no_repr() -> None:
    """A traceback may show the server's."""
    assert "secret" not in repr(Server("h", 1, "tls", 1.0, "me", "secret"))
