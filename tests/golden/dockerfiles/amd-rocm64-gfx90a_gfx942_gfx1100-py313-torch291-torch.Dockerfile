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
CMD ["python3"]
