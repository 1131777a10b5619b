"""Which receipts a publisher reports to a Redis that it connects to."""

from headgate.redis.bounded import MAX_EPOCHS, NewestReceipts


def test_the_newest_receipt_of_each_epoch_is_reported() -> None:
    """The receipts of several threads may come in any order, and a machine may be reverted to an epoch before."""
    newest = NewestReceipts()
    for receipt in (("e1", 7), ("f1", 2), ("e1", 9), ("e1", 8), ("e2", 3)):
        newest.note(*receipt)

    assert newest.words() == ["e1", 9, "f1", 2, "e2", 3]


def test_the_epochs_that_were_met_last_are_reported() -> None:
    """The report is bounded."""
    newest = NewestReceipts()
    for number in range(MAX_EPOCHS + 3):
        newest.note(f"e{number}", 1)

    words = newest.words()

    assert len(words) == 2 * MAX_EPOCHS
    assert (words[0], words[-2]) == ("e3", f"e{MAX_EPOCHS + 2}")
