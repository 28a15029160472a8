# The server in an image. docs/deploy.md says how to build and run it.
#   docker build --target cpu  --build-arg TORCH_INDEX=<index of torch's builds for the CPU> -t ridgerank .
#   docker build --target cuda -t ridgerank:cuda .
FROM python:3.11-slim AS base
ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 \
    HF_HOME=/cache/huggingface XDG_CACHE_HOME=/cache RIDGERANK_STORE=/data/pages
RUN useradd --create-home --uid 10001 ridgerank && install -d -o ridgerank /data /cache
WORKDIR /app
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY src ./src
COPY deploy/entrypoint.sh /usr/local/bin/ridgerank-entrypoint
VOLUME ["/cache"]
EXPOSE 8080
HEALTHCHECK --interval=15s --timeout=5s --start-period=120s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ.get('RIDGERANK_PORT', '8080') + '/readyz', timeout=4)"]
ENTRYPOINT ["ridgerank-entrypoint"]

# torch's default build brings CUDA along; the host brings the driver.
FROM base AS cuda
RUN pip install --constraint constraints.txt '.[engine,serve,otel]' && rm -rf /app/*
ENV RIDGERANK_DEVICE=cuda
USER 10001

FROM base AS cpu
ARG TORCH_INDEX=""
RUN if [ -n "$TORCH_INDEX" ]; then pip install --constraint constraints.txt --index-url "$TORCH_INDEX" torch; fi \
    && pip install --constraint constraints.txt '.[engine,serve,otel]' && rm -rf /app/*
USER 10001
