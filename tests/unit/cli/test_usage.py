"""Wrong usage of the commands: each is one clear fault, found before Redis is asked."""

import shlex

import pytest
from click.testing import CliRunner

from headgate.cli.main import main

NO_URLS = ("app.example.com", "ftp://a.example", "https://exa mple.com", "http://[::1", "https://a..b", "http://a:99999", "\x1b")
# Exit code 2 for a wrong word, 1 for a wrong value; the text on standard error.
FAULTS = [
    ("consume --since 7 --config /nowhere.toml", 2, "--since goes with --dry-run"),
    ("consume --dry-run --since 0", 2, "0 is not in the range"),
    ("consume --listen 9100", 2, "expected HOST:PORT"),
    ("consume --listen 127.0.0.1:x", 2, "expected HOST:PORT"),
    *((f"dead-letters {what}", 2, "expected one or more IDs, or --all") for what in ("retry mail", "drop mail 1-0 --all")),
    *((f"doctor --url '{url}'", 2, "Invalid value for '--url': ") for url in NO_URLS),
    ("keys create billing", 2, "Missing option '--scope'"),
    ("keys create billing --scope everything", 1, "a scope 'everything'; expected one of publish:PATTERN"),
    ("keys create billing --scope read:a..b", 1, "invalid pattern 'a..b'"),
    ("keys create billing --scope clients --ttl soon", 2, "'soon' is not a time"),
    ("keys create billing --scope clients --namespace 'a b'", 1, "'a b'"),
    ("keys revoke 'no id'", 1, "expected the id of a key"),
    ("pause everything", 2, "'everything' is not one of 'connects', 'publishes', 'namespace'"),
    ("pause namespace", 2, "expected connects, publishes or namespace NAME"),
    ("pause connects shop", 2, "expected connects, publishes or namespace NAME"),
    ("resume namespace", 2, "expected connects, publishes or namespace NAME"),
    ("resume", 2, "Missing argument"),
    ("disconnect", 2, "expected either --session ID or --user NAME"),
    ("pause --for 10m", 2, "--for needs one of"),
    ("pause connects --for soon", 2, "'soon' is not a time"),
    ("pause connects --for 0", 2, "Invalid value for --for: 0: expected 1 s to 400d"),
    ("pause connects --for 401d", 2, "expected 1 s to 400d"),
    ("pause namespace 'a b'", 1, "'a b'"),
    ("publish", 2, "expected TOPIC and JSON, or --file FILE"),
    ("publish a", 2, "expected TOPIC and JSON, or --file FILE"),
    ("publish a 1 --no-such-option", 2, "No such option"),
    ("publish a 1 2", 2, "unexpected extra argument"),
    ("publish a ' '", 1, "data is not JSON: it is empty\n"),
    ("publish a '{a: 1}'", 1, """in single ones, as in '{"carrier": "UPS"}'"""),
    ("publish --file f a 1", 2, "expected TOPIC and JSON, or --file FILE"),
    ("publish --file f --id x", 2, "--id and --user go with TOPIC and JSON"),
    ("publish --file f --user ana", 2, "--id and --user go with TOPIC and JSON"),
    ("publish --file", 2, "requires an argument"),
    ("rebalance --per-s 0", 1, "per second: expected a number above 0 and up to 1000"),
    ("rebalance --per-s fast", 2, "'fast' is not a valid float"),
    ("rebalance now", 2, "unexpected extra argument"),
    ("regrant ana --for 0 --subscribe a", 2, "Invalid value for --for: 0: expected 1 s to 400d"),
    ("revoke --user ana --for 401d", 2, "Invalid value for --for: 401d: expected 0 s to 400d"),
    ("revoke --user ana --for soon", 2, "Invalid value for --for: 'soon' is not a time"),
    ("revoke", 2, "expected either --user NAME or --token-id ID"),
    ("revoke --user a --token-id b", 2, "expected either --user NAME or --token-id ID"),
    ("tail orders.a*", 1, "invalid pattern 'orders.a*'"),
    ("token", 2, "Missing option '--user'"),
    *((f"{line} nan", 2, "nan is no number of seconds") for line in ("doctor --idle", "doctor --timeout", "status --every")),
    *((f"token --user ana --ttl {ttl}", 2, f"Invalid value for --ttl: {ttl}: expected 1 s to 3660d") for ttl in ("0", "3661d")),
    ("keys create billing --scope clients --ttl 0", 2, "Invalid value for --ttl: 0: expected 1 s to 3660d"),
    ("token --user ana --ttl soon", 2, "'soon' is not a time"),
    ("types --dataclasses", 2, "No such option"),
    ("types --check", 2, "--check goes with --out FILE"),
    ("types x", 2, "unexpected extra argument"),
    ("who-can a..b", 1, "invalid pattern 'a..b'"),
    ("who-can a --namespace elsewhere", 1, "unknown namespace 'elsewhere'"),
]


@pytest.mark.parametrize(("line", "code", "says"), FAULTS, ids=[line for line, *_ in FAULTS])
def test_wrong_usage_is_one_clear_fault(line: str, code: int, says: str) -> None:
    """Nothing is printed, and the address of Redis has no listener."""
    environment = {"HEADGATE_REDIS_URL": "redis://127.0.0.1:1/0", "HEADGATE_TOKEN_SECRET": "a secret of thirty-two bytes or more"}
    ended = CliRunner().invoke(main, shlex.split(line), env=environment)
    assert (ended.exit_code, ended.stdout) == (code, "")
    assert says in ended.stderr
    assert not any(text in ended.stderr for text in ("Traceback", "\x1b"))
