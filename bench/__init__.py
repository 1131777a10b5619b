"""The bench: what a server delivers, how late, and what it costs, measured beside its peers in one run.

`python -m bench --help` says how to run it, README.md what is measured and why in this way. Outside the distribution.
"""
