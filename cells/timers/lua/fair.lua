-- The fair queue of a class: start-time fair queueing between tenants (cells/domain/fairness.py is
-- its model). A waiting tenant has a virtual start; one that became idle leaves behind the start it
-- would have had, which counts until the queue's time has passed it.

-- Queue one tenant's members {due, member, ...}, released at `now`.
local function enqueue(p, tenant, flat, now)
  if zadd_new(queue(p, tenant), flat) == 0 then return end
  local times = {}
  for i = 2, #flat, 2 do
    times[i - 1] = flat[i]
    times[i] = now
  end
  for i = 1, #times, CHUNK do
    redis.call('HSET', released(p), unpack(times, i, math.min(i + CHUNK - 1, #times)))
  end
  if not redis.call('ZSCORE', tenants(p), tenant) then
    local start = tonumber(redis.call('GET', virtual_time(p)) or 0)
    local left = redis.call('ZSCORE', idle(p), tenant)
    if left then
      start = math.max(start, tonumber(left))
      redis.call('ZREM', idle(p), tenant)
    end
    redis.call('ZADD', tenants(p), start, tenant)
  end
end

-- A tenant's queue has become empty: it keeps its start for a while.
local function rest(p, tenant, start)
  redis.call('ZREM', tenants(p), tenant)
  redis.call('ZADD', idle(p), start, tenant)
end
