"""Diagnosis of a running system from outside, for `headgate check`, `headgate doctor` and `headgate status`.

It covers Redis (redis_state.py), and the path between a browser and the gateway (public_url.py, using browser.py). Each returns
results (runtime/check_result.py). doctor.py orders them, checks this machine and the clocks, and sends an event through every
hop. overview.py builds the page of `headgate status`, and tracing.py follows one event.
"""
