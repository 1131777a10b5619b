"""Follow a stream with the standard library alone: `python follow.py http://127.0.0.1:8000 'orders.#'`."""

# It prints each event, comes back after every cut with its cursor, and reports what it has missed. HEADGATE_TOKEN is the token
# of a user, or an API key with the scope `read:orders.#`.
import json
import os
import random
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from urllib.parse import urlencode

SILENCE_S = 30  # three heartbeats


def follow(url: str, pattern: str, headers: dict[str, str]) -> Iterator[tuple[str, dict]]:
    """Yield ("message", event) and (notice, body), for ever."""
    pause_s = 0.5
    while True:
        request = urllib.request.Request(f"{url}/api/v1/stream?{urlencode({'pattern': pattern})}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=SILENCE_S) as lines:
                fields: dict[str, str] = {}
                for line in lines:
                    name, _, value = line.decode().rstrip("\n").partition(": ")
                    if name:
                        fields[name] = value
                        continue
                    if "data" in fields:
                        pause_s = 0.5
                        yield fields.get("event", "message"), json.loads(fields["data"])
                        headers |= {"Last-Event-ID": fields["id"]} if "id" in fields else {}  # after it has been handled
                    fields = {}
        except urllib.error.HTTPError as refusal:
            try:
                error = json.load(refusal)["error"]
            except (ValueError, LookupError):  # of a proxy, such as a 502 during a deploy
                error = {"message": refusal, "retry": refusal.code >= 500}
            if not error["retry"]:
                raise SystemExit(f"refused: {error['message']}") from None
            pause_s = max(pause_s, error.get("retry_after_s", 0))
        except OSError as error:  # cut, or silent: the next request goes on from the cursor
            print(f"{url}: {error}; trying again", file=sys.stderr, flush=True)
        time.sleep(random.uniform(0.5, 1) * pause_s)
        pause_s = min(2 * pause_s, 20)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit("usage: python follow.py http://127.0.0.1:8000 'orders.#'")
    token = os.environ.get("HEADGATE_TOKEN")
    for kind, body in follow(sys.argv[1], sys.argv[2], {"Authorization": f"Bearer {token}"} if token else {}):
        if kind == "message":
            print(body["topic"], json.dumps(body["data"]), flush=True)
        elif kind == "gap":
            print(f"missed: {body['reason']}, offsets {body['from']} to {body['to']}", file=sys.stderr, flush=True)
