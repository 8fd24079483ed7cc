# gaudi-synapseai1241-gaudi2_gaudi3-py312-torch2110-torch: PyTorch runtime
FROM vault.habana.ai/gaudi-docker/1.24.1/ubuntu24.04/habanalabs/pytorch-installer-2.11.0:latest
COPY requirements.txt /opt/warpfront/requirements/torch.txt
RUN --network=none \
    --mount=type=bind,from=wheels,target=/wheels \
    --mount=type=bind,from=tools,target=/tools \
    /tools/uv pip install --no-config --offline --no-index --find-links /wheels --no-deps --require-hashes \
      --no-cache --compile-bytecode --python python3.12 \
      --requirement /opt/warpfront/requirements/torch.txt
COPY guard/ /opt/warpfront/lib/warpfront_guard/
COPY policy.json /opt/warpfront/guard/
RUN --network=none PYTHONPATH=/opt/warpfront/lib python3.12 -m warpfront_guard install --policy /opt/warpfront/guard/policy.json
ENV PATH="/opt/warpfront/bin:$PATH"
ENV PIP_CONSTRAINT="/opt/warpfront/guard/constraints.txt /opt/warpfront/guard/needs.txt"
ENV PYTHONNOUSERSITE="1"
ENV UV_BUILD_CONSTRAINT="/opt/warpfront/guard/overrides.txt"
ENV UV_CONSTRAINT="/opt/warpfront/guard/constraints.txt"
ENV UV_PYTHON="python3.12"
RUN --network=none warpfront-guard verify --light && \
    python3.12 -c "import os; os.setgroups([]); os.setgid(65534); os.setuid(65534); os.execvp('warpfront-guard', ['warpfront-guard', 'verify', '--quick'])"
CMD ["python3"]
