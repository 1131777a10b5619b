"""The options of `headgate doctor`."""

import json

from click.testing import CliRunner

from headgate.cli.main import main


def test_the_doctor_joins_the_first_namespace_of_the_gateway() -> None:
    """Where gateways serve no `notifications`, joining it would be the doctor's own fault."""
    nowhere = ("doctor", "--json", "--url", "http://127.0.0.1:1", "--redis", "redis://127.0.0.1:1")
    environment = {"HEADGATE_NAMESPACES": "orders,notifications"}
    for given, joined in ((), "orders"), (("--namespace", "notifications"), "notifications"):
        result = CliRunner().invoke(main, [*nowhere, *given], env=environment)
        assert json.loads(result.stdout)["namespace"] == joined
