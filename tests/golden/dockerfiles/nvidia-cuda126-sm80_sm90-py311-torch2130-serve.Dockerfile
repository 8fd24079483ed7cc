# nvidia-cuda126-sm80_sm90-py311-torch2130-serve: HTTP service skeleton for PyTorch models
FROM localhost/warpfront/torch:2.13.0-cuda12.6-py3.11
COPY requirements.txt /opt/warpfront/requirements/serve.txt
RUN --network=none \
    --mount=type=bind,from=wheels,target=/wheels \
    --mount=type=bind,from=tools,target=/tools \
    /tools/uv pip install --no-config --offline --no-index --find-links /wheels --no-deps --require-hashes \
      --no-cache --compile-bytecode --python /opt/venv/bin/python \
      --requirement /opt/warpfront/requirements/serve.txt
RUN --network=none warpfront-guard verify --light
