# One image for every role: `windlass scheduler`, `windlass controller`, and the command itself.
# docker build -t windlass:0.1.0 .
ARG PYTHON=3.12

FROM docker.io/library/python:${PYTHON}-slim AS build
WORKDIR /build
COPY pyproject.toml README.md LICENSE NOTICE requirements.lock ./
RUN python -m venv /opt/windlass \
 && /opt/windlass/bin/pip install --no-cache-dir --require-hashes --only-binary :all: -r requirements.lock
COPY src ./src
COPY docs ./docs
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels . \
 && /opt/windlass/bin/pip install --no-cache-dir --no-deps --no-index /wheels/*.whl \
 && /opt/windlass/bin/pip uninstall --yes pip \
 && /opt/windlass/bin/python -m compileall -q /opt/windlass/lib

FROM docker.io/library/python:${PYTHON}-slim
LABEL org.opencontainers.image.title="windlass" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/windlass /opt/windlass
COPY sbom.cdx.json /opt/windlass/sbom.cdx.json
ENV PATH=/opt/windlass/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HOME=/nonexistent
USER 65532:65532
WORKDIR /
ENTRYPOINT ["windlass"]
CMD ["--help"]
