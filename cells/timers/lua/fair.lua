-- The fair queue of a class: start-time fair queueing between tenants (cells/domain/fairness.py is
-- its model). A waiting tenant has a virtual start; one that became idle leaves behind the start it
-- would have had, which counts until the queue's time has passed it.

-- Queue members released at `now`: tenant -> {due, member, ...}. Calls are made for all tenants
-- together where Valkey allows it: a wake may bring one member each of a thousand tenants.
local function enqueue(p, groups, now)
  local names, times = {}, {}
  for tenant, flat in pairs(groups) do
    if zadd_new(queue(p, tenant), flat) > 0 then
      names[#names + 1] = tenant
      for i = 2, #flat, 2 do
        times[#times + 1] = flat[i]
        times[#times + 1] = now
      end
    end
  end
  if #names == 0 then return end
  in_chunks(times, function(...) redis.call('HSET', released(p), ...) end)

  local coming = {}
  for i, start in ipairs(ask_many('ZMSCORE', tenants(p), names)) do
    if not start then coming[#coming + 1] = names[i] end
  end
  if #coming == 0 then return end
  local time = tonumber(redis.call('GET', virtual_time(p)) or 0)
  local starts = {}
  for i, left in ipairs(ask_many('ZMSCORE', idle(p), coming)) do
    starts[#starts + 1] = math.max(time, tonumber(left or 0))
    starts[#starts + 1] = coming[i]
  end
  in_chunks(starts, function(...) redis.call('ZADD', tenants(p), ...) end)
  in_chunks(coming, function(...) redis.call('ZREM', idle(p), ...) end)
end

-- Tenants whose queues have become empty, {start, tenant, ...}: they keep their starts for a while.
local function rest(p, starts)
  in_chunks(starts, function(...) redis.call('ZADD', idle(p), ...) end)
  for i = 2, #starts, 2 do redis.call('ZREM', tenants(p), starts[i]) end
end
