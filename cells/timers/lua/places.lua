-- Tasks that workers poll for begin here: their tenants' room is taken, or (below 0) given back unused.
--
-- ARGV: tenant, wanted, tenant, wanted, ...
-- Answers for each how many may begin; -1 where the tenant is not near its quota.
local out = {}
for i = 1, #ARGV, 2 do
  local tenant, wanted = ARGV[i], tonumber(ARGV[i + 1])
  local room = room_of(tenant)
  local taken = room and math.min(wanted, room) or -1
  if room then pass(tenant, taken) end
  out[#out + 1] = taken
end
return out
