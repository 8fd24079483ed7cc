# amd-rocm63-gfx90a_gfx942_gfx1100-py313-torch291-serve: HTTP service skeleton for PyTorch models
FROM localhost/warpfront/torch:2.9.1-rocm6.3-py3.13
COPY requirements.txt /opt/warpfront/requirements/serve.txt
RUN --network=none \
    --mount=type=bind,from=wheels,target=/wheels \
    --mount=type=bind,from=tools,target=/tools \
    /tools/uv pip install --no-config --offline --no-index --find-links /wheels --no-deps --require-hashes \
      --no-cache --compile-bytecode --python /opt/venv/bin/python \
      --requirement /opt/warpfront/requirements/serve.txt
RUN --network=none warpfront-guard verify --light
