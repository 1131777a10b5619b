"""The Redis users that pages recommend, as their words stand there, so that a test and a page cannot differ."""

import re
from pathlib import Path

from headgate.redis.client import Client, call

DOCS = Path(__file__).parents[2] / "docs"
# The look of one on a page: a form of rules, a score.
_NO_RIGHTS = frozenset({"+command|first-argument", "+inf"})


def blocks(page: str) -> list[list[str]]:
    """Return the words about rights (keys, channels, commands, selectors) of every `text` block of a page."""
    found = re.findall(r"^```text\n(.*?)^```$", (DOCS / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return [_rights(block.split()) for block in found]


def users(page: str) -> dict[str, list[str]]:
    """Return the same by the user's name, of every line `user NAME on >… …` of a page."""
    text = (DOCS / page).read_text("utf-8")
    return {name: _rights(rights.split()) for name, rights in re.findall(r"^user (\S+) on >\S+ (.*)$", text, re.MULTILINE)}


def additions() -> dict[str, list[str]]:
    """Return the rights that a paragraph, or a row of a table, of any page adds to those of a user, by page and number."""
    found = {}
    for page in sorted(path for folder in ("", "howto/", "operations/") for path in DOCS.glob(f"{folder}*.md")):
        text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL).replace(
            "<namespace>", "notifications"
        )
        for number, paragraph in enumerate(re.split(r"\n\n|\n(?=\|)", text)):
            spans = [span.split() for span in re.findall(r"`([^`]+)`", paragraph)]
            rights = [word for span in spans if all(re.match(r"[~%&]\S|\+[a-z]", word) for word in span) for word in span]
            rights = [word for word in rights if word not in _NO_RIGHTS]
            if any(word[0] == "+" for word in rights):
                found[f"{page.relative_to(DOCS)}:{number}"] = rights
    return found


def without(rights: list[str], index: int) -> list[str]:
    """Return the words without one of them; the parentheses of a selector stay."""
    word = rights[index]
    left = "(" * word.startswith("(") + ")" * word.endswith(")")
    return [*rights[:index], *([left] if left else []), *rights[index + 1 :]]


def says_no_right(answer: str) -> bool:
    """Return whether an answer of Redis is a refusal for want of a right; Redis 7.0 has other words for it inside a function."""
    return re.search(r"noperm|no permission|the user executing the script can't", answer, re.IGNORECASE) is not None


def make_user(client: Client, name: str, rights: list[str]) -> None:
    """Make a user with these rights alone, and the password `pass`."""
    call(client, "ACL", "SETUSER", name, "reset", "on", ">pass", "resetchannels", *rights)


def _rights(words: list[str]) -> list[str]:
    return [word for word in words if word[0] in "~%&+-(" and word != "-"]
