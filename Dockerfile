# Build with docker, podman or buildah; docs/install.md says how. A build that can be repeated to the byte names its
# PYTHON_IMAGE by digest.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ARG SOURCE_DATE_EPOCH=1704067200
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PYTHONDONTWRITEBYTECODE=1
WORKDIR /build
COPY tools/image_requirements.txt tools/
RUN pip install --only-binary :all: -r tools/image_requirements.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip wheel --no-deps --no-build-isolation --wheel-dir wheels . && pip install --no-deps wheels/*.whl
COPY tools tools
RUN python -m tools.image --rootfs /rootfs

# Nothing but Python, its libraries and the operator: no shell, no package manager, no second user.
FROM scratch
COPY --from=build /rootfs /
ENV PATH=/usr/local/bin PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
WORKDIR /
ENTRYPOINT ["/usr/local/bin/trainmaster"]
