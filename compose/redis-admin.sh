#!/bin/sh
# A command for Redis as its administrator, from inside its container: `docker compose exec redis sh /etc/redis/admin.sh ACL LIST`.
REDISCLI_AUTH=$(cat /etc/redis/secrets/admin-password) exec redis-cli -e --user admin --tls --cacert /etc/redis/secrets/ca.pem "$@"
