"""The files of schemas: which files of a folder count, how many there may be, and their version."""

from pathlib import Path

import pytest

from headgate.errors import InvalidSchema
from headgate.services.schemas.documents import MAX_BYTES, MAX_DOCUMENT_BYTES, MAX_DOCUMENTS, documents, read_folder


def test_a_folder_is_its_json_files(tmp_path: Path) -> None:
    """Hidden files, and those of no format of schemas, do not count. Neither does a byte order mark of a Windows editor."""
    for name in ("orders.*.json", "_common.json", "README.md", ".hidden.json"):
        (tmp_path / name).write_text(" true\n", "utf-8-sig")
    assert read_folder(str(tmp_path)).texts == {"_common.json": b"true", "orders.*.json": b"true"}


def test_the_version_is_that_of_the_texts(tmp_path: Path) -> None:
    """The order and the white space around them do not count; a name does."""
    one, same = documents({"a.json": b"true", "b.json": b"{}"}), documents({"b.json": b"{}\n", "a.json": b"true"})
    assert one.version == same.version
    assert one == same
    assert len({one.version, documents({"a.json": b"true", "c.json": b"{}"}).version, documents({}).version}) == 3


@pytest.mark.parametrize(
    ("name", "told"),
    [
        *((name, rf"{name}: expected JSON Schema in a file \.json") for name in ("orders.yaml", "orders.YML", "orders.json5")),
        ("orders/a.json", "a folder in the folder of schemas; expected files"),
    ],
)
def test_a_schema_of_another_format_or_in_another_folder_is_refused(tmp_path: Path, name: str, told: str) -> None:
    """It would be left out without notice, and its topic checked by nothing."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("type: object")
    with pytest.raises(InvalidSchema, match=told):
        read_folder(str(tmp_path))


@pytest.mark.parametrize("name", ["a/b.json", "../a.json", "ä.json", "a.txt", ".json", "a b.json"])
def test_a_name_that_is_none_of_a_schema_is_refused(name: str) -> None:
    """Names go into addresses, keys and terminals."""
    with pytest.raises(InvalidSchema, match="expected a name of letters"):
        documents({name: b"true"})


def test_there_are_limits_on_number_and_bytes() -> None:
    """Each is reported with its value."""
    documents({f"{n}.json": b"true" for n in range(MAX_DOCUMENTS)})
    with pytest.raises(InvalidSchema, match=f"at most {MAX_DOCUMENTS} are allowed"):
        documents({f"{n}.json": b"true" for n in range(MAX_DOCUMENTS + 1)})
    with pytest.raises(InvalidSchema, match=f"at most {MAX_DOCUMENT_BYTES} are allowed"):
        documents({"a.json": b"x" * (MAX_DOCUMENT_BYTES + 1)})
    with pytest.raises(InvalidSchema, match=f"bytes in all files, at most {MAX_BYTES} are allowed"):
        documents({f"{n}.json": b"x" * MAX_DOCUMENT_BYTES for n in range(MAX_BYTES // MAX_DOCUMENT_BYTES + 1)})
