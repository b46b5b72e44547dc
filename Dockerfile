# One image for every service: `docker run IMAGE scheduler --nats-url ...` is `colo scheduler`. Any Debian-like base with Python 3.11 or
# later serves: `docker build --build-arg BASE=python:3.13-slim .`
ARG BASE=python:3.12-slim

# ---------------------------------------------------------------- build: what needs an index stays in this stage
FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore PIP_QUIET=1
RUN python3 -m venv /build && python3 -m venv --without-pip /opt/colo
WORKDIR /src
# Nothing is installed whose hash is not in a lock, the build's own tools included. Of nkeys there is no wheel. The optional secret `ca` is the bundle of an index
# behind a private certificate.
COPY image/requirements.lock image/build.lock image/
RUN --mount=type=secret,id=ca \
    if [ -s /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi; \
    awk '/^[^ #]/ { source = /^nkeys==/ } { print > (source ? "/build/source.lock" : "/build/wheels.lock") }' image/requirements.lock \
    && /build/bin/pip install --require-hashes --only-binary :all: -r image/build.lock \
    && /build/bin/pip --python /opt/colo/bin/python install --require-hashes --only-binary :all: --no-compile -r /build/wheels.lock \
    && /build/bin/pip wheel --require-hashes --no-deps --no-build-isolation --wheel-dir /build/source -r /build/source.lock \
    && /build/bin/pip --python /opt/colo/bin/python install --no-index --no-deps --no-compile /build/source/*.whl
COPY pyproject.toml README.md LICENSE ./
COPY libs libs
COPY apps apps
COPY services services
COPY image image
# Tests and interface files of libraries are not run, and no message shows code of another language than Python. Bytecode is made once, and
# checked by nobody: the file system is read-only.
RUN SOURCE_DATE_EPOCH=0 /build/bin/pip wheel --no-build-isolation --no-deps --wheel-dir /build/wheel . \
    && /build/bin/pip --python /opt/colo/bin/python install --no-index --no-deps --no-compile /build/wheel/*.whl \
    && find /opt/colo -type d \( -name tests -o -name testing -o -name f2py -o -name include \) -path '*numpy*' ! -path '*numpy/testing' -prune -exec rm -rf {} + \
    && find /opt/colo/lib/python3*/site-packages/pygments/lexers -name '*.py' ! -name __init__.py ! -name _mapping.py ! -name python.py ! -name special.py -delete \
    && find /opt/colo \( -name '*.pyi' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.a' \) -delete \
    && /opt/colo/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/colo/lib \
    && find /opt/colo/bin -mindepth 1 ! -name colo ! -name 'python*' -delete \
    && mkdir -p /opt/colo/share && cp image/ready.py /opt/colo/share/ \
    && /opt/colo/bin/python image/sbom.py image/requirements.lock > /opt/colo/share/sbom.cdx.json

# ---------------------------------------------------------------- the image
FROM ${BASE}
ARG VERSION=0.0.0+unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="colo" \
      org.opencontainers.image.description="Colocation control plane: batch work on the idle capacity under latency-sensitive services." \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN groupadd --system --gid 65532 colo \
    && useradd --system --uid 65532 --gid colo --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin colo \
    && useradd --system --uid 65533 --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin colo-batch \
    && install -d -o colo -g colo -m 0755 /var/lib/colo
COPY --from=build /opt/colo /opt/colo
ENV PATH=/opt/colo/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
WORKDIR /
ENTRYPOINT ["colo"]
CMD ["--help"]
