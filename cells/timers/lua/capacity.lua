-- A target's limit and breaker, step by step as cells/domain/capacity.py, aimd.py and breaker.py have
-- them; a test compares. The state is one table:
--   limit, halved          calls at once (a real number); when it was halved last
--   state, wait, openings  breaker: 0 CLOSED, 1 OPEN until `wait`, 2 HALF_OPEN
--   seconds                of the window: {second, calls, failures}
--   paused                 until when it wants no calls (Retry-After)
--   remaining, renews      what it says is left of its quota (RateLimit), and until when
--   x                      executor -> {share, calls under way, slots wanted, expires}
--   minute                 the minute under way, for the history
local HALVING_MS, OVERLOADED_SHARE = 1000, 0.1
local WINDOW_SECONDS, MIN_CALLS, FAILING_SHARE = 10, 20, 0.5
local FIRST_WAIT_MS, LONGEST_WAIT_MS = 5000, 60000
local MAX_PAUSE_MS = 300000
local CLOSED, OPEN, HALF_OPEN = 0, 1, 2

local function adjust(s, seen, now)
  local most = seen.most
  s.limit = math.min(s.limit, most)
  if seen.over > 0 and seen.over >= OVERLOADED_SHARE * (seen.good + seen.over) then
    if now - s.halved >= HALVING_MS then
      s.limit = s.limit / 2
      s.halved = now
    end
  elseif seen.bottleneck and seen.good > 0 then
    s.limit = math.sqrt(s.limit * s.limit + 2 * seen.good)
  end
  s.limit = math.min(math.max(1, s.limit), most)
end

local function break_open(s, now)
  s.state = OPEN
  s.openings = s.openings + 1
  s.wait = now + math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ^ math.min(s.openings - 1, 10))
  s.seconds = {}
end

local function ended(s, seen, now)
  if s.state == OPEN and now >= s.wait then
    s.state = HALF_OPEN
    s.wait = 0
  end
  if s.state == HALF_OPEN then
    if seen.probes > seen.failed_probes then
      s.state, s.openings, s.seconds = CLOSED, 0, {}
    elseif seen.failed_probes > 0 then
      break_open(s, now)
    end
  elseif s.state == CLOSED then
    local second = math.floor(now / 1000)
    local kept, calls, failures = {}, 0, 0
    for _, one in ipairs(s.seconds) do
      if one[1] > second - WINDOW_SECONDS and one[1] <= second then kept[#kept + 1] = one end
    end
    if seen.calls > 0 then
      local last = kept[#kept]
      if last and last[1] == second then
        last[2], last[3] = last[2] + seen.calls, last[3] + seen.failures
      else
        kept[#kept + 1] = {second, seen.calls, seen.failures}
      end
    end
    s.seconds = kept
    for _, one in ipairs(kept) do
      calls, failures = calls + one[2], failures + one[3]
    end
    if calls >= MIN_CALLS and failures >= FAILING_SHARE * calls and seen.failures > 0 then
      break_open(s, now)
    end
  end
end

-- What happened to the breaker: 0 nothing, 1 it broke, 2 it recovered.
local function observe(s, seen, now)
  local before = s.state
  adjust(s, seen, now)
  ended(s, seen, now)
  if before ~= CLOSED and s.state == CLOSED then s.limit = math.min(s.limit, seen.initial) end
  s.paused = math.max(s.paused, math.min(seen.pause_until, now + MAX_PAUSE_MS))
  if seen.remaining >= 0 then
    s.remaining, s.renews = seen.remaining, math.min(seen.renews, now + MAX_PAUSE_MS)
  end
  if s.renews <= now then s.remaining = -1 end
  if before == CLOSED and s.state == OPEN then return 1 end
  return before ~= CLOSED and s.state == CLOSED and 2 or 0
end

-- Calls that all executors together may have under way.
local function usable(s, now)
  if s.state == OPEN or s.paused > now then return 0 end
  local calls = math.floor(s.limit)
  if s.remaining >= 0 then calls = math.min(calls, s.remaining) end
  return s.state == HALF_OPEN and math.min(calls, 1) or calls
end

-- The share of `me` (aimd.shares), as far as the others have given theirs back.
local function share_of(s, me, calls)
  local names, taken = {}, 0
  for name, one in pairs(s.x) do
    names[#names + 1] = name
    if name ~= me then taken = taken + math.max(one[1], one[2]) end
  end
  table.sort(names, function(a, b)
    local wants_a, wants_b = s.x[a][3], s.x[b][3]
    return wants_a < wants_b or (wants_a == wants_b and a < b)
  end)
  local left, mine = calls, 0
  for i, name in ipairs(names) do
    local part = math.min(s.x[name][3], math.floor(left / (#names - i + 1)))
    left = left - part
    if name == me then mine = part end
  end
  for i, name in ipairs(names) do
    local part = math.floor(left / (#names - i + 1))
    left = left - part
    if name == me then mine = mine + part end
  end
  return math.max(0, math.min(mine, calls - taken))
end
