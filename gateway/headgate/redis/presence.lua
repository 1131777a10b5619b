#!lua name=headgate_presence
-- Presence: members of topics, reported by the gateway processes to which they are connected. docs/decisions/0039-presence.md
-- has the layout.
--
-- KEYS[1] of each function is `hg:{N}:presence`. The other names are built from it, in the same slot. In a database other than
-- 0, KEYS[2] has its number: `hg:{N}:presence@1`. Channels have no databases, so their names have the number.
local VERSION = 5
-- Pairs in one HSET, because Lua's stack is bounded.
local STRIDE = 500
-- The most events waiting to be published. Beyond that the oldest are dropped.
local MAX_NEWS = 10000
-- The field of a members' hash with `<number of the last write>:<members there are then>`; presence.py has another field for a
-- user of that name.
local NUMBER = '#'
-- The answer to a write that was refused, at least for some topics. Redis has lost data, so the process must write everything again.
local LOST = -1

local function topic_key(key, topic) return key .. ':topic:' .. topic end
local function members_key(key, topic, process) return key .. ':members:' .. topic .. ':' .. process end
local function process_key(key, process) return key .. ':process:' .. process end
local function channel(keys, topic)
  local database = keys[2] and string.match(keys[2], '@%d+$') or ''
  return string.sub(keys[1], 1, -string.len(':presence') - 1) .. database .. '/presence.' .. topic
end

-- Whether a process has a lease. The score of one that is being removed is 0.
local function has_lease(key, process) return tonumber(redis.call('ZSCORE', key, process) or 0) > 0 end

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function tell_news(key, kind, topic, id)
  local news = key .. ':news'
  if redis.call('RPUSH', news, cjson.encode({ kind, topic, id })) > MAX_NEWS then redis.call('LTRIM', news, -MAX_NEWS, -1) end
end

-- Remove a process's members from a topic. Returns whether the topic is vacant now.
local function clear(key, topic, process)
  redis.call('UNLINK', members_key(key, topic, process))
  redis.call('SREM', process_key(key, process), topic)
  return redis.call('SREM', topic_key(key, topic), process) == 1 and redis.call('EXISTS', topic_key(key, topic)) == 0
end

-- Whether to accept a write. If it builds on an earlier write, that one must be the last; otherwise the hash would be partial
-- but look complete. A write must not follow a later one, as a delayed one from a broken connection would. And members without
-- a lease would stay for ever.
local function may_write(key, process, members, before, number, count)
  local stored = redis.call('HGET', members, NUMBER)
  local last = stored and tonumber(string.match(stored, '^%d+')) or 0
  if last > number then return false end
  if count == 0 then return true end
  if before > 0 then return last == before end
  return has_lease(key, process)
end

-- Write a process's members: <process> <events> then for each topic <topic> <before> <number> <count> <puts> (<user> <value>)…
-- <takes> <user>… <message> → number of events waiting to be published, or LOST. `count` is the number of its members there
-- now. `before` is the number of the write that this one builds on. Without one (0 or less) these are all of its members.
local function write(keys, args)
  local key, process, events = keys[1], args[1], args[2] == '1'
  local at, lost = 3, false
  while at <= #args do
    local topic, before, number = args[at], tonumber(args[at + 1]), tonumber(args[at + 2])
    local count, puts = tonumber(args[at + 3]), tonumber(args[at + 4])
    at = at + 5
    local members, whole = members_key(key, topic, process), before <= 0
    local takes_at = at + 2 * puts
    local takes = tonumber(args[takes_at])
    local message_at = takes_at + takes + 1
    if not may_write(key, process, members, before, number, count) then
      lost = true
    elseif count == 0 then
      if clear(key, topic, process) and events then tell_news(key, 'vacated', topic, process .. '-' .. number) end
      redis.call('PUBLISH', channel(keys, topic), args[message_at])
    else
      if whole then redis.call('UNLINK', members) end
      local first = at
      repeat
        local last = math.min(first + 2 * STRIDE, takes_at) - 1
        redis.call('HSET', members, NUMBER, number .. ':' .. count, unpack(args, first, last))
        first = last + 1
      until first >= takes_at
      first = takes_at + 1
      while first < message_at do
        local last = math.min(first + STRIDE, message_at) - 1
        redis.call('HDEL', members, unpack(args, first, last))
        first = last + 1
      end
      -- Only the first write of a process, and each complete one, record that it has members there.
      if whole then
        redis.call('SADD', process_key(key, process), topic)
        if redis.call('SADD', topic_key(key, topic), process) == 1 and events and redis.call('SCARD', topic_key(key, topic)) == 1 then
          tell_news(key, 'occupied', topic, process .. '-' .. number)
        end
      end
      redis.call('PUBLISH', channel(keys, topic), args[message_at])
    end
    at = message_at + 1
  end
  if lost then return LOST end
  return events and redis.call('LLEN', key .. ':news') or 0
end

-- Renew a process's lease: <process> → [whether Redis still had it, events to publish, ms now, process, its last beat in ms,
-- …]. Without a process it only reads.
local function beat(keys, args)
  local key, process = keys[1], args[1]
  local now, known = now_ms(), 1
  if process ~= '' then
    known = has_lease(key, process) and 1 or 0
    redis.call('ZADD', key, now, process)
  end
  local found = { known, redis.call('LLEN', key .. ':news'), tostring(now) }
  for _, each in ipairs(redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')) do found[#found + 1] = each end
  return found
end

-- Remove a process whose last beat was <score> ('': any): <process> <score> <events> <topics at most> → number of topics left.
-- Does nothing if it has sent a beat since. The first call ends its lease. While topics are left, its score is 0.
local function forget(keys, args)
  local key, events, most = keys[1], args[3] == '1', tonumber(args[4])
  local process = string.match(args[1], '^~?(.+)') -- the library of 0.2 put ~ before one that is being removed
  if process ~= args[1] then redis.call('ZREM', key, args[1]) end
  local score = redis.call('ZSCORE', key, process)
  if args[2] ~= '' and score and tonumber(score) ~= tonumber(args[2]) then return 0 end
  for _, topic in ipairs(redis.call('SRANDMEMBER', process_key(key, process), most)) do
    -- An id is for one event. The process may have had other topics, and may return and be taken for dead again.
    local stored = redis.call('HGET', members_key(key, topic, process), NUMBER)
    local number = stored and string.match(stored, '^%d+') or topic
    if clear(key, topic, process) and events then tell_news(key, 'vacated', topic, process .. '-' .. number .. '-gone') end
    redis.call('PUBLISH', channel(keys, topic), cjson.encode({ process, 0, 0, 0 }))
  end
  local left = redis.call('SCARD', process_key(key, process))
  if left > 0 then redis.call('ZADD', key, 0, process) else redis.call('ZREM', key, process) end
  return left
end

-- A full Redis must accept these. Members who leave would otherwise stay, and those who come are bounded by the clients.
local OOM = { 'allow-oom' }
redis.register_function{ function_name = 'headgate_presence_write', callback = write, flags = OOM }
redis.register_function{ function_name = 'headgate_presence_beat', callback = beat, flags = OOM }
redis.register_function{ function_name = 'headgate_presence_forget', callback = forget, flags = OOM }
redis.register_function{
  function_name = 'headgate_presence_version', callback = function() return VERSION end, flags = { 'no-writes' },
}
