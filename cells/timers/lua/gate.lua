-- The release gate of a tenant and class: GCRA (cells/domain/rates.py) with one second's worth of
-- burst. What is past the quota waits in the tenant's held set, in order of due times; as long as
-- anything is held, whatever comes joins it, so that nothing newer overtakes.
local BURST_MS = 1000
-- Held sets of tenants with more than 100/s are looked at on this grid: small batches.
local GRID_MS = 10
-- Below a microsecond it is rounding.
local ROUNDING_MS = 0.001
-- Releases per second of a tenant that `rates` does not know yet; set by scripts that take tokens.
local default_rate

local rate_cache = {}
local function rate_of(tenant)
  local rate = rate_cache[tenant]
  if not rate then
    rate = tonumber(redis.call('HGET', RATES, tenant) or default_rate)
    rate_cache[tenant] = rate
  end
  return rate
end

-- Take up to `wanted` tokens: how many were there, and when the next one will be.
local function take(p, tenant, wanted, now)
  local rate = rate_of(tenant)
  if rate <= 0 then return 0, now + 1000 end
  local interval = 1000 / rate
  local tat = tonumber(redis.call('HGET', gate(p), tenant) or 0)
  local granted = 0
  while granted < wanted do
    local new = math.max(tat, now) + interval
    if new - BURST_MS - now > ROUNDING_MS then break end
    tat = new
    granted = granted + 1
  end
  if granted > 0 then
    redis.call('HSET', gate(p), tenant, string.format('%.17g', tat))
  end
  return granted, tat + interval - BURST_MS
end

-- Look at a tenant's held set again at `at`, or a little later. An earlier look stays.
local function look_again(p, tenant, at, now)
  local grid = rate_of(tenant) * GRID_MS > 1000 and GRID_MS or 1
  at = math.ceil(math.max(at - ROUNDING_MS, now + 1) / grid) * grid
  redis.call('ZADD', HELD_AT, 'LT', at, p .. tenant)
end

-- Release what the tenant's tokens allow from its held set, `budget` at most; how many.
local function drain(p, tenant, budget, now)
  redis.call('ZREM', HELD_AT, p .. tenant)
  local waiting = redis.call('ZCARD', held(p, tenant))
  if waiting == 0 then return 0 end
  local granted, next_at = take(p, tenant, math.min(waiting, budget), now)
  if granted > 0 then
    local oldest = redis.call('ZPOPMIN', held(p, tenant), granted)
    for i = 1, #oldest, 2 do
      oldest[i], oldest[i + 1] = oldest[i + 1], oldest[i]
    end
    enqueue(p, tenant, oldest, now)
  end
  if granted < waiting then look_again(p, tenant, next_at, now) end
  return granted
end

-- Let members {due, member, ...} of one tenant through the gate, or hold them. How many of each.
local function admit(p, tenant, flat, now)
  local n = #flat / 2
  if redis.call('EXISTS', held(p, tenant)) == 1 then
    local new = zadd_new(held(p, tenant), flat)
    if not redis.call('ZSCORE', HELD_AT, p .. tenant) then look_again(p, tenant, now, now) end
    return 0, new
  end
  local granted, next_at = take(p, tenant, n, now)
  if granted == n then
    enqueue(p, tenant, flat, now)
    return n, 0
  end
  -- The held set sorts them; the tokens go to the oldest.
  local new = zadd_new(held(p, tenant), flat)
  if granted > 0 then
    local oldest = redis.call('ZPOPMIN', held(p, tenant), granted)
    for i = 1, #oldest, 2 do
      oldest[i], oldest[i + 1] = oldest[i + 1], oldest[i]
    end
    enqueue(p, tenant, oldest, now)
  end
  look_again(p, tenant, next_at, now)
  return granted, new - granted
end
