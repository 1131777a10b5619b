"""The bench: the deliveries, latency and cost of a server, compared with its peers in one run.

`python -m bench --help` shows its options, README.md the method. Outside the distribution.
"""
