"""Leases of shards in Redis: one script renews leases, gives up shards beyond the fair share, and takes free ones.

Keys: `<prefix>:shards` holds "<owner> <fence> <until ms>" of each shard, `<prefix>:schedulers` until when each scheduler is alive,
`<prefix>:fence` the newest fence. Times are the server's own, so that the clocks of schedulers need not agree.
"""

from typing import Final

__all__ = ["FENCED", "LEASE"]

# ARGV: prefix, owner, milliseconds (0: leave), number of shards. Answer: {shard, fence, shard, fence, ...}.
LEASE: Final = """
local prefix, owner, ttl, count = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local key, alive_key = prefix .. ':shards', prefix .. ':schedulers'
local fence_key = prefix .. ':fence'
-- Everything is looked at before the first write: a call is done whole or not at all.
for _, hash in ipairs({key, alive_key}) do
  local kind = redis.call('TYPE', hash).ok
  if kind ~= 'hash' and kind ~= 'none' then return redis.error_reply('WRONGTYPE ' .. hash .. ' is a ' .. kind .. ', no hash') end
end
local newest_fence = redis.pcall('GET', fence_key) or '0'
if type(newest_fence) == 'table' or not string.match(newest_fence, '^%d+$') or #newest_fence > 15 then
  return redis.error_reply('ERR ' .. fence_key .. ' is no number of at most 15 digits')
end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local until_ms = string.format('%d', now + ttl)
if ttl > 0 then redis.call('HSET', alive_key, owner, until_ms) else redis.call('HDEL', alive_key, owner) end
local alive = 0
local members = redis.call('HGETALL', alive_key)
for i = 1, #members, 2 do
  if (tonumber(members[i + 1]) or 0) < now then redis.call('HDEL', alive_key, members[i]) else alive = alive + 1 end
end
local most = ttl > 0 and math.ceil(count / math.max(1, alive)) or 0
local mine, free = {}, {}
for shard = 0, count - 1 do
  local who, fence, till = string.match(redis.call('HGET', key, shard) or '', '^(%S+) (%d+) (%d+)$')
  if who == owner then
    mine[#mine + 1] = {shard, tonumber(fence)}
  elseif not who or tonumber(till) < now then
    free[#free + 1] = shard
  end
end
while #mine > most do redis.call('HDEL', key, table.remove(mine)[1]) end
for _, shard in ipairs(free) do
  if #mine >= most then break end
  mine[#mine + 1] = {shard, redis.call('INCR', fence_key)}
end
local out = {}
for _, one in ipairs(mine) do
  redis.call('HSET', key, one[1], owner .. ' ' .. string.format('%d', one[2]) .. ' ' .. until_ms)
  out[#out + 1] = one[1]
  out[#out + 1] = one[2]
end
return out
"""

# At the head of a commit. `fences` is "" or "shard fence shard fence ..."; sets `fenced` when one is not the newest.
FENCED: Final = """
local fenced = false
for shard, fence in string.gmatch(ARGV[2], '(%d+) (%d+)') do
  local lease = redis.pcall('HGET', ARGV[1] .. ':shards', shard) or ''
  -- A lease that cannot be read is nobody's.
  if type(lease) == 'table' or string.match(lease, '^%S+ (%d+) ') ~= fence then fenced = true end
end
"""
