-- Put aside popped members whose targets cannot take them now, by due time. Their tenants get their
-- step of virtual time back (never below the queue's time); the token stays spent, because parked
-- members do not pass the gate again.
--
-- ARGV: now (epoch ms), then per class and target: class, target, number of members, then per member:
--   due, released (a big-endian double), member
-- Answers how many are new there.
local LOOK_MS = 1000

local now = tonumber(ARGV[1])
local added = 0
local i = 2
while i <= #ARGV do
  local p, target, n = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2])
  local scores, places = {}, {}
  for j = i + 3, i + 2 + 3 * n, 3 do
    scores[#scores + 1] = ARGV[j]
    scores[#scores + 1] = ARGV[j + 2]
    places[#places + 1] = ARGV[j + 2]
    places[#places + 1] = ARGV[j + 1] .. target
  end
  i = i + 3 + 3 * n
  added = added + zadd_new(park(p, target), scores)
  in_chunks(places, function(...) redis.call('HSET', parked(p), ...) end)
  redis.call('ZADD', PARKED_LOOKS, 'NX', now + LOOK_MS, target)
  local tenant = tenant_of(target)
  local time = tonumber(redis.call('GET', virtual_time(p)) or 0)
  for _, key in ipairs({tenants(p), idle(p)}) do
    local start = redis.call('ZSCORE', key, tenant)
    if start then redis.call('ZADD', key, math.max(time, tonumber(start) - n), tenant) end
  end
end
return added
