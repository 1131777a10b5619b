"""The demo's mails: the output of the email consumer on the terminal, without a mail server.

In: the options of `type = "email"` (the server is not used). See demo.toml.
"""

from __future__ import annotations

from headgate.consumers import Delivery
from headgate.consumers.email.consumer import Email
from headgate.consumers.process.dry_run import printable_lines
from headgate.runtime.operator_lines import say


class PrintedMail(Email):
    """Prints each mail instead of sending it."""

    def handle(self, delivery: Delivery) -> None:
        lines = printable_lines(self.preview(delivery))
        say("\n    ".join(["the demo would mail:", *lines]))
