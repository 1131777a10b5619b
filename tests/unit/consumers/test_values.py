"""Secrets from exactly one place, the file or the environment, and functions that options name."""

from dataclasses import dataclass

import pytest

from headgate.consumers.values import function_faults, need_secret, read_secret


@dataclass
class Options:
    password: str | None = None
    password_env: str | None = None


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"BLANK": " ", "MAIL_PASSWORD": "kept as it is", "PADDED": "hidden\r\n"}.items():
        monkeypatch.setenv(name, value)


def test_a_secret_comes_from_where_it_is_given() -> None:
    """The file, the environment, or nowhere."""
    assert read_secret(Options("plain"), "password") == "plain"
    assert read_secret(Options(None, "MAIL_PASSWORD"), "password") == "kept as it is"
    assert read_secret(Options(), "password") is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (Options("hidden", "MAIL_PASSWORD"), "password and password_env are both given; expected one of them"),
        (Options(None, "NOT_SET"), "password_env='NOT_SET': there is no such environment variable, or it is blank"),
        (Options(None, "BLANK"), "password_env='BLANK': there is no such environment variable, or it is blank"),
        (Options(), "password is missing; expected password or password_env"),
        (Options("hidden\n"), "password: there is a blank or a line end around the secret; take it away"),
        (Options(None, "PADDED"), "password_env='PADDED': there is a blank or a line end around the secret; take it away"),
    ],
)
def test_a_fault_names_the_option_and_not_the_secret(options: Options, said: str) -> None:
    """Twice, not set, blank, or not at all where it is needed."""
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        need_secret(options, "password")

    assert str(refused.value) == said


def test_white_space_around_a_url_means_nothing() -> None:
    """A secret's may belong to it; a URL's does not."""
    assert read_secret(Options(None, "PADDED"), "password", is_url=True) == "hidden"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, []),
        ("os:getcwd", []),
        ("os:sep", ["name='os:sep': expected a function"]),
        ("asyncio:sleep", ["name='asyncio:sleep': expected a function, not a coroutine (async def)"]),
        ("os:missing", ["name='os:missing': module 'os' has no 'missing'; expected package.module:function"]),
    ],
)
def test_a_function_of_the_operator_is_checked_before_anything_runs(value: str | None, expected: list[str]) -> None:
    """The line names the option, its value and the expected form."""
    assert function_faults("name", value) == expected
