-- Begin a generation, unless somebody else has: ARGV what was seen ('' for nothing), the new one.
-- Answers the generation that holds.
local key = P .. 'gen'
local present = redis.call('GET', key) or ''
if present ~= ARGV[1] then return present end
redis.call('SET', key, ARGV[2])
return ARGV[2]
