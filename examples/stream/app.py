"""The page, from the origin of the gateway: `headgate serve app:app --dev`."""

from flask import Flask, Response, send_file

app = Flask(__name__)


@app.get("/")
def page() -> Response:
    return send_file("page.html")
