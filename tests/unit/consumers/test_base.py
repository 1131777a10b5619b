"""The answers of a consumer: those that its author may write in them."""

import pytest

from headgate.consumers import OutcomeUnknown, Reject, Retry


@pytest.mark.parametrize("answer", [Retry, OutcomeUnknown, Reject])
@pytest.mark.parametrize(
    ("given", "reason"), [("gone", "gone"), (OSError("disk full"), "disk full"), ("no \udcff.txt", "no ?.txt"), (None, "None")]
)
def test_any_reason_becomes_text_that_can_be_stored(answer: type[Retry | Reject], given: object, reason: str) -> None:
    """`raise Retry(error)` is easily written, and a name of a file may have bytes that UTF-8 has not."""
    assert answer(given).reason == reason


class Sold(Reject):
    """An error that keeps other parts."""

    def __init__(self, order: int) -> None:
        self.order = order


@pytest.mark.parametrize("error", [Retry(), OutcomeUnknown(), Reject(), Sold(7)])
def test_an_error_needs_no_reason(error: Retry | Reject) -> None:
    """Of ours, or derived from one of ours."""
    assert error.reason == "no reason given"


def test_a_wait_that_is_no_number_is_refused_where_it_is_written() -> None:
    """So that it is a fault of the code, with its line."""
    assert (Retry("busy").after_s, Retry("busy", 5).after_s, Retry("busy", "7.5").after_s) == (None, 5.0, 7.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="soon"):
        Retry("busy", "soon")  # type: ignore[arg-type]
