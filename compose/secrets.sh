#!/bin/sh
# Makes passwords and certificates at the first start, into one volume for each reader. A second run changes nothing.
# To make new ones: `docker compose down`, remove the volumes colo_secrets-*, `docker compose up`.
set -eu
umask 077
owner=65532:65532
secret() { openssl rand -hex 24; }

if [ -e /secrets/colo/redis-password ]; then
    echo "secrets: they are there already"
else
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    cd "$work"
    key="-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
    # shellcheck disable=SC2086
    openssl req -x509 $key -days 3650 -subj "/CN=colo compose" -keyout ca.key -out ca.pem \
        -addext "basicConstraints=critical,CA:true,pathlen:0" -addext "keyUsage=critical,keyCertSign,cRLSign" 2> /dev/null
    for server in nats redis; do
        # shellcheck disable=SC2086
        openssl req $key -subj "/CN=$server" -keyout $server.key -out $server.csr 2> /dev/null
        printf '%s\n' "subjectAltName=DNS:$server,DNS:localhost,IP:127.0.0.1" "basicConstraints=critical,CA:false" \
            "keyUsage=critical,digitalSignature" "extendedKeyUsage=serverAuth" "subjectKeyIdentifier=hash" \
            "authorityKeyIdentifier=keyid" > $server.ext
        openssl x509 -req -in $server.csr -CA ca.pem -CAkey ca.key -days 825 -extfile $server.ext -out $server.pem 2> /dev/null
        mkdir -p /secrets/$server
        cp $server.key $server.pem ca.pem /secrets/$server/
    done
    # Nobody needs to sign anything more: the key of the authority ends here.
    rm -f ca.key
    nats=$(secret) redis=$(secret)
    printf 'authorization { user: colo, password: "%s" }\n' "$nats" > /secrets/nats/auth.conf
    printf 'requirepass %s\n' "$redis" > /secrets/redis/auth.conf
    printf '%s' "$redis" > /secrets/redis/password
    if [ -d /secrets/grafana ]; then
        secret > /secrets/grafana/password
        chmod 0444 /secrets/grafana/password
        chmod 0755 /secrets/grafana
    fi
    cp ca.pem /secrets/colo/
    printf '%s\n' "$nats" > /secrets/colo/nats-password
    printf '%s\n' "$redis" > /secrets/colo/redis-password.new
    chown -R $owner /secrets/nats /secrets/redis /secrets/colo
    # The last step: what is there is whole.
    mv /secrets/colo/redis-password.new /secrets/colo/redis-password
    echo "secrets: made"
fi
for data in /data/nats /data/redis /data/prometheus; do
    if [ -d $data ]; then chown $owner $data && chmod 0700 $data; fi
done
if [ -d /data/executor ]; then chown 0:0 /data/executor && chmod 0711 /data/executor; fi
