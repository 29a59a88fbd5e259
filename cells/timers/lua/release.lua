-- One wake of a dispatcher: held members whose tokens have come, then whatever is due in its
-- shards, by class and then by due time, through the gate into the fair queues.
--
-- ARGV: now (epoch ms), held shards ('*' or 256 characters, '1' where held), budget (members),
-- rate of unknown tenants, time of the wake before if that left work behind (else '').
-- Answers {released of class 0, 1, 2, 3, held back, whether work is left, when the next member is
-- due (-1: none in this minute and the next), oldest due time taken (-1: nothing), tenants and
-- classes that hold something}.
--
-- More due than the budget is a backlog. It is taken oldest first, but beside it whatever became due
-- since the wake before: a flood must not delay others' work by the time it takes to release it.
local FRESH = 1024
local FRESH_PER_SHARD = 16
-- Where more than the budget is due at one instant, shards take turns, some in each wake, and in each shard its tenants
-- do, a few members each: a flood must not keep others waiting whose work is due with it. `turns` remembers which shard
-- and which tenant were the last ones.
local TURN_SHARDS = 64
local TURN_MEMBERS, TURN_TENANTS = 4, 16
local TURNS_KEPT_SECONDS = 600
local HELD_LOOKS = 256

local now = tonumber(ARGV[1])
local mine = ARGV[2]
local budget = tonumber(ARGV[3])
default_rate = tonumber(ARGV[4])
local fresh_after = tonumber(ARGV[5])

local out = {0, 0, 0, 0}
local held_back, left, oldest_taken = 0, false, math.huge

local function is_mine(shard)
  return mine == '*' or string.byte(mine, tonumber(shard) + 1) == 49
end

local function group(groups, flat)
  for i = 1, #flat, 2 do
    local tenant = tenant_of(flat[i])
    local g = groups[tenant]
    if not g then
      g = {}
      groups[tenant] = g
    end
    g[#g + 1] = flat[i + 1]
    g[#g + 1] = flat[i]
  end
  return #flat / 2
end

-- Make a shard's head true again. A bucket that has become empty leaves the heads.
local function settle_head(p, shard, minute)
  local first = redis.call('ZRANGE', bucket(p, shard, minute), 0, 0, 'WITHSCORES')
  if first[2] then
    redis.call('ZADD', heads(p, minute), first[2], shard)
  else
    redis.call('ZREM', heads(p, minute), shard)
  end
end

-- The latest time up to which no more than `room` members are due, and true; `oldest` and false where more are
-- due at that very instant.
local function cut(p, minute, shards, oldest, room)
  local function due(until_ms)
    local n = 0
    for _, shard in ipairs(shards) do
      n = n + redis.call('ZCOUNT', bucket(p, shard, minute), '-inf', until_ms)
      if n > room then break end
    end
    return n
  end
  if due(now) <= room then return now, true end
  local low, high = oldest, now
  if due(low) > room then return low, false end
  while high - low > 1 do
    local middle = math.floor((low + high) / 2)
    if due(middle) <= room then low = middle else high = middle end
  end
  return low, true
end

-- Take what is due up to then from a shard, `limit` at most: how many.
local function take_from(p, shard, minute, groups, until_ms, limit)
  local members = redis.call('ZRANGEBYSCORE', bucket(p, shard, minute), '-inf', until_ms,
    'WITHSCORES', 'LIMIT', 0, limit)
  local n = group(groups, members)
  if n > 0 then redis.call('ZREMRANGEBYRANK', bucket(p, shard, minute), 0, n - 1) end
  return n
end

-- Members of one instant lie in the order of their tenants: the first place, from `low` on, of a tenant behind this one.
-- Looked for in steps that double, so that one with few members is passed quickly.
local function behind(key, tenant, low, count)
  local function is_behind(place)
    return tenant_of(redis.call('ZRANGE', key, place, place)[1]) > tenant
  end
  local step, high = 1, low
  while high < count and not is_behind(high) do
    low, high, step = high + 1, high + step, step * 2
  end
  high = math.min(high, count)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if is_behind(middle) then high = middle else low = middle + 1 end
  end
  return low
end

-- Once around the tenants that have something due at an instant, of each a few, beginning behind the one that was last:
-- {due, member, ...}, and who is the last one now.
local function one_circle(key, at_ms, count, limit, each, last)
  local flat, place = {}, last and behind(key, last, 0, count) or 0
  if place == count then place = 0 end
  local from, around = place, false
  while #flat / 2 < limit and not (around and place >= from) do
    local found = redis.call('ZRANGE', key, place, place + math.min(each, limit - #flat / 2) - 1, 'WITHSCORES')
    last = tenant_of(found[1])
    for i = 1, #found, 2 do
      if tenant_of(found[i]) ~= last or tonumber(found[i + 1]) > at_ms then break end
      flat[#flat + 1] = found[i]
      flat[#flat + 1] = found[i + 1]
    end
    place = behind(key, last, place, count)
    if place >= count then place, around = 0, true end
  end
  return flat, last
end

-- Take some of what a shard has due at an instant, its tenants in turn. How many, and who was the last one (nil where
-- all was taken, or it is one tenant's alone).
local function take_in_turn(p, shard, minute, groups, at_ms, limit, last)
  local key, n = bucket(p, shard, minute), 0
  local count = redis.call('ZCOUNT', key, '-inf', at_ms)
  local each = math.max(TURN_MEMBERS, math.ceil(limit / TURN_TENANTS))
  while n < limit and count > 0 do
    local first, final = redis.call('ZRANGE', key, 0, 0)[1], redis.call('ZRANGE', key, count - 1, count - 1)[1]
    if count <= limit - n or tenant_of(first) == tenant_of(final) then
      return n + take_from(p, shard, minute, groups, at_ms, limit - n)
    end
    local flat
    flat, last = one_circle(key, at_ms, count, limit - n, each, last)
    local names = {}
    for i = 1, #flat, 2 do names[#names + 1] = flat[i] end
    in_chunks(names, function(...) redis.call('ZREM', key, ...) end)
    n, count = n + group(groups, flat), count - #names
  end
  return n, last
end

-- Spend the budget on what is due at one instant, a few of each shard at a time. One that gives less than asked for is
-- not asked again, while others have more.
local function take_turns(p, minute, shards, groups, at_ms)
  local key = TURNS .. p
  local before = tonumber(redis.call('HGET', key, 'shard') or -1)
  table.sort(shards, function(a, b) return tonumber(a) < tonumber(b) end)
  local start = 0
  for i, shard in ipairs(shards) do
    if tonumber(shard) > before then
      start = i - 1
      break
    end
  end
  local turns, waiting = {}, {}
  for i = 1, #shards do waiting[i] = shards[(start + i - 1) % #shards + 1] end
  local next_one = 1
  while budget > 0 do
    while #turns < TURN_SHARDS and next_one <= #waiting do
      turns[#turns + 1] = waiting[next_one]
      next_one = next_one + 1
    end
    if #turns == 0 then break end
    local each, more, lasts = math.max(math.floor(budget / #turns), 1), {}, ask_many('HMGET', key, turns)
    for i, shard in ipairs(turns) do
      local asked = math.min(each, budget)
      if asked == 0 then break end
      local n, last = take_in_turn(p, shard, minute, groups, at_ms, asked, lasts[i])
      if last then redis.call('HSET', key, shard, last) end
      settle_head(p, shard, minute)
      budget = budget - n
      if n == asked then more[#more + 1] = shard end
    end
    turns = more
  end
  redis.call('HSET', key, 'shard', waiting[next_one - 1])
  redis.call('EXPIRE', key, TURNS_KEPT_SECONDS)
end

-- Whether anything due is left in this minute.
local function take_oldest(p, minute, groups)
  local flat = redis.call('ZRANGEBYSCORE', heads(p, minute), '-inf', now, 'WITHSCORES')
  local shards, oldest = {}, nil
  for i = 1, #flat, 2 do
    if is_mine(flat[i]) then
      shards[#shards + 1] = flat[i]
      oldest = oldest or tonumber(flat[i + 1])
    end
  end
  if not oldest then return false end
  oldest_taken = math.min(oldest_taken, oldest)
  local until_ms, whole = cut(p, minute, shards, oldest, budget)
  if not whole then
    take_turns(p, minute, shards, groups, until_ms)
    return true
  end
  for i, shard in ipairs(shards) do
    local n = take_from(p, shard, minute, groups, until_ms, budget)
    settle_head(p, shard, minute)
    budget = budget - n
    if budget <= 0 and i < #shards then return true end
  end
  return until_ms < now or budget <= 0
end

local function take_fresh(p, minute, groups)
  local shards = redis.call('ZRANGEBYSCORE', heads(p, minute), '-inf', now)
  local each = math.max(math.min(FRESH_PER_SHARD, math.floor(FRESH / math.max(#shards, 1))), 1)
  for _, shard in ipairs(shards) do
    if is_mine(shard) then
      local flat = redis.call('ZRANGEBYSCORE', bucket(p, shard, minute), '(' .. fresh_after, now,
        'WITHSCORES', 'LIMIT', 0, each)
      if group(groups, flat) > 0 then
        local names = {}
        for i = 1, #flat, 2 do names[#names + 1] = flat[i] end
        redis.call('ZREM', bucket(p, shard, minute), unpack(names))
        settle_head(p, shard, minute)
      end
    end
  end
end

-- 1. what waits for tokens
local looks = redis.call('ZRANGEBYSCORE', HELD_AT, '-inf', now, 'LIMIT', 0, HELD_LOOKS)
if #looks == HELD_LOOKS then left = true end
table.sort(looks) -- by class: of a tenant that has room for few, the urgent ones go first
for _, look in ipairs(looks) do
  local p, tenant = string.sub(look, 1, 1), string.sub(look, 2)
  local n = drain(p, tenant, math.max(budget, 1), now)
  budget = budget - n
  out[p + 1] = out[p + 1] + n
end

-- 2. what is due
local this_minute = math.floor(now / 60000)
local minutes = redis.call('ZRANGEBYSCORE', MINUTES, '-inf', this_minute)
for p = 0, 3 do
  local groups, backlog = {}, budget <= 0
  for _, minute in ipairs(minutes) do
    if backlog then break end
    backlog = take_oldest(p, minute, groups)
  end
  if backlog and fresh_after then
    local recent = redis.call('ZRANGEBYSCORE', MINUTES, math.floor(fresh_after / 60000), this_minute)
    for _, minute in ipairs(recent) do take_fresh(p, minute, groups) end
  end
  local through, back = admit(p, groups, now)
  out[p + 1] = out[p + 1] + through
  held_back = held_back + back
  if backlog then
    left = true
    break
  end
end

-- 3. when to come again
local function first_of_mine(p, minute)
  local start = 0
  while true do
    local page = redis.call('ZRANGE', heads(p, minute), start, start + 15, 'WITHSCORES')
    for i = 1, #page, 2 do
      if is_mine(page[i]) then return tonumber(page[i + 1]), true end
    end
    start = start + 16
    if #page < 32 then return math.huge, start > 16 or #page > 0 end
  end
end

local next_due = math.huge
for _, minute in ipairs(redis.call('ZRANGEBYSCORE', MINUTES, '-inf', this_minute + 1)) do
  local any = false
  for p = 0, 3 do
    local first, some = first_of_mine(p, minute)
    next_due = math.min(next_due, first)
    any = any or some
  end
  if not any then redis.call('ZREM', MINUTES, minute) end
  if next_due < math.huge then break end
end
local look = redis.call('ZRANGE', HELD_AT, 0, 0, 'WITHSCORES')
if look[2] then next_due = math.min(next_due, tonumber(look[2])) end

local classes = 0
for p = 0, 3 do
  if out[p + 1] > 0 then classes = classes + 2 ^ p end
end
if classes > 0 then redis.call('PUBLISH', READY, classes) end

if next_due == math.huge then next_due = -1 end
if oldest_taken == math.huge then oldest_taken = -1 end
return {out[1], out[2], out[3], out[4], held_back, left and 1 or 0, next_due, oldest_taken,
  redis.call('ZCARD', HELD_AT)}
