# nvidia-cuda132-sm80_sm90_sm100_sm120-py311-torch2150-devel: PyTorch with the compiler for its extensions
FROM localhost/warpfront/torch:2.15.0-cuda13.2-py3.11
# hadolint ignore=DL3008,SC1091
RUN --mount=type=secret,id=ca,target=/run/secrets/ca \
    --mount=type=secret,id=proxies,target=/run/secrets/proxies \
    --mount=type=tmpfs,target=/var/lib/apt/lists \
    if [ -s /run/secrets/proxies ]; then . /run/secrets/proxies; fi && \
    if [ -s /run/secrets/ca ]; then set -- -o Acquire::https::CAInfo=/run/secrets/ca; fi && \
    apt-get "$@" update && \
    apt-get "$@" install --yes --no-install-recommends \
      g++ \
      python3-dev \
    && apt-get clean
COPY requirements.txt /opt/warpfront/requirements/devel.txt
RUN --network=none \
    --mount=type=bind,from=wheels,target=/wheels \
    --mount=type=bind,from=tools,target=/tools \
    /tools/uv pip install --no-config --offline --no-index --find-links /wheels --no-deps --require-hashes \
      --no-cache --compile-bytecode --python /opt/venv/bin/python \
      --requirement /opt/warpfront/requirements/devel.txt
RUN --network=none warpfront-guard verify --light
RUN --network=none ln -s lib /opt/venv/lib/python3.11/site-packages/nvidia/cu13/lib64 && \
    for file in /opt/venv/lib/python3.11/site-packages/nvidia/cu13/lib/lib*.so.*; do \
      [ -e "${file%%.so.*}.so" ] || ln -s "${file##*/}" "${file%%.so.*}.so" || exit 1; \
    done
ENV PATH="/opt/venv/lib/python3.11/site-packages/nvidia/cu13/bin:$PATH"
ENV CUDA_HOME="/opt/venv/lib/python3.11/site-packages/nvidia/cu13"
ENV TORCH_CUDA_ARCH_LIST="8.0;9.0;10.0;12.0+PTX"
