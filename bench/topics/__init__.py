"""Topic matching: five ways to find a topic's subscribers, side by side on one workload. `python -m bench.topics`."""
