-- The release gate of a tenant: GCRA (cells/domain/rates.py) with one second's worth of burst, which all
-- classes share. The less urgent one is, the earlier it must stop: the rest of the burst is kept for the
-- more urgent ones, so that no flood of LOW spends what CRITICAL needs. What is past the quota waits in the
-- held set of its tenant and class, in order of due times, and `heldat` says when to look at it; as long as
-- anything is held, whatever comes joins it, so that nothing newer overtakes.
local BURST_MS = 1000
-- What a class may use of the burst, in thousandths (domain/rates.py); one member at least.
local SHARES = {[0] = 1000, 900, 800, 700}
-- A tenant at its quota of running runs is looked at again after this long: runs may have ended.
local ROOM_LOOK_MS = 50
-- Held sets of tenants with more than 100/s are looked at on this grid: small batches.
local GRID_MS = 10
-- Below a microsecond it is rounding.
local ROUNDING_MS = 0.001
-- Releases per second of a tenant that `rates` does not know yet; set by scripts that take tokens.
local default_rate

-- Quotas and arrival times of tenants; what is in `changed` is written back by `close_gate`. `room` is how
-- many more may pass of those that are near their quota of running runs (timers/quota.py).
local function open_gate(p, names)
  local g = {p = p, rate = {}, tat = {}, changed = {}, room = {}}
  local near, limits = {}, {}
  for i, limit in ipairs(ask_many('HMGET', ROOM, names)) do
    if limit then
      near[#near + 1] = names[i]
      limits[#limits + 1] = tonumber(limit)
    end
  end
  for i, passed in ipairs(#near > 0 and ask_many('HMGET', PASSED, near) or {}) do
    g.room[near[i]] = math.max(limits[i] - tonumber(passed or 0), 0)
  end
  for i, rate in ipairs(ask_many('HMGET', RATES, names)) do
    g.rate[names[i]] = tonumber(rate or default_rate)
  end
  if tonumber(p) == LOW then
    for i, delayed in ipairs(ask_many('HMGET', DELAYED, names)) do
      if delayed then g.rate[names[i]] = 0 end
    end
  end
  for i, tat in ipairs(ask_many('HMGET', GATE, names)) do
    g.tat[names[i]] = tonumber(tat or 0)
  end
  return g
end

local function set_arrival(g, tenant, tat)
  g.changed[#g.changed + 1] = tenant
  g.changed[#g.changed + 1] = string.format('%.17g', tat)
end

local function close_gate(g)
  in_chunks(g.changed, function(...) redis.call('HSET', GATE, ...) end)
end

-- Take up to `wanted` tokens: how many were there, and when the next one will be.
local function take(g, tenant, wanted, now)
  local rate, tat = g.rate[tenant], g.tat[tenant]
  if rate <= 0 then return 0, now + 1000 end
  local interval = 1000 / rate
  local burst = math.max(BURST_MS * SHARES[tonumber(g.p)] / 1000, interval)
  local granted, room = 0, g.room[tenant]
  while granted < math.min(wanted, room or wanted) do
    local new = math.max(tat, now) + interval
    if new - burst - now > ROUNDING_MS then break end
    tat = new
    granted = granted + 1
  end
  local next_at = tat + interval - burst
  if granted > 0 then set_arrival(g, tenant, tat) end
  if room then
    if granted > 0 then
      redis.call('HINCRBY', PASSED, tenant, granted)
      g.room[tenant] = room - granted
    end
    if granted == room then next_at = math.max(next_at, now + ROOM_LOOK_MS) end
  end
  return granted, next_at
end

-- Look at a tenant's held set again at `at`, or a little later. An earlier look stays.
local function look_again(g, tenant, at, now)
  local grid = g.rate[tenant] * GRID_MS > 1000 and GRID_MS or 1
  at = math.ceil(math.max(at - ROUNDING_MS, now + 1) / grid) * grid
  redis.call('ZADD', HELD_AT, 'LT', at, g.p .. tenant)
end

-- The oldest `n` members that a tenant's held set has, as {due, member, ...}.
local function pop_held(p, tenant, n)
  local oldest = redis.call('ZPOPMIN', held(p, tenant), n)
  for i = 1, #oldest, 2 do
    oldest[i], oldest[i + 1] = oldest[i + 1], oldest[i]
  end
  return oldest
end

-- Release what the tenant's tokens allow from its held set, `budget` at most; how many.
local function drain(p, tenant, budget, now)
  redis.call('ZREM', HELD_AT, p .. tenant)
  local waiting = redis.call('ZCARD', held(p, tenant))
  if waiting == 0 then return 0 end
  local g = open_gate(p, {tenant})
  local granted, next_at = take(g, tenant, math.min(waiting, budget), now)
  close_gate(g)
  if granted < waiting then look_again(g, tenant, next_at, now) end
  if granted > 0 then enqueue(p, {[tenant] = pop_held(p, tenant, granted)}, now) end
  return granted
end

-- Let members of a class, tenant -> {due, member, ...}, through the gate, or hold them; how many of
-- each.
local function admit(p, groups, now)
  local names, looks = {}, {}
  for tenant in pairs(groups) do
    names[#names + 1] = tenant
    looks[#looks + 1] = p .. tenant
  end
  if #names == 0 then return 0, 0 end
  local through, back = 0, 0
  local g = open_gate(p, names)
  for i, look in ipairs(ask_many('ZMSCORE', HELD_AT, looks)) do
    local tenant = names[i]
    local flat = groups[tenant]
    if look then
      back = back + zadd_new(held(p, tenant), flat)
      groups[tenant] = nil
    else
      local n = #flat / 2
      local granted, next_at = take(g, tenant, n, now)
      through = through + granted
      if granted < n then
        -- The held set sorts them; the tokens go to the oldest.
        look_again(g, tenant, next_at, now)
        back = back + zadd_new(held(p, tenant), flat) - granted
        groups[tenant] = granted > 0 and pop_held(p, tenant, granted) or nil
      end
    end
  end
  close_gate(g)
  enqueue(p, groups, now)
  return through, back
end
