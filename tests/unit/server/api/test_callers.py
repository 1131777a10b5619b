"""The caller of a request whose body names the namespace: which namespaces are tried."""

import pytest
from flask import Flask

from headgate.auth.identity import Handshake, Identity
from headgate.errors import Unauthorized
from headgate.errors import UnauthorizedReason as Reason
from headgate_server.api.callers import first_known
from tests.support.recording_gate import RecordingGate

NAMESPACES = ("a", "b", "c")


class RefusingGate(RecordingGate):
    """Refuses for a reason in each namespace but `c`, and notes who asked."""

    def __init__(self, reason: Reason) -> None:
        super().__init__()
        self.reason, self.asked = reason, list[str]()

    def identify(self, handshake: Handshake) -> Identity:
        self.asked.append(handshake.namespace)
        if handshake.namespace == "c":
            return self.identity
        raise Unauthorized(self.reason)


@pytest.mark.parametrize("is_known", [False, True], ids=["a new head", "a head that has passed before"])
@pytest.mark.parametrize(
    ("token", "reason"),
    [("t", Reason.BAD_SIGNATURE), ("t", Reason.REVOKED), ("hgk_k", Reason.NOT_ACCEPTED), ("hgk_k", Reason.EXPIRED)],
)
def test_a_wrong_key_or_token_is_one_failed_login(token: str, reason: Reason, is_known: bool) -> None:
    """However many namespaces there are: its address would soon be refused, and with it everyone there."""
    gate, shown = RefusingGate(reason), Handshake("b", {"token": token}, {}) if is_known else None
    with pytest.raises(Unauthorized):
        first_known(gate, NAMESPACES, {"HTTP_AUTHORIZATION": f"Bearer {token}"}, shown)
    assert gate.asked == ["b" if is_known else "a"]


def test_a_caller_without_a_header_learns_of_it() -> None:
    """An API key needs no authenticator, so the lack of one is not the fault."""
    with Flask("api").test_request_context("/"), pytest.raises(Unauthorized, match="expected `Authorization: Bearer <API key"):
        first_known(RefusingGate(Reason.NO_AUTHENTICATOR), NAMESPACES, {})


@pytest.mark.parametrize(
    ("token", "reason"), [("t", Reason.WRONG_NAMESPACE), ("t", Reason.NOT_ACCEPTED), ("hgk_k", Reason.WRONG_NAMESPACE)]
)
def test_a_caller_may_be_known_in_a_later_namespace(token: str, reason: Reason) -> None:
    """By its key or token, or by the application, whose refusal says no more."""
    gate = RefusingGate(reason)
    assert first_known(gate, NAMESPACES, {"HTTP_AUTHORIZATION": f"Bearer {token}"})[0].namespace == "c"
    assert gate.asked == list(NAMESPACES)
