"""The default server, a Flask application around the gateway with health, metrics, an HTTP API and the demo."""
