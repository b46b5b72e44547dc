"""Leases of partitions in Redis: one script renews leases, gives up partitions beyond the fair share, and takes free ones.

Keys: `<prefix>:leases` holds "<owner> <fence> <until ms>" of each partition, `<prefix>:members` "<until ms> <partitions>" of each
live instance, `<prefix>:reach` "hears" or "deaf" of those that are sure whether they reach the bus, `<prefix>:fence` the newest
fence, `<prefix>:clock` "<server's time> <time of the leases>" of the last call. A fence is at least the server's time: in a store
that was emptied the next fence is still higher than all before. The reach has a key of its own because older versions take a member
that says more than they know for one that is gone.

Leases end by a time of their own, which the calls count on by the server's clock, so that the clocks of instances need not agree
and a step of the server's clock, or another server whose clock differs, ends no lease and prolongs none: time that went back counts
as none, and more than a lease at once as a quarter of one. Instances that live call three times in a lease. After a time in which
nobody called, the leases of before end within a lease.
"""

from typing import Final

__all__ = ["FENCED", "LEASE"]

# ARGV: prefix, owner, milliseconds (0: leave), number of partitions, what the owner holds as "partition fence ...", and a fence
# that was the newest once, and the owner's reach. Answer: {partition, fence, partition, fence, ..., newest fence}, or
# {-1, number, 0} while live instances have this other number of partitions. Leases beyond the number are those of an older one, and
# are forgotten: their fences end.
# Fences only grow: a store whose newest one is below a known one was emptied, or lost its newest writes. Whoever holds a lease then
# gets it back under the same fence, because that instance knows what the store lost; others get nothing until that is done.
LEASE: Final = """
local prefix, owner, ttl, count = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local held, known_fence = ARGV[5] or '', tonumber(ARGV[6] or '0')
local key, members_key = prefix .. ':leases', prefix .. ':members'
local fence_key, reach_key = prefix .. ':fence', prefix .. ':reach'
local reach = ARGV[7] or ''
-- Everything is looked at before the first write: a call is done whole or not at all.
for _, hash in ipairs({key, members_key, reach_key}) do
  local kind = redis.call('TYPE', hash).ok
  if kind ~= 'hash' and kind ~= 'none' then return redis.error_reply('WRONGTYPE ' .. hash .. ' is a ' .. kind .. ', no hash') end
end
local newest_fence = redis.pcall('GET', fence_key) or '0'
if type(newest_fence) == 'table' or not string.match(newest_fence, '^%d+$') or #newest_fence > 15 then
  return redis.error_reply('ERR ' .. fence_key .. ' is no number of at most 15 digits')
end
local clock_key = prefix .. ':clock'
local clock = redis.pcall('GET', clock_key) or '0 0'
local seen, counted = string.match(type(clock) == 'string' and clock or '', '^(%d+) (%d+)$')
if not seen or #seen > 15 or #counted > 15 then
  return redis.error_reply('ERR ' .. clock_key .. ' is no two numbers of at most 15 digits')
end
local time = redis.call('TIME')
local server_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local now = server_ms
if tonumber(seen) > 0 then
  local passed = math.max(server_ms - tonumber(seen), 0)
  -- Who leaves names no length of a lease; the default one is as good.
  local lease = ttl > 0 and ttl or 5000
  if passed > lease then passed = math.floor(lease / 4) end
  now = tonumber(counted) + passed
end
redis.call('SET', clock_key, string.format('%d %d', server_ms, now))
local alive, gone = {}, {}
local members = redis.call('HGETALL', members_key)
for i = 1, #members, 2 do
  local till, parts = string.match(members[i + 1], '^(%d+) (%d+)$')
  if members[i] ~= owner then
    if not till or tonumber(till) < now then
      gone[#gone + 1] = members[i]
    elseif tonumber(parts) ~= count and ttl > 0 then
      return {-1, tonumber(parts), 0}
    else
      alive[members[i]] = ''
    end
  end
end
for _, name in ipairs(gone) do redis.call('HDEL', members_key, name) end
local reaches = redis.call('HGETALL', reach_key)
for i = 1, #reaches, 2 do
  if alive[reaches[i]] then
    alive[reaches[i]] = reaches[i + 1]
  elseif reaches[i] ~= owner or ttl == 0 or reach == '' then
    redis.call('HDEL', reach_key, reaches[i])
  end
end
if ttl > 0 and reach ~= '' then redis.call('HSET', reach_key, owner, reach) end
-- Whoever is deaf gives way to those that hear, and is not counted among them. Where all are deaf, the bus is away: all stay.
local sharing, somebody_hears = 1, false
for _, other in pairs(alive) do
  somebody_hears = somebody_hears or other == 'hears'
  if reach == 'deaf' or other ~= 'deaf' then sharing = sharing + 1 end
end
local until_ms = string.format('%d', now + ttl)
if ttl > 0 then
  redis.call('HSET', members_key, owner, until_ms .. ' ' .. ARGV[4])
else
  redis.call('HDEL', members_key, owner)
end
local lost = tonumber(newest_fence)
for partition, fence in string.gmatch(held, '(%d+) (%d+)') do
  if ttl > 0 and tonumber(fence) > tonumber(newest_fence) then
    redis.call('HSET', key, partition, owner .. ' ' .. fence .. ' ' .. until_ms)
    lost = math.max(lost, tonumber(fence))
  end
end
if lost > tonumber(newest_fence) then
  newest_fence = string.format('%d', lost)
  redis.call('SET', fence_key, newest_fence)
end
if tonumber(newest_fence) < known_fence then return {tonumber(newest_fence)} end
if ttl > 0 and redis.call('HLEN', key) > count then
  for _, partition in ipairs(redis.call('HKEYS', key)) do
    if not tonumber(partition) or tonumber(partition) >= count then redis.call('HDEL', key, partition) end
  end
end
local most = ttl > 0 and math.ceil(count / sharing) or 0
if reach == 'deaf' and somebody_hears then most = 0 end
local mine, free = {}, {}
for partition = 0, count - 1 do
  local who, fence, till = string.match(redis.call('HGET', key, partition) or '', '^(%S+) (%d+) (%d+)$')
  if who == owner then
    mine[#mine + 1] = {partition, tonumber(fence)}
  elseif not who or tonumber(till) < now then
    free[#free + 1] = partition
  end
end
while #mine > most do redis.call('HDEL', key, table.remove(mine)[1]) end
local newest = tonumber(newest_fence)
for _, partition in ipairs(free) do
  if #mine >= most then break end
  newest = math.max(newest + 1, server_ms)
  mine[#mine + 1] = {partition, newest}
  redis.call('SET', fence_key, string.format('%d', newest))
end
local out = {}
for _, one in ipairs(mine) do
  redis.call('HSET', key, one[1], owner .. ' ' .. string.format('%d', one[2]) .. ' ' .. until_ms)
  out[#out + 1] = one[1]
  out[#out + 1] = one[2]
end
out[#out + 1] = newest
return out
"""

# `prefix` and `fences`, which is "" or "partition fence partition fence ...", are locals of the script that this is put into.
# Sets `fenced` to the first partition whose fence is not the newest, else it is nil. A fence above every one that the store knows
# was given out by this store, which lost that.
FENCED: Final = """
local fenced = nil
local newest_fence = redis.pcall('GET', prefix .. ':fence') or '0'
newest_fence = type(newest_fence) == 'string' and tonumber(newest_fence) or nil
for partition, fence in string.gmatch(fences, '(%d+) (%d+)') do
  local lease = redis.pcall('HGET', prefix .. ':leases', partition) or ''
  -- A lease that cannot be read is nobody's.
  local is_newest = type(lease) == 'string' and string.match(lease, '^%S+ (%d+) ') == fence
  local is_lost = newest_fence and newest_fence < tonumber(fence)
  if not is_newest and not is_lost then fenced = fenced or partition end
end
"""
