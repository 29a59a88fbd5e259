-- Take members out, wherever they wait. Their tenants are not charged. A bucket's head may stay
-- behind: it costs the dispatcher one look.
--
-- ARGV: as add.lua without the first two. Answers how many were found.
local found = 0
local i = 1
while i <= #ARGV do
  local p, minute, shards = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 3])
  i = i + 4
  for _ = 1, shards do
    local shard, n = ARGV[i], tonumber(ARGV[i + 1])
    for j = i + 3, i + 1 + 2 * n, 2 do
      local member = ARGV[j]
      local tenant = tenant_of(member)
      found = found + redis.call('ZREM', bucket(p, shard, minute), member)
          + redis.call('ZREM', held(p, tenant), member)
      local place = redis.call('HGET', parked(p), member)
      if place then
        redis.call('HDEL', parked(p), member)
        found = found + redis.call('ZREM', park(p, string.sub(place, 9)), member)
      end
      if redis.call('ZREM', queue(p, tenant), member) == 1 then
        found = found + 1
        redis.call('HDEL', released(p), member)
        if redis.call('EXISTS', queue(p, tenant)) == 0 then
          rest(p, {redis.call('ZSCORE', tenants(p), tenant), tenant})
        end
      end
    end
    i = i + 2 + 2 * n
  end
end
return found
