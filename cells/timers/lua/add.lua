-- Put members into the buckets of their due minutes. NX: a member that is there stays as it is.
-- A shard's new head that is near is told to the dispatchers, so that one asleep wakes in time.
--
-- ARGV: now (epoch ms), '1' to leave alone what is held, queued or parked already (loads of minutes that
-- have begun, sweeps), then per class and minute:
--   class, minute label, minute since the epoch, number of shards, then per shard:
--     shard, number of members, due, member, due, member, ...
-- Answers how many were in no bucket before.
local NEAR_MS = 61000

local now = tonumber(ARGV[1])
local careful = ARGV[2] == '1'

local function unknown(p, flat)
  local kept = {}
  for i = 1, #flat, 2 do
    local member = flat[i + 1]
    local tenant = tenant_of(member)
    if not redis.call('ZSCORE', held(p, tenant), member)
        and not redis.call('ZSCORE', queue(p, tenant), member)
        and redis.call('HEXISTS', parked(p), member) == 0 then
      kept[#kept + 1] = flat[i]
      kept[#kept + 1] = member
    end
  end
  return kept
end

local function earliest(flat)
  local first = math.huge
  for i = 1, #flat, 2 do
    first = math.min(first, tonumber(flat[i]))
  end
  return first
end

local added, wake = 0, math.huge
local i = 3
while i <= #ARGV do
  local p, minute, number, shards = ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3])
  local in_heads, any = heads(p, minute), false
  i = i + 4
  for _ = 1, shards do
    local shard, n = ARGV[i], tonumber(ARGV[i + 1])
    local flat = {unpack(ARGV, i + 2, i + 1 + 2 * n)}
    i = i + 2 + 2 * n
    if careful then flat = unknown(p, flat) end
    if #flat > 0 then
      any = true
      added = added + zadd_new(bucket(p, shard, minute), flat)
      local first = earliest(flat)
      if redis.call('ZADD', in_heads, 'LT', 'CH', first, shard) == 1 and first < now + NEAR_MS then
        wake = math.min(wake, first)
      end
    end
  end
  if any then redis.call('ZADD', MINUTES, number, minute) end
end
if wake < math.huge then redis.call('PUBLISH', WAKE, string.format('%d', wake)) end
return added
