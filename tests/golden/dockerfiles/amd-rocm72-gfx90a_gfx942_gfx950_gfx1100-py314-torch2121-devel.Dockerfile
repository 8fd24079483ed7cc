# amd-rocm72-gfx90a_gfx942_gfx950_gfx1100-py314-torch2121-devel: PyTorch with the compiler for its extensions
FROM localhost/warpfront/torch:2.12.1-rocm7.2-py3.14
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
    install -D --mode=644 /run/requirements.txt /opt/warpfront/requirements/devel.txt && \
    { PYTHONHASHSEED=0 /opt/venv/bin/python /run/byte-code/compile.py "$site" || true; } && \
    { find / -xdev -newermt "@$((start - 1))" -exec touch -hd @315532800 {} + 2>/dev/null || true; }
RUN --network=none start=$(date +%s) && \
    warpfront-guard verify --light && \
    { find / -xdev -newermt "@$((start - 1))" -exec touch -hd @315532800 {} + 2>/dev/null || true; }
ENV HIP_PLATFORM="amd"
ENV PYTORCH_ROCM_ARCH="gfx90a;gfx942;gfx950;gfx1100"
ENV ROCM_HOME="/usr"
