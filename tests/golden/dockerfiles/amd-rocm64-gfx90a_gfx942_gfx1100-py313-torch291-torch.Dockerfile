# amd-rocm64-gfx90a_gfx942_gfx1100-py313-torch291-torch: PyTorch runtime
FROM docker.io/library/python:3.13-slim-trixie@sha256:9d2e5553305c7c7b0097999bb17187c69b921ccd6bc9d40e4bb5ebe652c00285
COPY requirements.txt /opt/warpfront/requirements/torch.txt
RUN --network=none \
    --mount=type=bind,from=wheels,target=/wheels \
    --mount=type=bind,from=tools,target=/tools \
    /tools/uv venv --no-config --offline --no-cache --python python3.13 /opt/venv && \
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
