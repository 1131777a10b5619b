from tests.support.gateway_here import StartGatewayOnModel, StartGatewayHere

def test_a(gateway_on_model: StartGatewayOnModel) -> None:
    gateway = gateway_on_model()
    client = gateway.join({"subscriptions": [{"pattern": "orders.*"}]})
    assert client.welcome["user"] == "anonymous"
    gateway.publish(3)
    assert len(client.wait_for_events(3)) == 3
    assert client.request("publish", {"topic": "orders.2", "data": [1]})["ok"]
    client.wait_for_events(4)

def test_b(gateway_here: StartGatewayHere) -> None:
    gateway = gateway_here()
    client = gateway.join({"subscriptions": [{"pattern": "orders.*"}]})
    assert client.welcome["user"] == "anonymous"
    assert client.request("publish", {"topic": "orders.2", "data": [1]})["ok"]
    client.wait_for_events(1)
