# cpu-x86_64-py311-torch2130-devel: PyTorch with the compiler for its extensions
FROM localhost/warpfront/torch:2.13.0-cpu-py3.11
# hadolint ignore=DL3008,SC1091
RUN --mount=type=secret,id=ca,target=/run/secrets/ca \
    --mount=type=secret,id=proxies,target=/run/secrets/proxies \
    --mount=type=tmpfs,target=/var/lib/apt/lists \
    if [ -s /run/secrets/proxies ]; then . /run/secrets/proxies; fi && \
    if [ -s /run/secrets/ca ]; then set -- -o Acquire::https::CAInfo=/run/secrets/ca; fi && \
    apt-get "$@" update && \
    apt-get "$@" install --yes --no-install-recommends \
      g++ \
      python3-dev \
    && apt-get clean
COPY requirements.txt /opt/warpfront/requirements/devel.txt
RUN --network=none \
    --mount=type=bind,from=wheels,target=/wheels \
    --mount=type=bind,from=tools,target=/tools \
    /tools/uv pip install --no-config --offline --no-index --find-links /wheels --no-deps --require-hashes \
      --no-cache --compile-bytecode --python /opt/venv/bin/python \
      --requirement /opt/warpfront/requirements/devel.txt
RUN --network=none warpfront-guard verify --light
