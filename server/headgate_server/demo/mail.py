"""The demo's mails: what the email consumer would send, printed on the terminal. To see them takes no mail server.

In: the same options as `type = "email"`, of which the server is not used. See demo.toml.
"""

from __future__ import annotations

from headgate.consumers import Delivery
from headgate.consumers.email.consumer import Email
from headgate.consumers.process.dry_run import printable_lines
from headgate.runtime.operator_lines import say


class PrintedMail(Email):
    """Prints each mail in place of sending it."""

    def handle(self, delivery: Delivery) -> None:
        """Print the mail to one recipient."""
        lines = printable_lines(self.preview(delivery))
        say("\n    ".join(["the demo would mail:", *lines]))
