# amd-rocm72-gfx90a_gfx942_gfx950_gfx1100-py314-torch2121-torch: PyTorch runtime
FROM localhost/warpfront/base:debian-sid-rocm72 AS environment
RUN --network=none --mount=type=bind,from=tools,target=/tools \
    start=$(date +%s) && \
    python3.14 -IBc 'import sys; v = "%d.%d" % sys.version_info[:2]; \
      sys.exit(v != "3.14" and "python3.14 of this base is Python " + v + ", and matrix.yaml says 3.14")' && \
    /tools/uv venv --no-config --offline --no-cache --python python3.14 /opt/venv && \
    mv /opt/venv/lib/python3.* /opt/venv/lib/python3 && \
    ln -s python3 /opt/venv/lib/python3.14 && \
    { find / -xdev -newermt "@$((start - 1))" -exec touch -hd @315532800 {} + 2>/dev/null || true; }

FROM environment AS installed
RUN --network=none \
    --mount=type=bind,source=requirements.txt,target=/run/requirements.txt \
    --mount=type=bind,from=wheels,target=/wheels \
    --mount=type=bind,from=tools,target=/tools \
    start=$(date +%s) && \
    /tools/uv pip install --no-config --offline --no-index --find-links /wheels --no-deps --require-hashes \
      --no-cache --python /opt/venv/bin/python --requirement /run/requirements.txt && \
    site=$(/opt/venv/bin/python -c 'import site; print(site.getsitepackages()[0])') && \
    find "$site" -name uv_cache.json -newermt "@$((start - 1))" -execdir sed -i '/\/uv_cache\.json,/d' RECORD \; -delete && \
    find "$site" -name '*.py' -newermt "@$((start - 1))" -exec touch -d @315532800 {} + && \
    { find / -xdev -newermt "@$((start - 1))" -exec touch -hd @315532800 {} + 2>/dev/null || true; }

FROM installed
RUN --network=none \
    --mount=type=bind,source=requirements.txt,target=/run/requirements.txt \
    --mount=type=bind,source=byte-code,target=/run/byte-code \
    start=$(date +%s) && \
    site=$(/opt/venv/bin/python -c 'import site; print(site.getsitepackages()[0])') && \
    install -D --mode=644 /run/requirements.txt /opt/warpfront/requirements/torch.txt && \
    { PYTHONHASHSEED=0 /opt/venv/bin/python /run/byte-code/compile.py "$site" || true; } && \
    { find / -xdev -newermt "@$((start - 1))" -exec touch -hd @315532800 {} + 2>/dev/null || true; }
ENV PATH="/opt/venv/bin:$PATH"
RUN --network=none --mount=type=bind,target=/context \
    --mount=type=bind,from=sealed,target=/run/sealed \
    start=$(date +%s) && \
    mkdir -p /opt/warpfront/lib/warpfront_guard /opt/warpfront/guard && \
    install --mode=644 /context/guard/* /opt/warpfront/lib/warpfront_guard/ && \
    install --mode=644 /context/policy.json /opt/warpfront/guard/ && \
    touch -d @315532800 /opt/warpfront/lib/warpfront_guard/* && \
    PYTHONPATH=/opt/warpfront/lib /opt/venv/bin/python -m warpfront_guard install --policy /opt/warpfront/guard/policy.json \
      --manifest /run/sealed/stack.json \
      && \
    { find / -xdev -newermt "@$((start - 1))" -exec touch -hd @315532800 {} + 2>/dev/null || true; }
ENV PATH="/opt/warpfront/bin:$PATH"
ENV PIP_CONSTRAINT="/opt/warpfront/guard/constraints.txt /opt/warpfront/guard/needs.txt"
ENV PYTHONNOUSERSITE="1"
ENV UV_BUILD_CONSTRAINT="/opt/warpfront/guard/overrides.txt"
ENV UV_CONSTRAINT="/opt/warpfront/guard/constraints.txt"
ENV UV_PYTHON="/opt/venv/bin/python"
RUN --network=none --mount=type=tmpfs,target=/tmp start=$(date +%s) && \
    warpfront-guard verify --light && \
    /opt/venv/bin/python -c "import os; os.setgroups([]); os.setgid(65534); os.setuid(65534); os.execvp('warpfront-guard', ['warpfront-guard', 'verify', '--quick'])" && \
    { find / -xdev -newermt "@$((start - 1))" -exec touch -hd @315532800 {} + 2>/dev/null || true; }
CMD ["python3"]
