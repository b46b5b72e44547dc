#!/bin/sh
# A command for Redis as its administrator, from inside its container: `docker compose exec redis sh /etc/redis/admin.sh ACL LIST`.
# While the administrator's own password is rotated the server knows the one before until it reads the users again.
for password in /etc/redis/secrets/admin-password /etc/redis/secrets/admin-password-before; do
    if [ -e $password ]; then
        REDISCLI_AUTH=$(cat $password)
        export REDISCLI_AUTH
        admin="redis-cli -e --user admin --tls --cacert /etc/redis/secrets/ca.pem"
        if $admin ping > /dev/null 2>&1; then exec $admin "$@"; fi
    fi
done
echo "redis: does not answer, or does not let its administrator in"
exit 1
