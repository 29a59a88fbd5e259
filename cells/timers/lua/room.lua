-- A tenant's room below its quota of running runs, as the gate counts it (timers/quota.py). What begins on
-- another way than through the gate takes of the same.

-- How many more may begin; false where the tenant is not near its quota.
local function room_of(tenant)
  local limit = redis.call('HGET', ROOM, tenant)
  return limit and math.max(tonumber(limit) - tonumber(redis.call('HGET', PASSED, tenant) or 0), 0)
end

-- So many begin (below 0: they do not, after all).
local function pass(tenant, n)
  if n ~= 0 then redis.call('HINCRBY', PASSED, tenant, n) end
end
