# amd-rocm100-gfx90a_gfx942_gfx950_gfx1100_gfx1201-py313-torch2130-serve: HTTP service skeleton for PyTorch models
FROM localhost/warpfront/torch:2.13.0-rocm10.0-py3.13
RUN --network=none \
    --mount=type=bind,source=requirements.txt,target=/run/requirements.txt \
    --mount=type=bind,from=wheels,target=/wheels \
    --mount=type=bind,from=tools,target=/tools \
    --mount=type=bind,source=byte-code,target=/run/byte-code \
    start=$(date +%s) && \
    /tools/uv pip install --no-config --offline --no-index --find-links /wheels --no-deps --require-hashes \
      --no-cache --python /opt/venv/bin/python --requirement /run/requirements.txt && \
    site=$(/opt/venv/bin/python -c 'import site; print(site.getsitepackages()[0])') && \
    find "$site" -name uv_cache.json -newermt "@$((start - 1))" -execdir sed -i '/\/uv_cache\.json,/d' RECORD \; -delete && \
    find "$site" -name '*.py' -newermt "@$((start - 1))" -exec touch -d @315532800 {} + && \
    install -D --mode=644 /run/requirements.txt /opt/warpfront/requirements/serve.txt && \
    { PYTHONHASHSEED=0 /opt/venv/bin/python /run/byte-code/compile.py "$site" || true; } && \
    { find / -xdev -newermt "@$((start - 1))" -exec touch -hd @315532800 {} + 2>/dev/null || true; }
RUN --network=none start=$(date +%s) && \
    warpfront-guard verify --light && \
    { find / -xdev -newermt "@$((start - 1))" -exec touch -hd @315532800 {} + 2>/dev/null || true; }
