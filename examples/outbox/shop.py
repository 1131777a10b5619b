"""A shop whose events are rows of its database: written with the change, in one transaction. Imported by your application."""

import os

from sqlalchemy import create_engine, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from headgate import Publisher

engine = create_engine(os.environ.get("SHOP_DATABASE", "sqlite:///shop.sqlite3"))  # or postgresql+psycopg://…
publisher = Publisher()
now = "strftime('%s', 'now')" if engine.dialect.name == "sqlite" else "now()"
ROW = text(f"INSERT INTO outbox (topic, key, payload, created_at) VALUES (:topic, :topic, :payload, {now})")


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    status: Mapped[str]


def publish_on_commit(session: Session, topic: str, data: object) -> None:
    """Write the row of an event. What Headgate would refuse (topic, data, size) raises here, and sends nothing."""
    session.execute(ROW, {"topic": topic, "payload": publisher.prepare(topic, data).payload})


def ship(number: int) -> None:
    with Session(engine) as session, session.begin():
        order = session.merge(Order(id=number, status="shipped"))
        publish_on_commit(session, f"orders.{number % 10}.shipped", {"id": order.id, "status": order.status})
