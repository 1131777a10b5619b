"""The shared parts of several worker processes on one port of a machine. `gunicorn_worker.py` puts them together."""
