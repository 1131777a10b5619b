"""Several worker processes of one machine on one port: the parts that they share. `headgate/gunicorn.py` puts them together."""
