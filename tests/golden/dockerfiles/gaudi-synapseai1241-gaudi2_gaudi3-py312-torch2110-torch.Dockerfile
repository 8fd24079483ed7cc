# gaudi-synapseai1241-gaudi2_gaudi3-py312-torch2110-torch: PyTorch runtime
FROM vault.habana.ai/gaudi-docker/1.24.1/ubuntu24.04/habanalabs/pytorch-installer-2.11.0:latest
COPY requirements.txt /opt/warpfront/requirements/torch.txt
RUN --network=none \
    --mount=type=bind,from=wheels,target=/wheels \
    --mount=type=bind,from=tools,target=/tools \
    /tools/uv pip install --no-config --offline --no-index --find-links /wheels --no-deps --require-hashes \
      --no-cache --compile-bytecode --python python3.12 \
      --requirement /opt/warpfront/requirements/torch.txt
CMD ["python3"]
