"""The receipts of a published file, without Redis. tests/integration/cli/test_publish_file.py kills commands that write them."""

from pathlib import Path

import pytest

from headgate.cli.receipts import Digest, Receipts, ReceiptsFault
from headgate.redis.event_ids import Standing
from headgate.redis.lineage import Lineage

LINE, BEFORE = Lineage("e", {}, {}), Standing("e", 0, 0)


def test_receipts_are_read_again_with_what_has_no_answer(tmp_path: Path) -> None:
    """Lines that the log has lost are not in it; a batch without an answer is kept until it has one."""
    path, digest = str(tmp_path / "receipts"), Digest()
    for line in (b"one\n", b"two\n", b"three\n"):
        digest.add(line)
    with Receipts(path) as receipts:
        batch = receipts.send(1, 3, digest.text(), BEFORE)
        receipts.settle(batch, [(1, "e", 1), (2, "e", 2), (3, "e", 4)])
        receipts.send(4, 4, "of all four", BEFORE)
    with Receipts(path) as receipts:
        assert receipts.epochs() == {"e"}
        assert [(each.first, each.last) for each in receipts.unsettled(LINE, 4)] == [(4, 4)]
        assert receipts.published(LINE, 2) == (bytearray(b"\0\1\1\0"), 1)
        with pytest.raises(ReceiptsFault, match="the file has changed since its lines 1 to 4 were published"):
            receipts.check_unchanged([b"one", b"two", b"3", b"four"])
        with pytest.raises(ReceiptsFault, match="another headgate publish is at work"):
            Receipts(path)
        receipts.finish()
    with pytest.raises(ReceiptsFault, match="is no regular file"):
        Receipts("/dev/null")
