"""Forty hostile payloads through the browser client into a page, as data and as model attributes. None runs."""

from typing import Any

import msgspec
from playwright.sync_api import Browser, Page, expect

from headgate.redis.data_folder import find_private_redis
from headgate.services.publisher import Publisher
from tests.e2e.conftest import OpenBoard, visit, wait_until
from tests.support.gateway_process import GatewayProcess

_RUN = "window.pwned=1"
TEXTS = [
    f"<script>{_RUN}</script>",
    f"<ScRiPt>{_RUN}</sCrIpT>",
    f"<scr<script>ipt>{_RUN}</scr</script>ipt>",
    f"</script><script>{_RUN}</script>",
    f'<script src="data:text/javascript,{_RUN}"></script>',
    f"<script type=module>{_RUN}</script>",
    f"<img src=x onerror='{_RUN}'>",
    f"<img src=x onerror={_RUN}//",
    f"<img/src/onerror={_RUN}>",
    f"<svg/onload={_RUN}>",
    f"<svg><animate onbegin={_RUN} attributeName=x dur=1s>",
    f"<svg><script>{_RUN}</script></svg>",
    f"<svg><a xlink:href='javascript:{_RUN}'><text y=20>x</text></a></svg>",
    f"\"><iframe srcdoc='<script>parent.{_RUN}</script>'>",
    f"<iframe src='javascript:parent.{_RUN}'>",
    f"<object data='javascript:{_RUN}'>",
    f"<embed src='javascript:{_RUN}'>",
    f"<a href='javascript:{_RUN}'>click</a>",
    f"<form action='javascript:{_RUN}'><button>x</button></form>",
    f"<button formaction='javascript:{_RUN}' form=f>x</button>",
    f"<input autofocus onfocus={_RUN}>",
    f"<details open ontoggle={_RUN}>",
    f"<video><source onerror={_RUN}></video>",
    f"<audio src=x onerror={_RUN}>",
    f"<body onload={_RUN}>",
    f"<marquee onstart={_RUN}>",
    f"<style>@import 'javascript:{_RUN}'</style>",
    f"<div style='background:url(javascript:{_RUN})'>",
    "</code></div><style>*{display:none}</style>",
    f"<base href='javascript:{_RUN}//'>",
    f"<meta http-equiv=refresh content='0;url=javascript:{_RUN}'>",
    f"<link rel=stylesheet href='javascript:{_RUN}'>",
    f"<math><mtext></form><form><mglyph><style></math><img src onerror={_RUN}>",
    f"<noscript><p title='</noscript><img src=x onerror={_RUN}>'>",
    f"<template><img src=x onerror={_RUN}></template>",
    f"{{{{constructor.constructor('{_RUN}')()}}}}",
    f"${{{_RUN}}}",
    f"javascript:{_RUN}",
    "\u202e<b>reversed</b>",
    f"\u2028</textarea><img src=x onerror={_RUN}>\u0000",
]
# JSON texts with names and shapes that are the attack.
SHAPES = [
    '{"__proto__": {"pwned": 1}}',
    '{"constructor": {"prototype": {"pwned": 1}}}',
    '{"id": "__proto__", "pwned": 1}',
    '{"toString": "x", "valueOf": "x", "hasOwnProperty": "x", "toJSON": "x"}',
    '{"then": "x", "length": 1e9, "_placeholder": true, "num": 0}',
    '["__proto__", ["constructor"]]',
]


def test_no_payload_runs_in_a_page_that_shows_it_as_text(browser: Browser, site: GatewayProcess, publisher: Publisher) -> None:
    """Through handlers and LiveCollection, under a policy that forbids making markup or code from text."""
    assert len(TEXTS) == 40
    page = browser.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    visit(page, site)
    for number, text in enumerate(TEXTS):
        publisher.publish(f"orders.{number}.created", {"id": number, "note": text, text[:100]: text})
    for number, shape in enumerate(SHAPES):
        publisher.publish(f"orders.shape{number}.created", msgspec.Raw(shape.encode()))
        publisher.publish("orders.__proto__.created", msgspec.Raw(shape.encode()))
    publisher.publish("numbers.last", 1)
    wait_until(page, "page.seen.includes(1)")
    shown = page.locator("#list li").all_text_contents()
    assert shown[: len(TEXTS)] == TEXTS
    assert _harm(page) == [None, None, 0, 1]
    assert page.evaluate("page.orders.get(3).get('note')") == TEXTS[3]
    assert page.evaluate("page.gate.state.connection") == "up"
    # Backbone cannot take data with its own toString as text. That is reported as any handler's error, and nothing else suffers.
    assert set(faults) <= {"Cannot convert object to primitive value"}
    page.close()


def test_no_payload_runs_in_the_demo(open_board: OpenBoard, gateway: GatewayProcess) -> None:
    """Each as every field of an order, all on one board, and as an item, in a notice and in the inbox."""
    ana = open_board("ana")
    publisher = Publisher(find_private_redis(gateway.folder / "data"))
    for number, text in enumerate(TEXTS, 9000):
        order = {"id": str(number), "status": "new", "customer": text, "by": text}
        publisher.publish(f"orders.{number}.created", order)
        publisher.publish("inbox.shop.note", text, user="ana")
        expect(ana.notice("shop.note").first).to_be_visible()
    publisher.close()
    expect(ana.card(str(9000 + len(TEXTS) - 1))).to_be_visible()
    assert ana.card("9000").inner_text().count(TEXTS[0]) > 0
    ana.bell().click()
    expect(ana.item("shop.note").filter(has_text=TEXTS[-4]).first).to_be_visible()
    assert ana.page.evaluate("[window.pwned, ({}).pwned]") == [None, None]
    made = ":is(.card, .notice, .item) :is(img, iframe, style, script, math, object, embed, svg, a, form form)"
    assert ana.page.locator(made).count() == 0
    assert len(ana.page.frames) == 1


def _harm(page: Page) -> list[Any]:
    """Scripts that ran, properties that every object has inherited, elements that a payload made, frames."""
    made = page.locator("li *").count()
    ran: list[Any] = page.evaluate("[window.pwned ?? null, ({}).pwned ?? null]")
    return [*ran, made, len(page.frames)]
