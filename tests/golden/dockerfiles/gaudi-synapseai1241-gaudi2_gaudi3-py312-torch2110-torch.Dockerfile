# gaudi-synapseai1241-gaudi2_gaudi3-py312-torch2110-torch: PyTorch runtime
FROM vault.habana.ai/gaudi-docker/1.24.1/ubuntu24.04/habanalabs/pytorch-installer-2.11.0:latest
RUN --network=none \
    --mount=type=bind,source=requirements.txt,target=/run/requirements.txt \
    --mount=type=bind,from=wheels,target=/wheels \
    --mount=type=bind,from=tools,target=/tools \
    --mount=type=bind,source=byte-code,target=/run/byte-code \
    start=$(date +%s) && \
    /tools/uv pip install --no-config --offline --no-index --find-links /wheels --no-deps --require-hashes \
      --no-cache --python python3.12 --requirement /run/requirements.txt && \
    site=$(python3.12 -c 'import site; print(site.getsitepackages()[0])') && \
    find "$site" -name uv_cache.json -newermt "@$((start - 1))" -execdir sed -i '/\/uv_cache\.json,/d' RECORD \; -delete && \
    find "$site" -name '*.py' -newermt "@$((start - 1))" -exec touch -d @315532800 {} + && \
    install -D --mode=644 /run/requirements.txt /opt/warpfront/requirements/torch.txt && \
    { PYTHONHASHSEED=0 python3.12 /run/byte-code/compile.py "$site" || true; } && \
    { find / -xdev -newermt "@$((start - 1))" -exec touch -hd @315532800 {} + 2>/dev/null || true; }
ENV PT_HPU_LAZY_MODE="0"
RUN --network=none --mount=type=bind,target=/context \
    start=$(date +%s) && \
    mkdir -p /opt/warpfront/lib/warpfront_guard /opt/warpfront/guard && \
    install --mode=644 /context/guard/* /opt/warpfront/lib/warpfront_guard/ && \
    install --mode=644 /context/policy.json /opt/warpfront/guard/ && \
    touch -d @315532800 /opt/warpfront/lib/warpfront_guard/* && \
    PYTHONPATH=/opt/warpfront/lib python3.12 -m warpfront_guard install --policy /opt/warpfront/guard/policy.json \
      && \
    { find / -xdev -newermt "@$((start - 1))" -exec touch -hd @315532800 {} + 2>/dev/null || true; }
ENV PATH="/opt/warpfront/bin:$PATH"
ENV PIP_CONSTRAINT="/opt/warpfront/guard/constraints.txt /opt/warpfront/guard/needs.txt"
ENV PYTHONNOUSERSITE="1"
ENV UV_BUILD_CONSTRAINT="/opt/warpfront/guard/overrides.txt"
ENV UV_CONSTRAINT="/opt/warpfront/guard/constraints.txt"
ENV UV_PYTHON="python3.12"
RUN --network=none --mount=type=tmpfs,target=/tmp start=$(date +%s) && \
    warpfront-guard verify --light && \
    python3.12 -c "import os; os.setgroups([]); os.setgid(65534); os.setuid(65534); os.execvp('warpfront-guard', ['warpfront-guard', 'verify', '--quick'])" && \
    { find / -xdev -newermt "@$((start - 1))" -exec touch -hd @315532800 {} + 2>/dev/null || true; }
CMD ["python3"]
