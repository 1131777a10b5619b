"""Receives Headgate's webhooks: `flask --app receiver run --port 8001`."""

import os
import sqlite3

try:
    from flask import Flask, Response, request
    from standardwebhooks import Webhook, WebhookVerificationError
except ModuleNotFoundError as missing:
    raise SystemExit(f"{missing.name} is not installed: README.md says how") from None

if "WEBHOOK_SECRET" not in os.environ:
    raise SystemExit('WEBHOOK_SECRET is not set: export WEBHOOK_SECRET="whsec_$(openssl rand -base64 32)"')

app = Flask(__name__)
webhook = Webhook(os.environ["WEBHOOK_SECRET"])
DATABASE = os.environ.get("RECEIVED_DATABASE", "received.sqlite3")

with sqlite3.connect(DATABASE) as created:
    created.execute("CREATE TABLE IF NOT EXISTS received (id TEXT PRIMARY KEY, body TEXT)")


@app.post("/hook")
def hook() -> Response:
    """Believe only what is signed, and keep each event once: a webhook may come again."""
    try:
        webhook.verify(request.get_data(), dict(request.headers))
    except WebhookVerificationError:
        return Response("the signature is wrong", status=401)
    with sqlite3.connect(DATABASE) as database:
        database.execute(
            "INSERT OR IGNORE INTO received VALUES (?, ?)", (request.headers["webhook-id"], request.get_data(as_text=True))
        )
    return Response(status=204)


@app.get("/received")
def received() -> list[str]:
    with sqlite3.connect(DATABASE) as database:
        return [body for (body,) in database.execute("SELECT body FROM received ORDER BY rowid")]
