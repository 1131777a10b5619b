"""A consumer of one's own: it writes a line for each shipped order."""

from dataclasses import dataclass

from headgate.consumers import Consumer, Delivery, Reject, Retry, option, required, text


@dataclass(frozen=True)
class LedgerOptions:
    file: str = option(required(), text("a path"), "Where lines are added.")


class Ledger(Consumer):
    Options = LedgerOptions

    def handle(self, delivery: Delivery) -> None:
        order = delivery.value()
        if not isinstance(order, dict):
            raise Reject("expected an object")  # never again: a dead letter
        try:
            with open(self.options.file, "a") as file:
                file.write(f"{delivery.identity} {delivery.topic} {order.get('carrier')}\n")
        except OSError as error:
            raise Retry(error.strerror or "cannot write") from error  # later, and later
