"""A page that shows how far a task is, after a reload too: `headgate serve app:app --dev`."""

try:
    from flask import Flask, render_template
    from kombu.exceptions import OperationalError
    from tasks import REDIS, write

    from headgate import Headgate
except ModuleNotFoundError as missing:
    raise SystemExit(f"{missing.name} is not installed: README.md says how") from None

app = Flask(__name__)
gate = Headgate(app)


@app.get("/")
def page() -> str:
    return render_template("page.html")


@app.post("/texts")
def start() -> dict[str, object] | tuple[str, int]:
    """The position is read before the task begins: all of its events come after it."""
    since = gate.position()
    try:
        return {"id": write.delay(30).id, "since": since or {"offset": 0}}
    except OperationalError as error:
        return f"{error} Start Redis, or set HEADGATE_REDIS_URL (now {REDIS}) for both the worker and the gateway.", 503
