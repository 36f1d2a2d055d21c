# Two images of the same service.
#   docker build --target cpu -t k3-gateway:cpu .
#   docker build --target gpu -t k3-gateway:gpu .
# Both run as user 10001 on a read-only root: everything they write goes to /cache (a volume) and /tmp.

ARG VLLM_IMAGE=vllm/vllm-openai:v0.33.0

FROM python:3.11-slim AS cpu-environment
ARG TORCH_CPU_INDEX=https://download.pytorch.org/whl/cpu
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
SHELL ["/bin/bash", "-eu", "-o", "pipefail", "-c"]
WORKDIR /source
RUN python -m venv /opt/k3
COPY requirements/cpu.txt requirements/cpu.txt
RUN torch="$(grep '^torch==' requirements/cpu.txt)" \
    && /opt/k3/bin/pip install --no-deps --index-url "$TORCH_CPU_INDEX" "$torch" \
    && /opt/k3/bin/pip install --no-deps -r requirements/cpu.txt
COPY . .
RUN /opt/k3/bin/pip install --no-deps --no-build-isolation .

FROM python:3.11-slim AS cpu
# vLLM's CPU kernels are linked with libnuma.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends libnuma1 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --create-home --home-dir /cache k3
COPY --from=cpu-environment /opt/k3 /opt/k3
ENV PATH=/opt/k3/bin:$PATH \
    HOME=/cache \
    XDG_CACHE_HOME=/cache \
    K3_CACHE=/cache/k3 \
    HF_HOME=/cache/huggingface \
    VLLM_CACHE_ROOT=/cache/vllm \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /cache
VOLUME /cache
EXPOSE 8000
ENTRYPOINT ["k3"]
CMD ["serve"]

# hadolint ignore=DL3006
FROM ${VLLM_IMAGE} AS gpu
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /source
COPY . .
# What the image brings (torch, vLLM and all they need) keeps its versions.
RUN python3 -m pip freeze --exclude-editable > /tmp/constraints.txt \
    && python3 -m pip install -c /tmp/constraints.txt . "fastsafetensors>=0.1.15" \
    && rm -rf /tmp/constraints.txt /source/* \
    && useradd --uid 10001 --create-home --home-dir /cache k3
ENV HOME=/cache \
    XDG_CACHE_HOME=/cache \
    K3_CACHE=/cache/k3 \
    HF_HOME=/cache/huggingface \
    VLLM_CACHE_ROOT=/cache/vllm \
    TRITON_CACHE_DIR=/cache/triton \
    TORCHINDUCTOR_CACHE_DIR=/cache/inductor \
    FLASHINFER_WORKSPACE_BASE=/cache \
    CUDA_CACHE_PATH=/cache/cuda \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /cache
VOLUME /cache
EXPOSE 8000
ENTRYPOINT ["k3"]
CMD ["serve"]
