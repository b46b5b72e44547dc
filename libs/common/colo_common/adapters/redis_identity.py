"""Who a Redis is, for its scripts: "<random number beside the data> in run <run of the server>", as `redis_identity` says it."""

from typing import Final

__all__ = ["IDENTITY", "SAME_STORE"]

IDENTITY: Final = "colo:v1:identity"

# Lua: a script ends here with an error, before it writes, when the server is another one than `compared` names ("": any will do).
# A server that began again has perhaps lost its last second, and nothing stored tells that.
SAME_STORE: Final = (
    """
if compared ~= '' then
  local number = redis.pcall('GET', '"""
    + IDENTITY
    + """') or ''
  local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') or ''
  if type(number) ~= 'string' or number .. ' in run ' .. run ~= compared then
    return redis.error_reply('BEGANAGAIN Redis began again, and what it lost is not yet put back')
  end
end
"""
)
