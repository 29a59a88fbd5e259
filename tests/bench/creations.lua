-- Every request makes another job: its own idempotency key, an instant of its own within a year.
local counter, seed = 0, 0
local threads = 0
function setup(thread) threads = threads + 1; thread:set("number", threads) end
function init(args) seed = tonumber(args[1]) end
function request()
  counter = counter + 1
  local day = 1 + counter % 27
  local body = string.format('{"schedule":{"type":"ONCE","run_at":"2099-%02d-%02dT%02d:%02d:%02dZ"},"target":{"target_id":"tgt_bench"},"payload":{"user_id":%d,"kind":"reminder"}}',
    1 + counter % 12, day, counter % 24, counter % 60, (counter * 7) % 60, counter)
  return wrk.format("POST", "/v1/jobs", {
    ["Content-Type"] = "application/json",
    ["Authorization"] = os.getenv("BENCH_KEY") and ("Bearer " .. os.getenv("BENCH_KEY")),
    ["Idempotency-Key"] = string.format("bench-%d-%d-%d", seed, number, counter) }, body)
end
