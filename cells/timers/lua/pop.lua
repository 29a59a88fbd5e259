-- Serve members of one class, fair between tenants.
--
-- ARGV: class, limit, then tenants to pass over (they keep their place).
-- Answers one string: per member its bytes, due and released (big-endian doubles), as served.
--
-- Serving costs a tenant one step of virtual time. Tenants are merged from two lists that are both
-- sorted by (start, tenant): those as found, and those served already, one step further each.
local p, limit = ARGV[1], tonumber(ARGV[2])
local passed = {}
for i = 3, #ARGV do passed[ARGV[i]] = true end

local function before(a, b)
  return a.start < b.start or (a.start == b.start and a.tenant < b.tenant)
end

local time = tonumber(redis.call('GET', virtual_time(p)) or 0)
-- Tenants that were passed over before may be behind the queue's time. They have saved up nothing.
local behind = redis.call('ZCOUNT', tenants(p), '-inf', '(' .. string.format('%.17g', time))
local found = redis.call('ZRANGE', tenants(p), 0, limit + #ARGV - 3 + behind, 'WITHSCORES')
local first, again = {}, {}
for i = 1, #found, 2 do
  if not passed[found[i]] then
    first[#first + 1] = {tenant = found[i], start = math.max(time, tonumber(found[i + 1])), served = 0}
  end
end
if #first == 0 then return '' end
if behind > 0 then table.sort(first, before) end

local order = {}
local f, a, n = 1, 1, 0
while n < limit do
  local turn = first[f]
  if again[a] and (not turn or before(again[a], turn)) then
    turn = again[a]
    a = a + 1
  elseif turn then
    f = f + 1
    turn.waiting = redis.call('ZCARD', queue(p, turn.tenant))
  else
    break
  end
  if turn.waiting > turn.served then
    n = n + 1
    order[n] = turn
    time = turn.start
    turn.served = turn.served + 1
    turn.start = turn.start + 1
    if turn.waiting > turn.served then again[#again + 1] = turn end
  end
end

local members, dues, going_on, done = {}, {}, {}, {}
for i = 1, f - 1 do
  local turn = first[i]
  turn.taken = redis.call('ZPOPMIN', queue(p, turn.tenant), turn.served)
  turn.at = 1
  local list = turn.waiting > turn.served and going_on or done
  list[#list + 1] = turn.start
  list[#list + 1] = turn.tenant
end
in_chunks(going_on, function(...) redis.call('ZADD', tenants(p), ...) end)
rest(p, done)
for i = 1, n do
  local turn = order[i]
  members[i] = turn.taken[turn.at]
  dues[i] = tonumber(turn.taken[turn.at + 1])
  turn.at = turn.at + 2
end
local out = {}
for i, at in ipairs(ask_many('HMGET', released(p), members)) do
  out[i] = members[i] .. struct.pack('>dd', dues[i], tonumber(at or dues[i]))
end
redis.call('SET', virtual_time(p), string.format('%.17g', time))
redis.call('ZREMRANGEBYSCORE', idle(p), '-inf', time)

in_chunks(members, function(...) redis.call('HDEL', released(p), ...) end)
return table.concat(out)
