-- What was popped turned out stale: its tenants owe nothing for it. They get their step of virtual
-- time back (never below the queue's time, or they could save up credit), their token, and their place
-- among the runs that may be under way.
--
-- ARGV: now (epoch ms), rate of unknown tenants, then class, tenant, number of members, ...
default_rate = tonumber(ARGV[2])
local now = tonumber(ARGV[1])
local wake = false
for i = 3, #ARGV, 3 do
  local p, tenant, n = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2])
  local time = tonumber(redis.call('GET', virtual_time(p)) or 0)
  for _, key in ipairs({tenants(p), idle(p)}) do
    local start = redis.call('ZSCORE', key, tenant)
    if start then redis.call('ZADD', key, math.max(time, tonumber(start) - n), tenant) end
  end
  local g = open_gate(p, {tenant})
  if g.room[tenant] then redis.call('HINCRBY', PASSED, tenant, -n) end
  if g.tat[tenant] > 0 and g.rate[tenant] > 0 then
    set_arrival(g, tenant, g.tat[tenant] - n * 1000 / g.rate[tenant])
    close_gate(g)
    if redis.call('ZSCORE', HELD_AT, p .. tenant) then
      look_again(g, tenant, now, now)
      wake = true
    end
  end
end
if wake then redis.call('PUBLISH', WAKE, string.format('%d', now)) end
return 0
