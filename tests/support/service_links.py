"""The variables that Kubernetes sets in a pod beside Services called `headgate`, `headgate-redis` and `headgate-statsd`.

And those that Docker's `--link redis:headgate-redis` sets besides.
"""

from __future__ import annotations

SERVICE_LINKS = {
    "HEADGATE_SERVICE_HOST": "10.96.4.7",
    "HEADGATE_SERVICE_PORT": "80",
    "HEADGATE_SERVICE_PORT_HTTP": "80",
    "HEADGATE_PORT": "tcp://10.96.4.7:80",
    "HEADGATE_PORT_80_TCP": "tcp://10.96.4.7:80",
    "HEADGATE_PORT_80_TCP_PROTO": "tcp",
    "HEADGATE_PORT_80_TCP_PORT": "80",
    "HEADGATE_PORT_80_TCP_ADDR": "10.96.4.7",
    "HEADGATE_REDIS_SERVICE_HOST": "fd00::9",
    "HEADGATE_REDIS_SERVICE_PORT": "6379",
    "HEADGATE_REDIS_PORT": "tcp://[fd00::9]:6379",
    "HEADGATE_REDIS_PORT_6379_TCP": "tcp://[fd00::9]:6379",
    "HEADGATE_REDIS_PORT_6379_TCP_PROTO": "tcp",
    "HEADGATE_REDIS_PORT_6379_TCP_PORT": "6379",
    "HEADGATE_REDIS_PORT_6379_TCP_ADDR": "fd00::9",
    "HEADGATE_STATSD_SERVICE_HOST": "10.96.4.8",
    "HEADGATE_STATSD_SERVICE_PORT": "8125",
    "HEADGATE_STATSD_SERVICE_PORT_STATSD_UDP": "8125",
    "HEADGATE_STATSD_PORT": "udp://10.96.4.8:8125",
    "HEADGATE_STATSD_PORT_8125_UDP": "udp://10.96.4.8:8125",
    "HEADGATE_STATSD_PORT_8125_UDP_PROTO": "udp",
    "HEADGATE_STATSD_PORT_8125_UDP_PORT": "8125",
    "HEADGATE_STATSD_PORT_8125_UDP_ADDR": "10.96.4.8",
    "HEADGATE_REDIS_NAME": "/gateway/headgate-redis",
    "HEADGATE_REDIS_ENV_REDIS_VERSION": "7.4.1",
    "HEADGATE_REDIS_PORT_6379_TCP_START": "tcp://172.17.0.3:6379",
}
