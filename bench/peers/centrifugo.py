"""Publish once through Centrifugo's HTTP API: `centrifugo.py PORT`, the body of the request on standard input."""

from __future__ import annotations

import sys
import urllib.request

request = urllib.request.Request(
    f"http://127.0.0.1:{sys.argv[1]}/api/publish", sys.stdin.buffer.read(), {"Content-Type": "application/json"}
)
with urllib.request.urlopen(request, timeout=10) as answer:
    if b'"error"' in answer.read():
        sys.exit("refused")
