"""Several worker processes of one machine on one port: the parts that they share. `gunicorn_worker.py` puts them together."""
