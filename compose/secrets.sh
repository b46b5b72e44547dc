#!/bin/sh
# Makes certificates and a user for each role at the first start, each into a volume that only its reader mounts. A later start changes
# nothing, except that it adds this machine as a node under a new name.
#
#   docker compose run --rm secrets list|rotate|revoke|add-role ...     the commands of `colo admin credentials`
#   docker compose run --rm secrets show listener                       the key of a user, for a program of your own
#
# For new ones of everything README.md has the commands.
set -eu
umask 077
owner=65532:65532
users=/secrets/all/credentials
roles="jobs scheduler overcommit evictor gateway simulator feed admin"

put() { # FILE TARGET: whole or not at all
    cp "$1" "$2.new"
    chown $owner "$2.new"
    chmod 0400 "$2.new"
    mv "$2.new" "$2"
}

# Give a reader what there is of its own, and take from it what there is no more.
give() { # USER READER
    for kind in nkey redis-password; do
        if [ -e "$users/$1.$kind" ]; then put "$users/$1.$kind" "/secrets/$2/$kind"; else rm -f "/secrets/$2/$kind"; fi
    done
    put /secrets/all/ca.pem "/secrets/$2/ca.pem"
    chown $owner "/secrets/$2"
}

user_of() { # ROLE NODE
    colo admin credentials list --directory $users | while read -r user role node _; do
        if [ "$role $node" = "$1 $2" ]; then echo "$user"; fi
    done
}

give_all() {
    for role in $roles; do give "$role" "$role"; done
    for role in collector executor; do give "$(user_of $role "$node")" $role; done
    # With it the gateway hears which logins NATS refused.
    if [ -e $users/auditor.nkey ]; then put $users/auditor.nkey /secrets/gateway/auditor-nkey; else rm -f /secrets/gateway/auditor-nkey; fi
    put $users/nats-users.conf /secrets/nats/nats-users.conf
    put $users/redis-users.acl /secrets/redis/redis-users.acl
    # For its own health check; and the one before, which the server knows until it reads the users again.
    if [ -e /secrets/redis/admin-password ] && ! cmp -s $users/admin.redis-password /secrets/redis/admin-password; then
        mv /secrets/redis/admin-password /secrets/redis/admin-password-before
    fi
    put $users/admin.redis-password /secrets/redis/admin-password
    # The last step: everybody has what these users say.
    cp $users/users.json /secrets/all/given.new
    mv /secrets/all/given.new /secrets/all/given
}

refuse() {
    echo "secrets: $1" >&2
    exit 2
}

certificates() {
    work=$(mktemp -d)
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
        put $server.key /secrets/$server/$server.key
        put $server.pem /secrets/$server/$server.pem
        put ca.pem /secrets/$server/ca.pem
        chown $owner /secrets/$server
    done
    cp ca.pem /secrets/all/ca.pem
    # Nobody needs to sign anything more: the key of the authority ends here.
    cd / && rm -rf "$work"
}

start() {
    node=$(uname -n)
    if [ ! -e /secrets/all/whole ]; then
        certificates
        rm -rf $users
        colo admin credentials init --directory $users > /dev/null
        : > /secrets/all/node
        openssl rand -hex 24 > /secrets/grafana/password
        chmod 0444 /secrets/grafana/password
        chmod 0755 /secrets/grafana
    fi
    if [ "$(cat /secrets/all/node)" != "$node" ]; then
        # A name that cannot be a node's is said, and stops nothing but the profile `real`.
        colo admin credentials add-node "$node" --directory $users 2>&1 || true
        give_all
        echo "$node" > /secrets/all/node
        echo "secrets: made for the machine $node"
    elif ! cmp -s $users/users.json /secrets/all/given; then
        give_all
        echo "secrets: given out, since a change of them was broken off"
    else
        echo "secrets: they are there already"
    fi
    # The last step: what is there is whole.
    : > /secrets/all/whole
    for data in /data/nats /data/redis /data/prometheus; do
        chown $owner $data
        chmod 0700 $data
    done
    chown 0:0 /data/executor
    chmod 0711 /data/executor
}

case ${1:-start} in
    start) start ;;
    show)
        if [ ! -e "$users/${2:-}.nkey" ]; then refuse "show: must name a user that \`list\` shows (got ${2:-nothing})"; fi
        cat "$users/$2.nkey"
        ;;
    list) colo admin credentials "$@" --directory $users ;;
    *)
        case "$*" in revoke*\ admin | revoke*\ admin\ *)
            refuse "revoke: must not name admin, who makes the streams and lets Redis read its users; \`rotate admin\` gives a new key" ;;
        esac
        colo admin credentials "$@" --directory $users
        node=$(cat /secrets/all/node)
        give_all
        echo "Now let the servers read it: docker compose kill -s HUP nats; docker compose exec redis sh /etc/redis/admin.sh ACL LOAD"
        ;;
esac
