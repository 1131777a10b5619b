"""Diagnosis: looks at a running system from outside, for `headgate check`, `headgate doctor` and `headgate status`.

Redis (redis_state.py), this machine (machine.py), the clocks (clocks.py), what stands between a browser and the gateway
(public_url.py, over browser.py), and an event through every hop (hops.py). Each returns findings (runtime/check_result.py);
doctor.py has the order, and overview.py the page of `headgate status`. tracing.py follows one event.
"""
