# The gateway with its ready-made server, as an unprivileged process that writes nothing but to /tmp. The bases are pinned by digest, so that
# a build is the same tomorrow; .github/dependabot.yml moves them when there is a patch.

FROM node:24-trixie-slim@sha256:50c3b2f6988dfc307b86e5301d69611af31f4789bdf232863b07d3b02fe55ae0 AS web
WORKDIR /src
COPY package.json package-lock.json tsconfig.json ./
COPY web/package.json web/
RUN npm ci --no-audit --no-fund
COPY web/ web/
COPY server/ server/
RUN npm run build

FROM python:3.11-slim-trixie@sha256:90744cff8f32887f075c47d747a173ff333e9e98801667af93c357fa9f5e28ff AS wheel
WORKDIR /src
# For the C extension; the image itself has no compiler.
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
COPY requirements.txt ./
RUN python -m venv /opt/headgate && /opt/headgate/bin/pip install --no-cache-dir --require-hashes --no-deps -r requirements.txt
COPY pyproject.toml setup.py README.md LICENSE ./
COPY tools/build_backend.py tools/
COPY gateway/ gateway/
COPY --from=web /src/gateway/headgate/static/ gateway/headgate/static/
COPY --from=web /src/server/ server/
RUN /opt/headgate/bin/pip install --no-cache-dir --no-deps --no-build-isolation --config-settings compiled=yes .
RUN /opt/headgate/bin/python -c "from headgate.installation import build_in_use; assert build_in_use() == 'compiled', build_in_use()"

FROM python:3.11-slim-trixie@sha256:90744cff8f32887f075c47d747a173ff333e9e98801667af93c357fa9f5e28ff
COPY --from=wheel /opt/headgate /opt/headgate
ENV PATH=/opt/headgate/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HEADGATE_HOST=0.0.0.0 \
    HEADGATE_PORT=8000 \
    HEADGATE_DATA_DIR=/tmp/headgate
WORKDIR /tmp
USER 10001:10001
EXPOSE 8000
# Exec form: the gateway is process 1 and gets the SIGTERM of `docker stop` itself.
CMD ["headgate", "serve"]
HEALTHCHECK --interval=5s --timeout=3s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen('http://127.0.0.1:' + os.environ['HEADGATE_PORT'] + '/healthz', timeout=2)"]
