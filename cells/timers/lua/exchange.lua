-- One executor tells what it has seen of its targets, and is told its shares of their limits and which
-- parked members it may take. What it holds lapses unless it comes back within the lease.
--
-- ARGV: now (epoch ms), executor, lease (ms), msgpack list of reports, then their targets. A report:
--   {initial, most, calls under way, slots wanted, claims held, claims held ahead, free (its work
--    need not wait for it), {members wanted, by class}, crowded, good, overloaded, calls, failures,
--    probes, failed probes, paused until, remaining (-1: nothing told), renews, limit known before}
-- Answers {msgpack {executors, number of targets whose parked members nobody looks after,
-- {per report: {share, limit, state, wait, paused, remaining, parked, happened, members}}},
-- those targets, and per report that gets any its members as pop.lua has them}.
local KEPT_MS = 7200000
local LOOK_MS = 1500
local MINUTES_KEPT = 60

local now, me, lease = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])

redis.call('ZADD', EXECUTORS, now + lease, me)
redis.call('ZREMRANGEBYSCORE', EXECUTORS, '-inf', now)

local function load(target, report)
  local stored = redis.call('GET', board(target))
  if stored then return cmsgpack.unpack(stored) end
  -- Valkey was emptied, or nobody has called it lately: whoever still knows its limit says so.
  return {limit = report[19] > 0 and report[19] or report[1], halved = 0, state = CLOSED, wait = 0,
    openings = 0, seconds = {}, paused = 0, remaining = -1, renews = 0, x = {}}
end

-- The history: per minute the lowest and the latest limit, the most that was parked, the worst state.
local function remember(s, target, calls, waiting)
  local minute = math.floor(now / 60000)
  local m = s.minute
  if m and m[1] ~= minute then
    redis.call('RPUSH', history(target), cmsgpack.pack(m))
    redis.call('LTRIM', history(target), -MINUTES_KEPT, -1)
    redis.call('PEXPIRE', history(target), KEPT_MS)
    m = nil
  end
  if not m then
    s.minute = {minute, calls, calls, waiting, s.state}
    return
  end
  m[2], m[3], m[4] = math.min(m[2], calls), calls, math.max(m[4], waiting)
  if s.state == OPEN or (s.state == HALF_OPEN and m[5] == CLOSED) then m[5] = s.state end
end

local function waiting_for(target)
  if not redis.call('ZSCORE', PARKED_LOOKS, target) then return 0 end
  local n = 0
  for p = 0, 3 do n = n + redis.call('ZCARD', park(p, target)) end
  if n == 0 then redis.call('ZREM', PARKED_LOOKS, target) end
  return n
end

-- Take up to `room` parked members, most urgent class first, in order of due times. They are served:
-- their tenant pays its step of virtual time. They passed the gate long ago, so the tenant's quota of
-- running runs counts them again, and what is LOW stays while the tenant's budget is spent.
local function take(target, room, wanted)
  local out, n = {}, 0
  local tenant = tenant_of(target)
  local left = room_of(tenant)
  if left then room = math.min(room, left) end
  for p = 0, 3 do
    local limit = math.min(room - n, wanted[p + 1])
    if p == LOW and limit > 0 and redis.call('HEXISTS', DELAYED, tenant) == 1 then limit = 0 end
    local found = limit > 0 and redis.call('ZPOPMIN', park(p, target), limit) or {}
    if #found > 0 then
      local names = {}
      for i = 1, #found, 2 do names[#names + 1] = found[i] end
      for i, place in ipairs(ask_many('HMGET', parked(p), names)) do
        local due = tonumber(found[2 * i])
        local at = place and struct.unpack('>d', place) or due
        out[#out + 1] = names[i] .. struct.pack('>dd', due, at)
      end
      in_chunks(names, function(...) redis.call('HDEL', parked(p), ...) end)
      n = n + #names
      local key = redis.call('ZSCORE', tenants(p), tenant) and tenants(p) or idle(p)
      local time = tonumber(redis.call('GET', virtual_time(p)) or 0)
      local start = math.max(time, tonumber(redis.call('ZSCORE', key, tenant) or 0))
      redis.call('ZADD', key, start + #names, tenant)
    end
  end
  if left then pass(tenant, n) end
  return table.concat(out), n
end

local views, blobs = {}, {}
for i, report in ipairs(cmsgpack.unpack(ARGV[4])) do
  local target = ARGV[4 + i]
  local s = load(target, report)
  local waiting = waiting_for(target)
  local happened = observe(s, {initial = report[1], most = report[2], bottleneck = report[9] or waiting > 0,
    good = report[10], over = report[11], calls = report[12], failures = report[13], probes = report[14],
    failed_probes = report[15], pause_until = report[16], remaining = report[17], renews = report[18]}, now)

  for name, one in pairs(s.x) do
    if one[4] <= now then s.x[name] = nil end
  end
  local wanted = report[8]
  local wants = report[4]
  if waiting > 0 then wants = wants + wanted[1] + wanted[2] + wanted[3] + wanted[4] end
  s.x[me] = {0, report[3], wants, now + lease}
  local calls = usable(s, now)
  local share = share_of(s, me, calls)
  s.x[me][1] = share

  local members = 0
  if waiting > 0 then
    local room = share > 0 and share - report[5] or 0
    if share > 0 and s.state == CLOSED then room = room + report[6] end
    if report[7] then room = waiting end
    if room > 0 then
      local blob
      blob, members = take(target, room, wanted)
      if members > 0 then blobs[#blobs + 1] = blob end
      waiting = waiting - members
    end
    if waiting > 0 then
      redis.call('ZADD', PARKED_LOOKS, now + LOOK_MS, target)
    else
      redis.call('ZREM', PARKED_LOOKS, target)
    end
  end
  remember(s, target, calls, waiting)
  redis.call('SET', board(target), cmsgpack.pack(s), 'PX', KEPT_MS)
  views[i] = {share, s.limit, s.state, s.wait, s.paused, s.remaining, waiting, happened, members}
end

local alone = redis.call('ZRANGEBYSCORE', PARKED_LOOKS, '-inf', now, 'LIMIT', 0, 32)
for _, target in ipairs(alone) do
  if waiting_for(target) > 0 then redis.call('ZADD', PARKED_LOOKS, now + LOOK_MS, target) end
end
local out = {cmsgpack.pack({redis.call('ZCARD', EXECUTORS), #alone, views})}
for _, target in ipairs(alone) do out[#out + 1] = target end
for _, blob in ipairs(blobs) do out[#out + 1] = blob end
return out
