"""A Flask page that hears events: a script tag, and no Node. `headgate serve app:app --dev` runs it."""

from flask import Flask, render_template

from headgate import Headgate

app = Flask(__name__)
gate = Headgate(app)


@app.get("/")
def page() -> str:
    return render_template("page.html")


@app.post("/orders/<int:number>/ship")
def ship(number: int) -> dict[str, int]:
    """Return where in the log the event is. Yours changes the order first."""
    receipt = gate.publish(f"orders.{number}.shipped", {"id": number, "carrier": "UPS"})
    return {"offset": receipt.offset}
