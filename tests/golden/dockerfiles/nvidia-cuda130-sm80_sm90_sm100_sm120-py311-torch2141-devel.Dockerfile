# nvidia-cuda130-sm80_sm90_sm100_sm120-py311-torch2141-devel: PyTorch with the compiler for its extensions
FROM localhost/warpfront/torch:2.14.1-cuda13.0-py3.11
# hadolint ignore=DL3008,SC1091
RUN --mount=type=secret,id=ca,target=/run/secrets/ca \
    --mount=type=secret,id=proxies,target=/run/secrets/proxies \
    --mount=type=tmpfs,target=/var/lib/apt/lists \
    start=$(date +%s) && \
    if [ -s /run/secrets/proxies ]; then . /run/secrets/proxies; fi && \
    if [ -s /run/secrets/ca ]; then set -- -o Acquire::https::CAInfo=/run/secrets/ca; fi && \
    apt-get "$@" update && \
    apt-get "$@" install --yes --no-install-recommends \
      g++ \
      python3-dev \
    && apt-get clean && \
    rm -f /var/log/apt/* /var/log/alternatives.log /var/log/dpkg.log /var/cache/ldconfig/aux-cache && \
    { find / -xdev -newermt "@$((start - 1))" -exec touch -hd @315532800 {} + 2>/dev/null || true; }
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
RUN --network=none start=$(date +%s) && \
    ln -s lib /opt/venv/lib/python3.11/site-packages/nvidia/cu13/lib64 && \
    for file in /opt/venv/lib/python3.11/site-packages/nvidia/cu13/lib/lib*.so.*; do \
      [ -e "${file%%.so.*}.so" ] || ln -s "${file##*/}" "${file%%.so.*}.so" || exit 1; \
    done && \
    { find / -xdev -newermt "@$((start - 1))" -exec touch -hd @315532800 {} + 2>/dev/null || true; }
ENV PATH="/opt/venv/lib/python3.11/site-packages/nvidia/cu13/bin:$PATH"
ENV CUDA_HOME="/opt/venv/lib/python3.11/site-packages/nvidia/cu13"
ENV TORCH_CUDA_ARCH_LIST="8.0;9.0;10.0;12.0+PTX"
