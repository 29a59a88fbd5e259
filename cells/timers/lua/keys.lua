-- Names of the keys that scripts touch; keys.py has the same ones for Python, and a test compares
-- them. All begin with the cell's prefix, KEYS[1], whose braces put a cell into one cluster slot.
-- p is the class (0-3), minute a label (YYYYMMDDHHMM), tenant the 16 bytes of its id, target the same
-- with the target's id behind it.
local P = KEYS[1]
local LOW = 3

local MINUTES = P .. 'minutes'     -- zset: minutes that hold anything, by minutes since the epoch
local HELD_AT = P .. 'heldat'      -- zset: class .. tenant -> when its held members are looked at
local RATES = P .. 'rates'         -- hash: tenant -> releases per second, of all classes
local GATE = P .. 'gate'           -- hash: tenant -> GCRA's theoretical arrival time
local ROOM = P .. 'room'           -- hash: tenant -> how far `passed` may go; of those near their quota of runs
local DELAYED = P .. 'delayed'     -- hash: tenant -> 1 where LOW work waits for its budget
local PASSED = P .. 'passed'       -- hash: tenant -> members that passed the gate, of the same
local TURNS = P .. 'turns:'         -- hash by class: shard -> tenant that had its turn last; 'shard' -> the last one
local PARKED_LOOKS = P .. 'parkedat' -- zset: target -> when somebody must look at what is parked for it
local EXECUTORS = P .. 'executors' -- zset: executor -> until when it counts as alive
local WAKE = P .. 'wake'           -- channel: due time of a new head, for dispatchers
local READY = P .. 'ready'         -- channel: classes that got members, for executors

local function bucket(p, shard, minute) return P .. 'b:' .. p .. ':' .. shard .. ':' .. minute end
local function heads(p, minute) return P .. 'heads:' .. p .. ':' .. minute end
local function held(p, tenant) return P .. 'held:' .. p .. ':' .. tenant end
local function queue(p, tenant) return P .. 'q:' .. p .. ':t:' .. tenant end
local function tenants(p) return P .. 'q:' .. p .. ':tenants' end
local function idle(p) return P .. 'q:' .. p .. ':idle' end
local function virtual_time(p) return P .. 'q:' .. p .. ':time' end
local function board(target) return P .. 't:' .. target end
local function history(target) return P .. 'h:' .. target end
local function park(p, target) return P .. 'park:' .. p .. ':' .. target end
local function parked(p) return P .. 'parked:' .. p end
local function released(p) return P .. 'q:' .. p .. ':released' end

-- Lua hands at most some 8,000 values to a call: long lists go in pieces (of pairs, too).
local CHUNK = 4000
local function in_chunks(list, call)
  for i = 1, #list, CHUNK do call(unpack(list, i, math.min(i + CHUNK - 1, #list))) end
end

-- The answers of a command that takes one key and many fields, in one list.
local function ask_many(command, key, fields)
  local answers = {}
  in_chunks(fields, function(...)
    for _, answer in ipairs(redis.call(command, key, ...)) do answers[#answers + 1] = answer end
  end)
  return answers
end

-- ZADD NX of {score, member, ...}; how many were new.
local function zadd_new(key, flat)
  local new = 0
  in_chunks(flat, function(...) new = new + redis.call('ZADD', key, 'NX', ...) end)
  return new
end

local function tenant_of(member) return string.sub(member, 1, 16) end
