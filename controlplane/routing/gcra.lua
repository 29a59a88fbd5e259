-- GCRA for a batch of requests, oldest first. The clock is the server's: routers' clocks may differ.
-- KEYS[i]: theoretical arrival time of one tenant (milliseconds, as text).
-- ARGV[2i-1], ARGV[2i]: requests per second, burst.
-- Answers, per request: {allowed 0|1, ms until it would be allowed, requests left, ms until all are free}.
local time = redis.call('TIME')
local now = time[1] * 1000 + time[2] / 1000
local answers = {}
for i, key in ipairs(KEYS) do
  local interval = 1000 / tonumber(ARGV[2 * i - 1])
  local burst = tonumber(ARGV[2 * i])
  local tat = math.max(tonumber(redis.call('GET', key) or 0), now)
  local wait = tat + interval - interval * burst - now
  local allowed = wait <= 0.001 -- less is rounding
  if allowed then
    tat = tat + interval
    wait = 0
    redis.call('SET', key, string.format('%.3f', tat), 'PX', math.ceil(tat - now) + 1000)
  end
  local left = math.max(0, math.floor(burst - (tat - now) / interval + 0.001))
  answers[i] = {allowed and 1 or 0, math.ceil(wait), left, math.ceil(tat - now)}
end
return answers
