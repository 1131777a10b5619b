"""The shop behind the boards: orders in SQLite, and an event for each change. `headgate serve shop:app --dev` runs it.

`GET /orders` brings all of them, `POST /orders` makes one, `POST /orders/<id>/ship` ships one. It also serves the page that
SHOP_PAGE names, a folder that a bundler has written.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from flask import Flask, Response, abort, send_from_directory

from headgate import Headgate

app = Flask(__name__)
app.config.update(DATABASE="shop.db", PAGE="../react/dist")
app.config.from_prefixed_env("SHOP")
gate = Headgate(app)


def run(statement: str, *values: object) -> list[dict[str, Any]]:
    with sqlite3.connect(app.config["DATABASE"]) as database:
        database.row_factory = sqlite3.Row
        return [dict(row) for row in database.execute(statement, values)]


run("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, version INTEGER, status TEXT)")


@app.get("/orders")
def orders() -> list[dict[str, Any]]:
    return run("SELECT * FROM orders ORDER BY id")


@app.post("/orders")
def create() -> dict[str, Any]:
    order = run("INSERT INTO orders (version, status) VALUES (1, 'new') RETURNING *")[0]
    gate.publish(f"orders.{order['id']}.created", order)
    return order


@app.post("/orders/<int(max=9007199254740991):number>/ship")
def ship(number: int) -> dict[str, Any]:
    rows = run("UPDATE orders SET version = version + 1, status = 'shipped' WHERE id = ? RETURNING *", number)
    if not rows:
        abort(404)
    gate.publish(f"orders.{number}.shipped", rows[0])
    return rows[0]


@app.get("/")
@app.get("/<path:name>")
def page(name: str = "index.html") -> Response | tuple[str, int]:
    built = Path(app.config["PAGE"]).resolve()
    if not built.is_dir():
        return f"{built} is missing: npm install --no-save ../../dist/headgate-*.tgz && npm run build in its folder\n", 404
    return send_from_directory(built, name)
