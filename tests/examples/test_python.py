"""The Python examples, each in a separate environment with the wheel and the packages of its requirements.txt."""

import itertools
import json
import re
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.checkout import DEADLINE_S, ROOT
from tests.support.gateway_process import StartGateway
from tests.support.held_port import HeldPort
from tests.support.pictures import picture
from tests.support.python_examples import SECRET, MakeExample, published
from tests.support.redis_process import RedisProcess
from tests.support.redis_server import wait_until

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3 * DEADLINE_S)]


def ask(url: str, method: str = "GET", data: bytes | None = None) -> tuple[int, str]:
    """Return the status and text of an answer, once the server is there."""
    answers: list[tuple[int, str]] = []

    def asked() -> bool:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, data, method=method), timeout=30) as answer:
                answers.append((answer.status, answer.read().decode()))
        except urllib.error.HTTPError as error:
            answers.append((error.code, error.read().decode()))
        except OSError:
            return False
        return True

    wait_until(asked, f"an answer of {url}")
    return answers[0]


def test_a_flask_page_with_a_script_tag_hears_events(example: MakeExample, page: Page, port: int) -> None:
    """The gateway serves page and client from the wheel alone, with a private Redis."""
    flask = example("flask", "[server,embedded]")
    flask.environment = {"HEADGATE_PORT": str(port)}
    flask.start("headgate", "serve", "app:app", "--dev")
    url = f"http://127.0.0.1:{port}"
    ask(url)
    page.goto(url)
    expect(page.locator("#status")).to_have_text("live")
    page.locator("#ship").click()
    expect(page.locator("#events li")).to_have_text("orders.42.shipped by UPS")


@pytest.mark.parametrize(
    ("name", "extra", "needed"),
    [("flask", "[server]", ()), ("django", "", ("pytest-django",)), ("fastapi", "", ("httpx",))],
)
def test_the_tests_of_an_example_run_without_redis(
    example: MakeExample, redis_url: str, name: str, extra: str, needed: tuple[str, ...]
) -> None:
    """As docs/howto/testing.md shows them, with the fixture of the wheel, and nothing reaches a log."""
    application = example(name, extra)
    application.run("python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "pytest", *needed)
    settings = ("-o", "DJANGO_SETTINGS_MODULE=shop.settings", "-p", "pytest_django") if name == "django" else ()
    assert "1 passed" in application.run("python", "-m", "pytest", "-q", *settings)
    assert published(redis_url) == []


def test_django_rings_the_bell_of_the_user_whose_order_has_failed(
    example: MakeExample, browser: Browser, page: Page, start_gateway: StartGateway, redis_url: str, port: int
) -> None:
    """All pages see the order, one user has the item and reads it, and no visitor gets a token without signing in."""
    django = example("django")
    url = f"http://127.0.0.1:{port}"
    settings = {"HEADGATE_REDIS_URL": redis_url, "HEADGATE_TOKEN_SECRET": SECRET, "HEADGATE_ALLOWED_ORIGINS": url}
    django.environment["GATEWAY_URL"] = start_gateway(settings).url
    django.run("python", "manage.py", "migrate", "--run-syncdb", "--verbosity", "0")
    django.start("python", "manage.py", "runserver", "--noreload", str(port))
    django.start("python", "manage.py", "events_relay", "--run-in-loop", "--loop-interval", "0.1")
    assert ask(f"{url}/token")[0] == 401
    with browser.new_context() as context:
        other = context.new_page()
        page.goto(url)
        other.goto(f"{url}/?user=ben")
        page.locator("#fail").click()
        for each in (page, other):
            expect(each.locator("#events li")).to_have_text("Order 42: failed")
        expect(page.locator("#unread")).to_have_text("1")
        page.get_by_role("button", name="Notifications").click()
        picture(page, "django", height=320)
        page.get_by_role("button", name="Order 42 failed").click()
        expect(page.locator("#unread")).to_have_text("0")
        expect(other.locator("#unread")).to_have_text("0")


def test_django_answers_as_usual_when_a_committed_change_cannot_be_published(example: MakeExample) -> None:
    """By the view of docs/howto/django.md, while Redis is unreachable. The change is saved and Django logs the error."""
    django = example("django")
    (view,) = re.findall(r"```python\n(from django\.conf.*?)```", (ROOT / "docs/howto/django.md").read_text(), re.DOTALL)
    (django.folder / "shop" / "ship.py").write_text(view)
    settings = django.folder / "shop" / "settings.py"
    settings.write_text(settings.read_text() + 'HEADGATE_REDIS_URL = "unix:///nonexistent/redis.sock"\n')
    django.run("python", "manage.py", "migrate", "--run-syncdb", "--verbosity", "0")
    program = (
        "import os; os.environ['DJANGO_SETTINGS_MODULE'] = 'shop.settings'; import django; django.setup()\n"
        "from shop.models import Order; from shop.ship import ship; Order.objects.create(pk=42)\n"
        "print(ship(None, 42).status_code, Order.objects.get(pk=42).status)"
    )
    assert django.run("python", "-c", program) == "204 shipped\n"


def test_fastapi_publishes(example: MakeExample, page: Page, port: int) -> None:
    """Its page gets from the gateway the events that the routes publish with the dependency of the lifespan."""
    fastapi = example("fastapi", "[server,embedded]")
    fastapi.environment.pop("HEADGATE_REDIS_URL")
    with closing(HeldPort()) as held:
        fastapi.environment["HEADGATE_PORT"] = str(held.port)
        shown = fastapi.folder / "page.html"
        shown.write_text(shown.read_text().replace("127.0.0.1:8000", f"127.0.0.1:{held.port}"))
        fastapi.start("headgate", "serve", "--dev")
        ask(f"http://127.0.0.1:{held.port}/healthz")
        fastapi.start("uvicorn", "main:app", "--port", str(port))
        url = f"http://127.0.0.1:{port}"
        ask(url)
        page.goto(url)
        expect(page.locator("#status")).to_have_text("live")
        page.locator("#ship").click()
        expect(page.locator("#events li")).to_have_text("orders.42.shipped: order 42")
        assert json.loads(ask(f"{url}/orders/42/pack", "POST")[1]) == {"id": 42, "offset": 2}
        expect(page.locator("#events li")).to_have_text(["orders.42.shipped: order 42", "orders.42.packed: order 42"])
        picture(page, "fastapi", height=300)


def test_an_event_source_and_a_script_read_a_stream(example: MakeExample, page: Page, port: int) -> None:
    """Without a client library, from the gateway's own origin."""
    stream = example("stream", "[server,embedded]")
    stream.environment = {"HEADGATE_PORT": str(port)}
    stream.start("headgate", "serve", "app:app", "--dev")
    url = f"http://127.0.0.1:{port}"
    ask(url)
    page.goto(url)
    expect(page.get_by_role("status")).to_have_text("connected")
    script = stream.start("python", "follow.py", url, "orders.#")
    output = stream.folder / "output.txt"
    numbers = itertools.count(1)

    def printed() -> bool:
        stream.run("headgate", "publish", f"orders.{next(numbers)}.shipped", '{"carrier": "UPS"}')
        return bool(re.search(r"^orders\.\d+\.shipped ", output.read_text(), re.MULTILINE)) or script.poll() is not None

    wait_until(printed, "a line of the script")
    expect(page.locator("#orders li").last).to_have_text('orders.1.shipped {"carrier":"UPS"}')
    assert script.poll() is None
    picture(page, "stream", height=260)


def test_a_page_follows_a_task_over_a_reload(example: MakeExample, tmp_path: Path, page: Page, port: int) -> None:
    """The page shows the first words again, and then the rest, each once and in order."""
    progress = example("progress", "[server]")
    with RedisProcess(tmp_path / "redis") as redis:
        progress.environment |= {"HEADGATE_REDIS_URL": redis.url, "HEADGATE_PORT": str(port)}
        progress.start("celery", "-A", "tasks", "worker", "--concurrency", "1", "--loglevel", "warning")
        progress.start("headgate", "serve", "app:app", "--dev")
        ask(f"http://127.0.0.1:{port}/")
        page.goto(f"http://127.0.0.1:{port}/")
        page.get_by_role("button").click()
        expect(page.locator("p")).to_contain_text("word12", timeout=DEADLINE_S * 1000)
        picture(page, "progress", height=200)
        page.reload()
        words = " ".join(f"word{n}" for n in range(1, 31))
        expect(page.locator("p")).to_have_text(words, timeout=DEADLINE_S * 1000)


def test_a_script_publishes(example: MakeExample, redis_url: str) -> None:
    assert "offset=1" in example("script").run("python", "nightly.py")
    assert published(redis_url) == [("books.closed", {"orders": 1204, "returns": 7})]


def test_a_receiver_keeps_signed_webhooks_and_refuses_others(example: MakeExample, redis_url: str, port: int) -> None:
    """The consumer calls it, and a stranger gets 401."""
    webhook = example("webhook", "[server,consumers]")
    configuration = webhook.folder / "headgate.toml"
    configuration.write_text(configuration.read_text().replace("8001", str(port)))
    webhook.start("flask", "--app", "receiver", "run", "--port", str(port))
    assert ask(f"http://127.0.0.1:{port}/hook", "POST", b"{}")[0] == 401
    webhook.start("headgate", "consume", "--config", "headgate.toml")
    webhook.run("headgate", "publish", "orders.42.shipped", '{"carrier": "UPS"}')
    wait_until(lambda: "UPS" in ask(f"http://127.0.0.1:{port}/received")[1], "the webhook")


def test_a_consumer_of_ones_own_runs(example: MakeExample, redis_url: str) -> None:
    ledger = example("consumer", "[server,consumers]")
    ledger.run("headgate", "consume", "--config", "headgate.toml", "--check")
    ledger.start("headgate", "consume", "--config", "headgate.toml")
    ledger.run("headgate", "publish", "orders.42.shipped", '{"carrier": "UPS"}')
    wait_until(
        lambda: (ledger.folder / "shipped.txt").exists() and "UPS" in (ledger.folder / "shipped.txt").read_text(), "a line"
    )
