"""The scripts of the ledger in Redis; each is one atomic step.

Keys: `<prefix>:node:<name>` is a node's row, with its revision `rev` and the owner of that, `by`; a field `h:<replica>#<attempt>`
is a hold, and `c:...` marks it as started. `<prefix>:changes` counts the writes of every row; `<prefix>:floor` is the first
revision of a node without a row; `<prefix>:held` has the node of a held attempt, `<prefix>:newest` the newest held attempt of a
replica, `<prefix>:over:<replica>` its newest finished one.
"""

from typing import Final

from colo_common.adapters.lease_scripts import FENCED
from colo_common.adapters.redis_identity import SAME_STORE

__all__ = ["COMMIT", "CONFIRM", "FORGET", "PUT_BACK", "RELEASE"]

# Each script reads and judges all of a node (or of an attempt) before it writes the first of it, so that what is written is
# written whole. What is of the wrong type or no number is told as ledger-disagrees of the replicas that it is about.

# ARGV: prefix, fences, owner, the identity of the store that was compared ("": any), then for each node: name, expected revision,
# 1 where the owner must have written that, number of holds, and for each hold: replica, attempt, value.
# Answer, for each node: {revision, changes, {verdict, node it is held on, verdict, ...}}.
COMMIT: Final = (
    """
local prefix, fences, owner, compared = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
"""
    + SAME_STORE
    + FENCED
    + """
local held, newest, changed = prefix .. ':held', prefix .. ':newest', prefix .. ':changes'

local function is_hash(key)
  local kind = redis.call('TYPE', key).ok
  return kind == 'hash' or kind == 'none'
end
local indexed = is_hash(held) and is_hash(newest)
-- What a node without a row begins at.
local floor = redis.pcall('GET', prefix .. ':floor') or '0'
if type(floor) == 'table' or not string.match(floor, '^%d+$') then floor = '-1' end

-- The newest attempt that is held, or that is over; nil when it cannot be read.
local function newest_held(replica)
  return tonumber(string.match(redis.call('HGET', newest, replica) or '0', '^%d+$'))
end
local function newest_over(replica)
  local over = redis.pcall('GET', prefix .. ':over:' .. replica) or '0 '
  return type(over) == 'string' and tonumber(string.match(over, '^(%d+) ')) or nil
end

local function verdict_of(node, replica, attempt, taken)
  if not indexed then return 'ledger-disagrees', '' end
  local name = replica .. '#' .. attempt
  local where = taken.names[name] or redis.call('HGET', held, name) or ''
  if where ~= '' then return 'already-held', where end
  local held_attempt, over_attempt = newest_held(replica), newest_over(replica)
  if not held_attempt or not over_attempt then return 'ledger-disagrees', '' end
  held_attempt = math.max(held_attempt, taken.newest[replica] or 0)
  if held_attempt > tonumber(attempt) or over_attempt >= tonumber(attempt) then
    return 'older-attempt', tostring(math.max(held_attempt, over_attempt + 1))
  end
  taken.names[name], taken.newest[replica] = node, tonumber(attempt)
  return 'ok', ''
end

local out = {}
local at = 5
while at <= #ARGV do
  local node, expect, count = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 3])
  local key = prefix .. ':node:' .. node
  -- A key that somebody made no hash is a matter of its node alone.
  local broken = not is_hash(key)
  local kept = not broken and redis.call('HGET', key, 'rev')
  local revision = broken and '-1' or kept or floor
  -- Nor can one be counted on that is about to overflow.
  broken = broken or revision == '-1' or #revision > 15
  local moved = revision ~= expect
  if not broken and not moved and ARGV[at + 2] == '1' then moved = (redis.call('HGET', key, 'by') or '') ~= owner end
  local first = at + 4
  -- What was accepted before has moved the revision, so a call on the newest one is not a repeated one.
  local same = 0
  if not broken and revision ~= expect then
    for i = 0, count - 1 do
      local name = ARGV[first + i * 3] .. '#' .. ARGV[first + i * 3 + 1]
      if redis.call('HGET', key, 'h:' .. name) == ARGV[first + i * 3 + 2] then same = same + 1 end
    end
  end
  local verdicts, accepted = {}, {}
  local taken = {names = {}, newest = {}}
  for i = 0, count - 1 do
    local replica, attempt, value = ARGV[first + i * 3], ARGV[first + i * 3 + 1], ARGV[first + i * 3 + 2]
    local verdict, where = 'ok', ''
    if same < count then
      if fenced then
        verdict = 'shard-lost'
      elseif broken then
        verdict = 'ledger-disagrees'
      elseif moved then
        verdict = 'ledger-conflict'
      else
        verdict, where = verdict_of(node, replica, attempt, taken)
        if verdict == 'ok' then accepted[#accepted + 1] = {replica, attempt, value} end
      end
    end
    verdicts[#verdicts + 1] = verdict
    verdicts[#verdicts + 1] = where
  end
  if #accepted > 0 then
    if not kept and floor ~= '0' then
      redis.call('HSET', key, 'rev', floor)
      redis.pcall('HSETNX', changed, node, floor)
    end
    revision = tostring(redis.call('HINCRBY', key, 'rev', 1))
    redis.call('HSET', key, 'by', owner)
    for _, one in ipairs(accepted) do
      local name = one[1] .. '#' .. one[2]
      redis.call('HSET', key, 'h:' .. name, one[3])
      redis.call('HSET', held, name, node)
      redis.call('HSET', newest, one[1], one[2])
    end
    redis.pcall('HINCRBY', changed, node, 1)
  end
  local changes = redis.pcall('HGET', changed, node) or '0'
  if type(changes) == 'table' then changes = '-1' end
  out[#out + 1] = {tonumber(revision) or -1, tonumber(changes) or -1, verdicts}
  at = first + count * 3
end
return out
"""
)

# ARGV: prefix, seconds to remember, then replica, attempt and node of each ("" where it may be any). Answer: node ("" where nothing
# was held) of each, and how often that node's row was written, afterwards ("" where nothing is counted, "?" where it cannot be
# read). Releasing only frees, so what cannot be read of a replica's newest attempts is replaced.
RELEASE: Final = """
local prefix, kept = ARGV[1], ARGV[2]
local held, newest, changed = prefix .. ':held', prefix .. ':newest', prefix .. ':changes'
local kind = redis.call('TYPE', held).ok
if kind ~= 'hash' and kind ~= 'none' then return redis.error_reply('WRONGTYPE ' .. held .. ' is a ' .. kind .. ', no hash') end
local out = {}
local function release(replica, attempt, where)
  local name = replica .. '#' .. attempt
  local node = redis.call('HGET', held, name)
  if node and where ~= '' and node ~= where then return '' end
  local over_key = prefix .. ':over:' .. replica
  local over = redis.pcall('GET', over_key) or '0 '
  if type(over) == 'table' then over = '' end
  local over_attempt, over_node = string.match(over, '^(%d+) (.*)$')
  local newest_held = redis.pcall('HGET', newest, replica) or '0'
  if type(newest_held) == 'string' and (not string.match(newest_held, '^%d+$') or node and newest_held == attempt) then
    redis.call('HDEL', newest, replica)
  end
  if node then
    redis.call('HDEL', held, name)
    redis.pcall('HDEL', prefix .. ':node:' .. node, 'h:' .. name, 'c:' .. name)
    redis.pcall('HINCRBY', changed, node, 1)
  end
  if tonumber(attempt) > (tonumber(over_attempt) or 0) then
    redis.call('SET', over_key, attempt .. ' ' .. (node or ''), 'EX', kept)
  elseif not node and attempt == over_attempt then
    node = over_node
  end
  return node or ''
end
for at = 3, #ARGV, 3 do out[#out + 1] = release(ARGV[at], ARGV[at + 1], ARGV[at + 2]) end
local counts = {}
for at, node in ipairs(out) do
  -- Everything was let go: counts that cannot be read do not take that back.
  local count = node ~= '' and redis.pcall('HGET', changed, node) or ''
  counts[at] = type(count) == 'table' and '?' or count
end
return {out, counts}
"""

# ARGV: prefix, then the names of attempts.
CONFIRM: Final = """
local prefix = ARGV[1]
for at = 2, #ARGV do
  local node = redis.call('HGET', prefix .. ':held', ARGV[at])
  if node then redis.pcall('HSET', prefix .. ':node:' .. node, 'c:' .. ARGV[at], '1') end
end
return redis.status_reply('OK')
"""

# ARGV: prefix, then names of nodes. Answer: 1 where there is no row afterwards, else 0, for each.
FORGET: Final = """
local prefix = ARGV[1]
local changed, floor_key = prefix .. ':changes', prefix .. ':floor'
local kind = redis.call('TYPE', changed).ok
if kind ~= 'hash' and kind ~= 'none' then return redis.error_reply('WRONGTYPE ' .. changed .. ' is a ' .. kind .. ', no hash') end
local floor = redis.pcall('GET', floor_key) or '0'
if type(floor) == 'table' or not string.match(floor, '^%d+$') or #floor > 15 then
  return redis.error_reply('ERR ' .. floor_key .. ' is no number of at most 15 digits')
end
local highest = tonumber(floor)
local out, gone = {}, {}

-- The higher one of a row's counters, nil when the row holds something or cannot be read.
local function counter_of(node)
  local key = prefix .. ':node:' .. node
  local kind = redis.call('TYPE', key).ok
  if kind ~= 'hash' and kind ~= 'none' then return nil end
  for _, field in ipairs(redis.call('HKEYS', key)) do
    if string.sub(field, 1, 2) == 'h:' then return nil end
  end
  local revision, count = redis.call('HGET', key, 'rev') or '0', redis.call('HGET', changed, node) or '0'
  for _, number in ipairs({revision, count}) do
    if not string.match(number, '^%d+$') or #number > 15 then return nil end
  end
  return math.max(tonumber(revision), tonumber(count))
end

for at = 2, #ARGV do
  local counter = counter_of(ARGV[at])
  out[#out + 1] = counter and 1 or 0
  if counter then
    gone[#gone + 1] = ARGV[at]
    highest = math.max(highest, counter)
  end
end
if highest > tonumber(floor) then redis.call('SET', floor_key, string.format('%d', highest)) end
for _, node in ipairs(gone) do
  redis.call('DEL', prefix .. ':node:' .. node)
  redis.call('HDEL', changed, node)
end
return out
"""

# ARGV: prefix, floor, then for each node: name, revision, changes, number of holds, and for each hold: replica, attempt, value, and
# 1 where it was started.
PUT_BACK: Final = """
local prefix, floor = ARGV[1], tonumber(ARGV[2])
local held, newest, changed, floor_key = prefix .. ':held', prefix .. ':newest', prefix .. ':changes', prefix .. ':floor'
local function number(value) return tonumber(string.match(value or '0', '^%d+$') or '0') end
if number(redis.call('GET', floor_key)) < floor then redis.call('SET', floor_key, ARGV[2]) end
local at = 3
while at <= #ARGV do
  local node, revision, changes, count = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local key, first = prefix .. ':node:' .. node, at + 4
  local stored, written = number(redis.call('HGET', key, 'rev')), number(redis.call('HGET', changed, node))
  local is_news = stored < revision or written < changes
  if stored == revision then
    -- Somebody wrote the row that the store had before once more: the same number, and other holds.
    local given = {}
    for i = 0, count - 1 do given['h:' .. ARGV[first + i * 4] .. '#' .. ARGV[first + i * 4 + 1]] = true end
    for _, field in ipairs(redis.call('HKEYS', key)) do
      is_news = is_news or (string.sub(field, 1, 2) == 'h:' and not given[field])
    end
  end
  for i = 0, count - 1 do
    local one = first + i * 4
    local replica, attempt = ARGV[one], tonumber(ARGV[one + 1])
    local name = replica .. '#' .. ARGV[one + 1]
    local over = number(string.match(redis.call('GET', prefix .. ':over:' .. replica) or '0 ', '^(%d+) '))
    if over < attempt and redis.call('HEXISTS', held, name) == 0 then
      redis.call('HSET', key, 'h:' .. name, ARGV[one + 2])
      if ARGV[one + 3] == '1' then redis.call('HSET', key, 'c:' .. name, '1') end
      redis.call('HSET', held, name, node)
      if number(redis.call('HGET', newest, replica)) < attempt then redis.call('HSET', newest, replica, ARGV[one + 1]) end
      is_news = true
    end
  end
  if is_news then
    redis.call('HSET', key, 'rev', string.format('%d', math.max(stored, revision) + 1), 'by', '')
    redis.call('HSET', changed, node, string.format('%d', math.max(written, changes) + 1))
  end
  at = first + count * 4
end
return redis.status_reply('OK')
"""
