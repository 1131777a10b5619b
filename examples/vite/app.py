"""The Flask side of a page that Vite builds: `npm run build`, then `headgate serve app:app --dev`."""

from pathlib import Path

try:
    from flask import Flask, Response, send_from_directory

    from headgate import Headgate
except ModuleNotFoundError as missing:
    raise SystemExit(f'{missing.name} is not installed: pip install "headgate[server,embedded]"') from None

app = Flask(__name__)
gate = Headgate(app)
BUILT = Path(__file__).parent / "dist"


@app.get("/")
@app.get("/<path:name>")
def page(name: str = "index.html") -> Response:
    return send_from_directory(BUILT, name)


@app.post("/orders/<int:number>/ship")
def ship(number: int) -> dict[str, int]:
    """Return where in the log the event is. Yours changes the order first."""
    receipt = gate.publish(f"orders.{number}.shipped", {"id": number, "carrier": "UPS"})
    return {"offset": receipt.offset}
