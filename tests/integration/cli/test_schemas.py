"""`schemas push`, `list`, `show` and `remove` on a real Redis, and types from the registry."""

import json
from pathlib import Path

from headgate.redis.client import Client, call
from headgate.redis.keys import schemas_key
from tests.integration.cli.conftest import Run
from tests.support.schema_files import texts, write

NUMBER, TEXT = {"type": "integer"}, {"type": "string"}


def test_a_folder_is_pushed_read_and_taken_apart(run: Run, tmp_path: Path) -> None:
    """Each step says the version; a change says which files."""
    folder = str(write(tmp_path / "schemas", {"a.json": NUMBER, "b.*.json": {"$ref": "_c.json"}, "_c.json": TEXT}))
    first = texts({"a.json": NUMBER, "b.*.json": {"$ref": "_c.json"}, "_c.json": TEXT}).version
    assert run("schemas", "push", folder).stdout == (
        f"+ _c.json\n+ a.json\n+ b.*.json\nversion {first}: 3 files for 2 patterns, in namespace notifications\n"
    )
    assert run("schemas", "list").stdout == (
        f"version {first}\n(definitions)\t_c.json\t18 bytes\na\ta.json\t19 bytes\nb.*\tb.*.json\t19 bytes\n"
    )
    assert json.loads(run("schemas", "show", "b.*").stdout) == {"$ref": "_c.json"}
    assert json.loads(run("schemas", "show", "a.json").stdout) == NUMBER

    (Path(folder) / "a.json").write_text(json.dumps(TEXT))
    (Path(folder) / "b.*.json").unlink()
    assert run("schemas", "push", folder).stdout.splitlines()[:-1] == ["- b.*.json", "~ a.json"]
    assert '"a": A;' in run("types", "--registry").stdout
    left = texts({"_c.json": TEXT}).version
    assert run("schemas", "remove", "a").stdout == f"version {left}: 1 file, in namespace notifications\n"


def test_namespaces_have_schemas_of_their_own(run: Run, tmp_path: Path) -> None:
    """As they have logs."""
    folder = str(write(tmp_path / "schemas", {"a.json": NUMBER}))
    run("schemas", "push", folder, "--namespace", "other")
    assert run("schemas", "list", "--namespace", "other").returncode == 0
    for command in (("schemas", "list"), ("types", "--registry")):
        told = run(*command)
        assert (told.returncode, told.stderr) == (
            1,
            "headgate: no schemas are in the registry of namespace notifications: `headgate schemas push` puts them there\n",
        )


def test_what_would_break_the_registry_is_refused_and_changes_nothing(run: Run, tmp_path: Path) -> None:
    """An invalid schema, a file that others refer to, an unknown name."""
    folder = write(tmp_path / "schemas", {"a.json": {"$ref": "_c.json"}, "_c.json": TEXT})
    run("schemas", "push", str(folder))
    held = run("schemas", "list").stdout
    (folder / "bad.json").write_text("{")
    for arguments, told in (
        (("push", str(folder)), "schema bad.json: is not JSON: Input data was truncated; expected one JSON Schema"),
        (
            ("remove", "_c.json"),
            "schema a.json: $ref '_c.json' leads to no file of the folder, and nothing is fetched; there are a.json",
        ),
        (("remove", "b"), "schema b: is not in the registry; it has _c.json, a.json"),
        (("show", "b"), "schema b: is not in the registry; it has _c.json, a.json"),
    ):
        ended = run("schemas", *arguments)
        assert (ended.returncode, ended.stderr) == (1, f"headgate: {told}\n")
    assert run("schemas", "list").stdout == held


def test_a_push_repairs_what_somebody_else_has_written(run: Run, tmp_path: Path, redis_client: Client) -> None:
    """All other commands report the fault."""
    folder = str(write(tmp_path / "schemas", {"a.json": NUMBER}))
    for fields in (("documents", "{"), ("documents", "{}", "version", "x"), ("version", "x")):
        call(redis_client, "DEL", schemas_key("notifications"))
        call(redis_client, "HSET", schemas_key("notifications"), *fields)
        told = run("schemas", "list")
        assert told.returncode == 1
        assert "schema hg:{notifications}:schemas: is not what `headgate schemas push` writes" in told.stderr
        assert run("schemas", "push", folder).returncode == 0
        assert run("schemas", "list").returncode == 0
