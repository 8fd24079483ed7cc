# cpu-x86_64-py311-torch2130-torch: PyTorch runtime
FROM docker.io/library/python:3.11-slim-bookworm@sha256:2e32f7d302adc1c37428355c1e646897c0c53f4fd60b6a551245fb90ee129f91
COPY requirements.txt /opt/warpfront/requirements/torch.txt
RUN --network=none \
    --mount=type=bind,from=wheels,target=/wheels \
    --mount=type=bind,from=tools,target=/tools \
    /tools/uv venv --no-config --offline --no-cache --python python3.11 /opt/venv && \
    /tools/uv pip install --no-config --offline --no-index --find-links /wheels --no-deps --require-hashes \
      --no-cache --compile-bytecode --python /opt/venv/bin/python \
      --requirement /opt/warpfront/requirements/torch.txt
ENV PATH="/opt/venv/bin:$PATH"
COPY guard/ /opt/warpfront/lib/warpfront_guard/
COPY policy.json /opt/warpfront/guard/
RUN --network=none --mount=type=bind,from=sealed,target=/run/sealed \
    PYTHONPATH=/opt/warpfront/lib /opt/venv/bin/python -m warpfront_guard install --policy /opt/warpfront/guard/policy.json \
      --manifest /run/sealed/stack.json
ENV PATH="/opt/warpfront/bin:$PATH"
ENV PIP_CONSTRAINT="/opt/warpfront/guard/constraints.txt /opt/warpfront/guard/needs.txt"
ENV PYTHONNOUSERSITE="1"
ENV UV_BUILD_CONSTRAINT="/opt/warpfront/guard/overrides.txt"
ENV UV_CONSTRAINT="/opt/warpfront/guard/constraints.txt"
ENV UV_PYTHON="/opt/venv/bin/python"
RUN --network=none warpfront-guard verify --light && \
    /opt/venv/bin/python -c "import os; os.setgroups([]); os.setgid(65534); os.setuid(65534); os.execvp('warpfront-guard', ['warpfront-guard', 'verify', '--quick'])"
CMD ["python3"]
