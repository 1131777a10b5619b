#!lua name=headgate_consumers
-- Consumer groups on a namespace's log, as a Redis function library: delivery, deferral, dead letters, and counts of missed events.
--
-- In: FCALL from store.py and state.py. Works on Redis 7.0 or newer and on Valkey; every key is in the slot of the
-- log's key. Redis' own group on the stream remembers which entries are new and which are leased. It is named <g>@<epoch>, so a
-- late XACK for an event that the log has lost cannot acknowledge a new event with the same id. When another epoch begins (log.lua),
-- a new group of Redis continues from the position, and the previous one stays until everything leased in it has been answered.
-- Besides it, for <g>:
--
--   hg:{N}:group:<g>            hash: epoch and position of the group in the log; older, the previous epochs with leased entries;
--                               totals missed, log_lost, dead, dead_dropped; held_bytes, the sum over the hash of bodies;
--                               dead_bytes, that over the dead letters; clock and shift, of its clock
--   hg:{N}:group:<g>:held       sorted set: task → when it is due, by the clock (ms)
--   hg:{N}:group:<g>:body       hash: task → the bytes packed by store.py, opaque here
--   hg:{N}:group:<g>:out        hash: task → number of deliveries without an answer; absent: not leased
--   hg:{N}:group:<g>:together   sorted set, by name: `<key hash>:<task>` of the tasks that are handled together with others of their key
--   hg:{N}:group:<g>:dead       stream of dead letters, each with its weight
--   hg:{N}:group:<g>:state:*    the consumer's own small memory; every key expires
--
-- A task is named `<time, 13 digits>-<epoch>-<offset, 15 digits>-<key hash, 16 digits>`, so names sort as the events do.
--
-- Promises. Work is handed out again after its lease unless it is answered or renewed. Work that was handed out before without an
-- answer, and so may have ended a process, is handed out alone. Events that the log trimmed before the group got them are counted. A
-- refused call has written nothing. If Redis evicts one of these keys alone, no task is lost unreported: a task whose body is gone counts
-- as missed, and a body without a waiting task is due again. While the slot moves key by key in a Cluster, calls are refused (TRYAGAIN), since a key on the
-- other node must not pass for a missing one, and a step must not be half done.
--
-- Leases and due times follow the clock of clock.lua, one per group, and are given as times from now, so setting the wall clock does
-- not change them. Each process of a consumer calls `headgate_group_tick` every few seconds, with the time from the last call and its
-- age. Redis keeps the leases of entries by its wall clock, so these restart when that is set.
--
-- A full Redis must accept answers and the calls that lead to them: they free memory, and without them it would stay full.
--
-- Raise VERSION with every change of the code: a newer library replaces an older one, never the other way round.

local VERSION = 15

-- Redis records leases by the reader's name. A whole group uses one name, as only the age of a lease matters, not its owner.
local READER = 'headgate'
local MAX_NAME_LENGTH = 64
local MAX_PAGE = 1000
local MAX_TOGETHER = 500
-- Maximum weight of waiting tasks in one answer (the first one always goes).
local MAX_BODY_BYTES = 16 * 1024 * 1024
-- An idle time longer than every lease.
local LONG_AGO_MS = 7 * 86400000
-- Average weight of a waiting task while `max_waiting` wait; a large one counts as several.
local TASK_BYTES = 8192
-- Previous epochs with leased entries. Beyond that, the leased entries of the oldest count as missed.
local MAX_OLDER = 16
-- Bytes of a dead letter besides its body and reason, and maximum letters dropped for a new one.
local LETTER_BYTES, MAX_DROPPED = 256, 1000
-- Tasks of a group that are moved when its clock catches up.
local MAX_EARLY = 10000
-- Groups whose clock this process caches.
local MAX_CLOCKS = 10000
-- Namespaces (of all databases) whose lineage this process caches.
local MAX_LINEAGES = 1000
-- Entries that stopping consumers have returned, as far as a status tells them from leased ones.
local MAX_RETURNED = 10000
-- Workers whose last page this process remembers.
local MAX_PAGES = 1000
-- An id after every event. (Not the greatest id, which Redis itself uses for `>`.)
local END = '18446744073709551615-0'

-- Refusals and names ----------------------------------------------------------------------------------------------------

local function refusal(code, parts)
  return redis.error_reply('HEADGATE ' .. code .. ' ' .. cjson.encode(parts))
end

local function invalid(reason)
  return refusal('invalid_request', { reason = reason })
end

local function whole(number)
  return string.format('%.0f', number)
end

-- 15 digits are exact in Lua's numbers.
local function number(text)
  return text and #text <= 15 and string.find(text, '^%d+$') and tonumber(text) or nil
end

local function is_name(text)
  return text and #text >= 1 and #text <= MAX_NAME_LENGTH and not string.find(text, '[^A-Za-z0-9_-]')
end

-- Whether this is a node of a Cluster; nil until a call by a user with the permission to ask.
local in_cluster

-- Return nil, or the refusal while some of these keys are on another node, when Redis refuses a command of several keys. Its text is
-- another one in Redis 8.
local function moving(...)
  if in_cluster == nil and redis.acl_check_cmd('INFO', 'cluster') then
    in_cluster = string.find(redis.call('INFO', 'cluster'), 'cluster_enabled:1', 1, true) ~= nil
  end
  if not in_cluster then return end
  local found = redis.pcall('MGET', ...)
  local fault = found.err or ''
  if string.find(fault, 'non local key', 1, true) or string.find(fault, 'undeclared keys', 1, true) then
    return redis.error_reply('TRYAGAIN the slot of this namespace is moving to another node')
  end
end

-- Return the names of redis/keys.py, built from the log's key, or nil and a refusal for any other key, and while one of the keys is
-- on another node. `memory`: an additional key, of the consumer's memory.
local function names(keys, group, memory)
  local namespace = #keys == 1 and string.match(keys[1], '^hg:{([A-Za-z0-9_-]+)}:log$')
  if not is_name(namespace) then
    return nil, refusal('unknown_namespace', { namespace = '', expected = 'one key: hg:{namespace}:log' })
  end
  if not is_name(group) then return nil, invalid('a consumer is named with 1 to 64 characters of A-Z a-z 0-9 _ -') end
  local prefix = 'hg:{' .. namespace .. '}:'
  local own = prefix .. 'group:' .. group
  local name = {
    log = keys[1], head = prefix .. 'head', epochs = prefix .. 'epochs', consumer = group, group = group .. '@',
    state = own, waiting = own .. ':held', body = own .. ':body', out = own .. ':out', together = own .. ':together', dead = own .. ':dead', own = own .. ':state:',
  }
  local elsewhere = moving(
    name.log, name.head, name.epochs, name.state, name.waiting, name.body, name.out, name.together, name.dead,
    memory and name.own .. memory or name.log
  )
  if elsewhere then return nil, elsewhere end
  return name
end

-- Refuse a call without a permission for a later write before the first write, or the step would be half done.
local function may(command, ...)
  if redis.acl_check_cmd(command, ...) then return end
  return redis.error_reply('NOPERM this user may not run ' .. command .. ' on the keys of a consumer')
end

local function may_create(name)
  return may('XGROUP', 'CREATE', name.log, name.group, '0') or may('XGROUP', 'DESTROY', name.log, name.group)
    or may('HSET', name.state, 'epoch', '') or may('HINCRBY', name.state, 'missed', '1')
end

local function may_take(name)
  return may_create(name) or may('XREADGROUP', 'GROUP', name.group, READER, 'STREAMS', name.log, '>')
    or may('XCLAIM', name.log, name.group, READER, '0', '0-1') or may('ZADD', name.waiting, '0', '')
    or may('HDEL', name.state, 'older') or may('HINCRBY', name.out, '', '1') or may('XPENDING', name.log, name.group)
    or may('ZREM', name.waiting, '') or may('HDEL', name.body, '') or may('HSTRLEN', name.body, '')
end

local function may_settle(name)
  return may('XACK', name.log, name.group, '0-1') or may('XCLAIM', name.log, name.group, READER, '0', '0-1')
    or may('ZADD', name.waiting, '0', '') or may('ZREM', name.waiting, '') or may('HSET', name.body, '', '') or may('HDEL', name.body, '')
    or may('HSET', name.out, '', '') or may('HDEL', name.out, '') or may('ZADD', name.together, '0', '')
    or may('ZREM', name.together, '') or may('XADD', name.dead, '*', 'why', '')
    or may('XDEL', name.dead, '0-1') or may('XLEN', name.dead) or may('XRANGE', name.dead, '-', '+') or may('HINCRBY', name.state, 'dead', '1') or may('HSTRLEN', name.body, '')
end

local function may_drop(name)
  return may('XDEL', name.dead, '0-1') or may('XRANGE', name.dead, '-', '+') or may('HSET', name.state, 'dead_bytes', '')
end

local function may_remove(name)
  return may('XGROUP', 'DESTROY', name.log, name.group) or may('XINFO', 'CONSUMERS', name.log, name.group)
    or may('UNLINK', name.state)
end

-- Register a function whose body runs for a consumer of a namespace, and by a user with every permission that it needs.
-- `memory`: the second argument names a key of the consumer's memory.
local function register(function_name, flags, needs, body, memory)
  redis.register_function{
    function_name = 'headgate_' .. function_name,
    flags = flags,
    callback = function(keys, args)
      local name, wrong = names(keys, args[1], memory and args[2])
      if not name then return wrong end
      return needs and needs(name, name.own .. (args[2] or '')) or body(name, args)
    end,
  }
end

-- The log and the group ---------------------------------------------------------------------------------------------------

local function wall_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- <clock.lua>

local clocks, ticking = {}, 0

-- Return the time by the group's clock, the wall clock and the clock itself.
local function read_time(name, told, elapsed)
  local wall, clock = wall_ms(), clocks[name.state]
  if not clock then
    local raw = redis.call('HMGET', name.state, 'clock', 'shift')
    local shift = raw[2] and string.find(raw[2], '^-?%d+$') and #raw[2] <= 15 and tonumber(raw[2]) or 0
    clock = start_clock(wall, number(raw[1]), shift)
    clock.leased_at = 0
    if ticking >= MAX_CLOCKS then clocks, ticking = {}, 0 end
    clocks[name.state], ticking = clock, ticking + 1
  end
  local shift = clock.shift
  local now = read_clock(clock, wall, told, elapsed)
  if clock.early then clock.caught_up = clock.caught_up + shift - clock.shift end
  return now, wall, clock
end

-- Set when a task is due or its lease ends. While it is in doubt whether time has passed that the clock has not seen, note the task:
-- if so, the clock leaps, and the task would be due as much too early.
local function set_due(name, clock, due, task)
  redis.call('ZADD', name.waiting, whole(due), task)
  if clock.doubt == 0 then
    if clock.early then clock.early[task] = nil end
  elseif not clock.early then
    clock.early, clock.noted, clock.caught_up = { [task] = true }, 1, 0
  elseif clock.noted < MAX_EARLY then
    clock.early[task], clock.noted = true, clock.noted + 1
  end
end

-- Move the tasks that were noted, once the doubt is settled.
local function move_early(name, clock)
  if not clock.early or clock.doubt > 0 then return end
  for task in pairs(clock.early) do
    local due = clock.caught_up > 0 and redis.call('ZSCORE', name.waiting, task)
    if due then redis.call('ZADD', name.waiting, whole(tonumber(due) + clock.caught_up), task) end
  end
  clock.early = nil
end

-- Save the time for another process of Redis, occasionally.
local function save_time(name, clock)
  if not is_unsaved(clock) then return end
  redis.call('HSET', name.state, 'clock', whole(clock.last), 'shift', whole(clock.shift))
  clock.saved = clock.last
end

-- The epoch is empty without a log.
local function read_head(name)
  local raw = redis.call('HMGET', name.head, 'epoch', 'offset', 'time')
  return { epoch = raw[1] or '', offset = number(raw[2]) or 0, time = number(raw[3]) or 0 }
end

local function offset_of(id)
  return tonumber(string.match(id, '^%d+'))
end

-- Select the group's entries of this epoch for the following calls.
local function enter(name, epoch)
  name.group = name.consumer .. '@' .. epoch
end

-- Put the group at a position of an epoch, with a new group of Redis if there is a log.
local function put(name, epoch, position)
  if epoch ~= '' then
    enter(name, epoch)
    redis.pcall('XGROUP', 'DESTROY', name.log, name.group)
    redis.call('XGROUP', 'CREATE', name.log, name.group, whole(position) .. '-0', 'MKSTREAM')
  end
  redis.call('HSET', name.state, 'epoch', epoch, 'position', whole(position))
end

-- Return whether a position of an epoch still belongs to this log. State and log are on one server, so they are lost together, and
-- the position of a group on the line is never above the end of its epoch. A log begun by an older version of the log's library has
-- no lineage: its epoch is not among the epochs left from the log before it.
local function on_line(name, epoch, newest)
  return epoch ~= '' and redis.call('HEXISTS', name.epochs, newest) == 1 and redis.call('HEXISTS', name.epochs, epoch) == 1
end

-- Lineages by their newest epoch, newest first. None ever changes, as a further epoch is another lineage.
local lineages, known = {}, 0

local function lineage_of(name, newest)
  local found = lineages[newest]
  if found then return found end
  found = {}
  for _, epoch in ipairs(redis.call('HKEYS', name.epochs)) do
    local first, nth = string.match(redis.call('HGET', name.epochs, epoch), '^(%d+) (%d+)$')
    if first then found[#found + 1] = { epoch, tonumber(first), tonumber(nth) } end
  end
  table.sort(found, function(one, other) return one[3] > other[3] end)
  if known >= MAX_LINEAGES then lineages, known = {}, 0 end
  lineages[newest], known = found, known + 1
  return found
end

-- Add to each entry the epoch in which it was written, which is the same for every delivery by every group.
local function name_epochs(name, head, entries)
  if #entries == 0 then return end
  local lineage = lineage_of(name, head.epoch)
  for _, entry in ipairs(entries) do
    local offset = offset_of(entry[1])
    entry[4] = head.epoch
    for _, epoch in ipairs(lineage) do
      if epoch[2] <= offset then
        entry[4] = epoch[1]
        break
      end
    end
  end
end

-- Return the previous epochs with leased entries, oldest first.
local function older_of(name)
  local found = {}
  for epoch in string.gmatch(redis.call('HGET', name.state, 'older') or '', '%x+') do found[#found + 1] = epoch end
  return found
end

local function keep_older(name, older)
  if #older > 0 then
    redis.call('HSET', name.state, 'older', table.concat(older, ' '))
  else
    redis.call('HDEL', name.state, 'older')
  end
end

-- Return the number of entries leased in the current epoch's group; destroy the group if there are none.
local function leased_or_gone(name)
  local pending = redis.pcall('XPENDING', name.log, name.group)
  local leased = pending.err and 0 or pending[1]
  if leased == 0 then redis.pcall('XGROUP', 'DESTROY', name.log, name.group) end
  return leased
end

-- Continue from the same position in the log's current epoch. Return the number of events given up.
local function follow(name, from, to, position)
  local older, missed = older_of(name), 0
  enter(name, from)
  if leased_or_gone(name) > 0 then older[#older + 1] = from end
  if #older > MAX_OLDER then
    enter(name, table.remove(older, 1))
    missed = leased_or_gone(name)
    redis.pcall('XGROUP', 'DESTROY', name.log, name.group)
  end
  keep_older(name, older)
  put(name, to, position)
  return missed
end

-- Begin with the first event of another log.
local function begin_anew(name, from, to)
  local gone = older_of(name)
  gone[#gone + 1] = from
  for _, epoch in ipairs(gone) do
    enter(name, epoch)
    redis.pcall('XGROUP', 'DESTROY', name.log, name.group)
  end
  keep_older(name, {})
  put(name, to, 0)
end

-- Open a group: <group> new|oldest|lost → [epoch, position]. An open group keeps its position. `lost`: it was open, and Redis no
-- longer knows it, so it begins with all there is.
local function open(name, args)
  local start = args[2]
  if #args ~= 2 or (start ~= 'new' and start ~= 'oldest' and start ~= 'lost') then
    return invalid('expected a consumer and new, oldest or lost')
  end
  local known = redis.call('HMGET', name.state, 'epoch', 'position')
  if known[1] then return { known[1], number(known[2]) or 0 } end
  local head, position = read_head(name), 0
  if start == 'new' then
    position = head.offset
  elseif start == 'oldest' then
    local oldest = redis.call('XRANGE', name.log, '-', '+', 'COUNT', 1)[1]
    position = oldest and offset_of(oldest[1]) - 1 or head.offset
  else
    redis.call('HINCRBY', name.state, 'log_lost', 1)
  end
  put(name, head.epoch, position)
  return { head.epoch, position }
end

-- Handing out ---------------------------------------------------------------------------------------------------------------

-- Restart all leases after the wall clock was set, since Redis no longer knows their age. Return the number of entries that the
-- log has trimmed.
local function lease_anew(name)
  local missed, from = 0, '-'
  repeat
    local pending = redis.pcall('XPENDING', name.log, name.group, from, '+', MAX_PAGE)
    if pending.err or #pending == 0 then return missed end
    local claim = { 'XCLAIM', name.log, name.group, READER, 0 }
    for _, entry in ipairs(pending) do claim[#claim + 1] = entry[1] end
    from = '(' .. claim[#claim]
    claim[#claim + 1], claim[#claim + 2], claim[#claim + 3] = 'IDLE', 0, 'JUSTID'
    missed = missed + #pending - #redis.call(unpack(claim))
  until #pending < MAX_PAGE
  return missed
end

-- The same for all epochs of the group, once for each detected setting of the clock.
local function follow_clock(name, clock, epoch)
  if clock.leased_at == clock.steps then return 0 end
  clock.leased_at = clock.steps
  local missed, epochs = 0, older_of(name)
  epochs[#epochs + 1] = epoch
  for _, each in ipairs(epochs) do
    enter(name, each)
    missed = missed + lease_anew(name)
  end
  return missed
end

-- Return how often an entry was handed out, or nil if it is not leased in this epoch.
local function times_leased(name, epoch, id)
  enter(name, epoch)
  local pending = redis.pcall('XPENDING', name.log, name.group, id, id, 1)
  return not pending.err and pending[1] and pending[1][4] or nil
end

-- Return an entry as it was before this delivery; any worker may have it at once. An entry that the log has trimmed stays leased,
-- because XCLAIM would remove it, and `take_abandoned` counts it after its lease.
local function put_back(name, epoch, id, deliveries)
  enter(name, epoch)
  if #redis.pcall('XRANGE', name.log, id, id) == 0 then return end
  redis.pcall('XCLAIM', name.log, name.group, READER, 0, id, 'IDLE', LONG_AGO_MS, 'RETRYCOUNT', deliveries, 'JUSTID')
end

-- Return entries without a heartbeat, from the oldest epoch with any, the number that the log has trimmed, which XCLAIM removes,
-- whether the entry comes alone, and the epoch. Forget previous epochs without leased entries.
local function take_abandoned(name, newest, count, lease_ms)
  local older, left, found, missed, alone, of = older_of(name), {}, {}, 0, false, newest
  local function take(epoch)
    if #found > 0 then return end
    of = epoch
    local idle = redis.pcall('XPENDING', name.log, name.group, 'IDLE', lease_ms, '-', '+', count)
    for _, pending in ipairs(idle.err and {} or idle) do
      local id, deliveries = pending[1], pending[4]
      if deliveries > 0 and #found > 0 then return end
      local claimed = redis.call('XCLAIM', name.log, name.group, READER, lease_ms, id)[1]
      if claimed then
        found[#found + 1], alone = { id, deliveries + 1, claimed[2] }, deliveries > 0
        if alone then return end
      else
        missed = missed + 1
      end
    end
  end
  for _, epoch in ipairs(older) do
    enter(name, epoch)
    take(epoch)
    if leased_or_gone(name) > 0 then left[#left + 1] = epoch end
  end
  if #left < #older then keep_older(name, left) end
  enter(name, newest)
  take(newest)
  return found, missed, alone, of
end

-- Return the unleased tasks that are handled together with this one, and whether they were handed out without an answer. If so,
-- tasks that have joined since stay out, so the repeated work covers the same tasks.
local function batch_of(name, task, now)
  local mark = string.sub(task, -16)
  if not redis.call('ZSCORE', name.together, mark .. ':' .. task) then
    return { task }, '', redis.call('HEXISTS', name.out, task) == 1
  end
  local found, again = {}, {}
  for _, member in ipairs(redis.call('ZRANGEBYLEX', name.together, '[' .. mark .. ':', '(' .. mark .. ';', 'LIMIT', 0, MAX_TOGETHER)) do
    local member_task = string.sub(member, 18)
    local out = redis.call('HEXISTS', name.out, member_task) == 1
    if not out then
      found[#found + 1] = member_task
    elseif tonumber(redis.call('ZSCORE', name.waiting, member_task) or 0) <= now then
      again[#again + 1] = member_task
    end
  end
  if #again > 0 then return again, mark, true end
  return found, mark, false
end

-- Return the number of waiting tasks; large ones count by their weight.
local function count_waiting(name)
  local bytes = tonumber(redis.call('HGET', name.state, 'held_bytes') or 0)
  return math.max(redis.call('ZCARD', name.waiting), math.ceil(bytes / TASK_BYTES))
end

local function weigh(name, task, bytes)
  local more = bytes - redis.call('HSTRLEN', name.body, task)
  if more ~= 0 then redis.call('HINCRBY', name.state, 'held_bytes', more) end
end

local function forget(name, task)
  weigh(name, task, 0)
  redis.call('ZREM', name.waiting, task)
  redis.call('HDEL', name.body, task)
  redis.call('HDEL', name.out, task)
  redis.call('ZREM', name.together, string.sub(task, -16) .. ':' .. task)
end

-- Make tasks due again of which Redis has lost the time, as it has evicted all of them. Leased ones are due after a lease.
local function restore_waiting(name, now, lease_ms)
  if redis.call('ZCARD', name.waiting) > 0 then return end
  for _, task in ipairs(redis.call('HKEYS', name.body)) do
    local is_out = redis.call('HEXISTS', name.out, task) == 1
    redis.call('ZADD', name.waiting, whole(is_out and now + lease_ms or now), task)
  end
end

-- Hand out due tasks. The lease is added to each task's time, so it is due again without an answer. Also return the number of
-- tasks whose body Redis has lost.
local function take_due(name, count, now, clock, lease_ms)
  local found, seen, bytes, lost = {}, {}, 0, 0
  for _, first in ipairs(redis.call('ZRANGEBYSCORE', name.waiting, '-inf', whole(now), 'LIMIT', 0, count)) do
    if not seen[first] then
      local tasks, mark, suspect = batch_of(name, first, now)
      if #found > 0 and (suspect or bytes > MAX_BODY_BYTES) then return found, false, lost end
      for _, task in ipairs(tasks) do
        local is_new = not seen[task]
        local body = is_new and redis.call('HGET', name.body, task)
        seen[task] = true
        if is_new and not body then
          forget(name, task)
          lost = lost + 1
        elseif body and (#found == 0 or bytes + #body <= MAX_BODY_BYTES or mark == '') then
          bytes = bytes + #body
          set_due(name, clock, now + lease_ms, task)
          found[#found + 1] = { task, redis.call('HINCRBY', name.out, task, 1), mark, body }
        end
      end
      if suspect and #found > 0 then return found, true, lost end
    end
  end
  return found, false, lost
end

-- Leave a heartbeat for `remove`, by a call that reads and writes nothing. In Redis 7.0 a read without new entries is no heartbeat.
local function heartbeat(name)
  redis.pcall('XREADGROUP', 'GROUP', name.group, READER, 'COUNT', 1, 'STREAMS', name.log, END)
end

-- Return new entries, and the number that the log had trimmed before the group got them, as offsets are contiguous.
local function take_new(name, head, position, count)
  local function read()
    return redis.pcall('XREADGROUP', 'GROUP', name.group, READER, 'COUNT', count, 'STREAMS', name.log, '>')
  end
  local reply = read()
  if reply and reply.err then
    put(name, head.epoch, position)
    reply = read()
    if reply and reply.err then return nil, reply end
  end
  local found = {}
  for index, entry in ipairs(reply and reply[1][2] or {}) do found[index] = { entry[1], 1, entry[2] } end
  local reached = position
  if #found > 0 then
    reached = offset_of(found[#found][1])
  elseif head.offset > position then
    reached = head.offset
  end
  if reached ~= position then redis.call('HSET', name.state, 'position', whole(reached)) end
  return found, math.max(0, reached - position - #found), reached
end

-- The last page of each worker, by its token. A worker that asks for the same page again never got it.
local pages, paging = {}, 0

-- Put back the work of a page that its worker never got, unless others have had it since.
local function put_page_back(name, clock, now, page)
  for index, id in ipairs(page.ids) do
    if times_leased(name, page.epoch, id) == page.deliveries[index] then
      put_back(name, page.epoch, id, page.deliveries[index] - 1)
    end
  end
  for _, task in ipairs(page.tasks) do
    if tonumber(redis.call('ZSCORE', name.waiting, task) or 0) == page.due then
      if redis.call('HINCRBY', name.out, task, -1) == 0 then redis.call('HDEL', name.out, task) end
      set_due(name, clock, now, task)
    end
  end
end

local function remember_page(token, page, entries, tasks)
  if not pages[token] then
    if paging >= MAX_PAGES then pages, paging = {}, 0 end
    paging = paging + 1
  end
  for index, entry in ipairs(entries) do page.ids[index], page.deliveries[index] = entry[1], entry[2] end
  for index, task in ipairs(tasks) do page.tasks[index] = task[1] end
  pages[token] = page
end

-- Hand out: <group> <count> <lease_ms> <max_waiting> [<worker's token> <number of its page>] →
-- [epoch in which the entries are leased, offset of the log's newest event, position, tasks waiting (count_waiting),
--  when the next is due (ms, -1: none), now (ms), missed in this call, logs lost in this call,
--  entries [[id, deliveries, fields, epoch]], tasks [[task, times out, key hash, body]]],
-- or [] if the group is not open. A task that was handed out before without an answer comes alone. At most half of a page are waiting
-- tasks (and those handled together with them), and while `max_waiting` wait there are no entries. `known`: only work that was handed
-- out before, or waits.
local function take(name, args, known)
  local count, lease_ms, max_waiting = number(args[2]), number(args[3]), number(args[4])
  local token, nth = args[5], args[6]
  if #args ~= 4 and #args ~= 6 or not (count and lease_ms and max_waiting) or count < 2 or count > MAX_PAGE or lease_ms < 1 then
    return invalid('expected a consumer, a count of 2 to ' .. MAX_PAGE .. ', lease_ms and max_waiting')
  end
  local state = redis.call('HMGET', name.state, 'epoch', 'position')
  if not state[1] then return {} end
  local head, position = read_head(name), number(state[2]) or 0
  local now, _, clock = read_time(name)
  save_time(name, clock)
  move_early(name, clock)
  local missed, lost, gone = follow_clock(name, clock, state[1]), 0, 0
  if head.epoch ~= state[1] and head.epoch ~= '' then
    if on_line(name, state[1], head.epoch) then
      missed = missed + follow(name, state[1], head.epoch, position)
    else
      begin_anew(name, state[1], head.epoch)
      position = 0
      if state[1] ~= '' then lost = redis.call('HINCRBY', name.state, 'log_lost', 1) and 1 end
    end
  end
  if token and pages[token] and pages[token].nth == nth then
    put_page_back(name, clock, now, pages[token])
    pages[token].nth = nil
  end
  local entries, tasks, alone, of = {}, {}, false, head.epoch
  restore_waiting(name, now, lease_ms)
  local waiting = count_waiting(name)
  local readable = head.epoch ~= '' and waiting < max_waiting
  if readable then
    entries, gone, alone, of = take_abandoned(name, head.epoch, count, lease_ms)
    missed = missed + gone
  end
  enter(name, head.epoch)
  if #entries == 0 then
    tasks, alone, gone = take_due(name, math.floor(count / 2), now, clock, lease_ms)
    missed = missed + gone
  end
  local room = count - #entries - #tasks
  if readable and not known and not alone and of == head.epoch and room > 0 then
    local new, skipped, reached = take_new(name, head, position, room)
    if not new then return skipped end
    for _, entry in ipairs(new) do entries[#entries + 1] = entry end
    missed, position = missed + skipped, reached
  end
  name_epochs(name, head, entries)
  if missed > 0 then redis.call('HINCRBY', name.state, 'missed', missed) end
  if #entries == 0 then heartbeat(name) end
  local next_due = tonumber(redis.call('ZRANGE', name.waiting, 0, 0, 'WITHSCORES')[2] or -1)
  if token then
    local page = { nth = nth, epoch = of, due = now + lease_ms, ids = {}, deliveries = {}, tasks = {} }
    remember_page(token, page, entries, tasks)
  end
  return { of, head.offset, position, waiting, next_due, now, missed, lost, entries, tasks }
end

-- Answers -------------------------------------------------------------------------------------------------------------------

local function defer(name, task, due, together, out, body)
  set_due(name, name.clock, name.now + tonumber(string.match(due, '^%+(%d+)$') or 0), task)
  weigh(name, task, #body)
  redis.call('HSET', name.body, task, body)
  local member = string.sub(task, -16) .. ':' .. task
  if together == '1' then redis.call('ZADD', name.together, 0, member) else redis.call('ZREM', name.together, member) end
  if out == '0' then redis.call('HDEL', name.out, task) else redis.call('HSET', name.out, task, out) end
end

local function dead_bytes(name)
  return number(redis.call('HGET', name.state, 'dead_bytes')) or 0
end

-- Drop a dead letter. Return 1 if it existed, else 0.
local function drop_letter(name, id)
  local letter = redis.call('XRANGE', name.dead, id, id)[1]
  if not letter then return 0 end
  redis.call('XDEL', name.dead, id)
  redis.call('HSET', name.state, 'dead_bytes', whole(math.max(0, dead_bytes(name) - (number(letter[2][10]) or 0))))
  return 1
end

-- Write a dead letter, and drop the oldest ones beyond either limit, never the new one. Return the number dropped.
local function add_letter(name, why, reason, task, body, max_dead, max_bytes)
  local weight = #body + #reason + LETTER_BYTES
  local before = redis.call('XLEN', name.dead) > 0 and dead_bytes(name) or 0
  redis.call('XADD', name.dead, '*', 'why', why, 'reason', reason, 'task', task, 'body', body, 'weight', whole(weight))
  redis.call('HSET', name.state, 'dead_bytes', whole(before + weight))
  redis.call('HINCRBY', name.state, 'dead', 1)
  local kept, dropped = redis.call('XLEN', name.dead), 0
  while kept > 1 and dropped < MAX_DROPPED and (kept > max_dead or dead_bytes(name) > max_bytes) do
    drop_letter(name, redis.call('XRANGE', name.dead, '-', '+', 'COUNT', 1)[1][1])
    kept, dropped = kept - 1, dropped + 1
  end
  if dropped > 0 then redis.call('HINCRBY', name.state, 'dead_dropped', dropped) end
  return dropped
end

-- Return whether work is still leased as it was handed out: nobody else has had it since, or answered it. A task that was handed out
-- again in between may be out as many times, but has another body.
local function is_held(name, epoch, id, task, out, body_sha1)
  if task ~= '' and redis.call('HGET', name.out, task) == out then
    local body = redis.call('HGET', name.body, task)
    if body and redis.sha1hex(body) == body_sha1 then return true end
  end
  return id ~= '' and tostring(times_leased(name, epoch, id)) == out
end

-- Each answer is a word and its number of arguments. All answers of a call take effect in one step. An entry is answered in the
-- group of the epoch in which it was handed out. If the log has lost it, it is not leased there, and a new event with its id stays.
local ANSWERS = {
  -- <epoch> <id> <task> <deliveries> <sha1 of the task's body>: the answers up to the next `held` count only if this is so. A process
  -- that stood still must not put its answer in place of a later one.
  held = { 5, is_held },
  -- <epoch> <id>: an entry is done, or replaced by tasks.
  ack = { 2, function(name, epoch, id)
    enter(name, epoch)
    redis.pcall('XACK', name.log, name.group, id)
  end },
  -- <epoch> <id> <deliveries>: an entry was not begun; any worker may have it at once.
  back = { 3, put_back },
  -- <task>: a waiting task is done.
  done = { 1, forget },
  -- <task> <+ms from now> <together 0/1> <times out> <body>: store, or replace. Times out above 0: it is leased.
  defer = { 5, defer },
  -- <why> <reason> <task> <body> <max_dead> <max_bytes>
  letter = { 6, function(name, why, reason, task, body, max_dead, max_bytes)
    return add_letter(name, why, reason, task, body, number(max_dead) or 1, number(max_bytes) or 0)
  end },
  -- <dead letter's id> <task> <body>: retry a dead letter now; nothing if it no longer exists.
  again = { 3, function(name, id, task, body)
    if drop_letter(name, id) == 1 then defer(name, task, '+0', '0', '0', body) end
  end },
}

-- Settle: <group> (<word> <argument>…)… → [tasks waiting (count_waiting), dead letters pushed out].
local function settle(name, args)
  local at = 2
  while at <= #args do
    local answer = ANSWERS[args[at]]
    if not answer or at + answer[1] > #args then return invalid('expected answers and their arguments') end
    at = at + 1 + answer[1]
  end
  local dropped = 0
  local _
  name.now, _, name.clock = read_time(name)
  at = 2
  local counts = true
  while at <= #args do
    local word, answer = args[at], ANSWERS[args[at]]
    if word == 'held' then
      counts = is_held(name, unpack(args, at + 1, at + answer[1]))
    elseif counts then
      dropped = dropped + (answer[2](name, unpack(args, at + 1, at + answer[1])) or 0)
    end
    at = at + 1 + answer[1]
  end
  if redis.call('ZCARD', name.waiting) == 0 then redis.call('HDEL', name.state, 'held_bytes') end
  return { count_waiting(name), dropped }
end

-- Drop dead letters: <group> <id>… → number that existed.
local function drop(name, args)
  local dropped = 0
  for index = 2, #args do dropped = dropped + drop_letter(name, args[index]) end
  return dropped
end

-- Report the time: <group> [<told> <elapsed_ms>] → the time by the group's clock (0: it is not open). `told` is the result of this
-- process's last call, `elapsed_ms` its age by the process's own clock.
local function tick(name, args)
  local told, elapsed = number(args[2]), number(args[3])
  if #args ~= 1 and not (#args == 3 and told and elapsed) then
    return invalid('expected a consumer, and perhaps a time that was told and how long ago that was')
  end
  if redis.call('HEXISTS', name.state, 'epoch') == 0 then return 0 end
  local now, _, clock = read_time(name, told, elapsed)
  save_time(name, clock)
  return now
end

-- Renew: <group> <lease_ms> <task>… : extend the tasks still leased by another lease.
local function renew(name, args)
  local lease_ms = number(args[2])
  if not lease_ms then return invalid('expected a consumer, lease_ms and tasks') end
  local now, _, clock = read_time(name)
  for index = 3, #args do
    local task = args[index]
    if redis.call('HEXISTS', name.out, task) == 1 and redis.call('ZSCORE', name.waiting, task) then
      set_due(name, clock, now + lease_ms, task)
    end
  end
  return #args - 2
end

-- Return the progress: <group> → [now, handled] (ms). `handled` is the time of the oldest event that is leased or not yet taken;
-- 0 if that time is no longer known, or the group not open.
local function progress(name, args)
  local state = redis.call('HMGET', name.state, 'epoch', 'position')
  local head = read_head(name)
  local now = math.max(wall_ms(), head.time)
  if not state[1] or state[1] ~= head.epoch and not on_line(name, state[1], head.epoch) then return { now, 0 } end
  if head.epoch == '' then return { now, now } end
  local handled = now
  local function open_at(id)
    local entry = redis.call('XRANGE', name.log, id, '+', 'COUNT', 1)[1]
    handled = math.min(handled, entry and entry[1] == id and number(entry[2][6]) or 0)
  end
  local epochs = older_of(name)
  epochs[#epochs + 1] = state[1]
  for _, epoch in ipairs(epochs) do
    enter(name, epoch)
    local pending = redis.pcall('XPENDING', name.log, name.group)
    if pending.err then return { now, 0 } end
    if pending[1] > 0 then open_at(pending[2]) end
  end
  local position = number(state[2]) or 0
  if position < head.offset then open_at(whole(position + 1) .. '-0') end
  for _, task in ipairs(redis.call('HKEYS', name.out)) do handled = math.min(handled, tonumber(string.sub(task, 1, 13)) or 0) end
  return { now, handled }
end

-- A consumer's memory -------------------------------------------------------------------------------------------------------

-- Register a function of the memory: <group> <name> and so many arguments in all, of which `numbers` are positive. The body gets
-- the key, all arguments, the names and these numbers.
local function remember(function_name, flags, needs, count, numbers, expected, body)
  register('state_' .. function_name, flags, needs, function(name, args)
    local found = {}
    for index, place in ipairs(numbers) do
      found[index] = #args == count and number(args[place]) or 0
      if found[index] < 1 then return invalid('expected a consumer, a name' .. expected) end
    end
    return body(name.own .. args[2], args, name, unpack(found))
  end, true)
end

-- Count one against a limit in any period: <limit> <period_ms> <one> → -1, or the time of new room (ms). The same one counts once, as
-- the answer may be lost.
local function rate(key, args, name, limit, period_ms)
  local now, wall = read_time(name)
  redis.call('ZREMRANGEBYSCORE', key, '-inf', whole(now - period_ms))
  if redis.call('ZSCORE', key, args[5]) then return -1 end
  local used = redis.call('ZCARD', key)
  if used >= limit then
    return wall - now + tonumber(redis.call('ZRANGE', key, used - limit, used - limit, 'WITHSCORES')[2]) + period_ms
  end
  redis.call('ZADD', key, whole(now), args[5])
  redis.call('PEXPIRE', key, whole(period_ms))
  return -1
end

-- Keys expire by the wall clock, so a key has more time left than it was given after the clock was set back.

-- Open a window, for consumers of 0.2: <length_ms> → -1 if it was opened now, else the end of the open one (ms).
local function window(key, args, _, length_ms)
  local left = redis.call('PTTL', key)
  if left > 0 then return wall_ms() + math.min(left, length_ms) end
  redis.call('SET', key, '1', 'PX', whole(length_ms))
  return -1
end

-- Take or renew a lease: <holder> <for_ms> → 1 ours, 0 another's.
local function lease(key, args, _, for_ms)
  local holder = redis.call('GET', key)
  if holder and holder ~= args[3] and redis.call('PTTL', key) <= for_ms then return 0 end
  redis.call('SET', key, args[3], 'PX', whole(for_ms))
  return 1
end

-- Store a value: <value> <for_ms>.
local function store(key, args, _, for_ms)
  return redis.call('SET', key, args[3], 'PX', whole(for_ms))
end

-- Store an outcome: <member> <for_ms> <most>. Beyond `most`, the oldest is removed.
local function record(key, args, _, for_ms, most)
  redis.call('ZADD', key, whole(wall_ms()), args[3])
  redis.call('PEXPIRE', key, whole(for_ms))
  local surplus = redis.call('ZRANGE', key, 0, -most - 1)
  if #surplus > 0 then redis.call('ZREM', key, unpack(surplus)) end
  return 1
end

-- For operators -------------------------------------------------------------------------------------------------------------

-- Convert a flat list of names and values from Redis to a table.
local function fields(flat)
  local found = {}
  for index = 1, #flat, 2 do found[flat[index]] = flat[index + 1] end
  return found
end

-- Return this consumer's groups on the log, of any epoch.
local function groups_of(name)
  local found, all = {}, redis.pcall('XINFO', 'GROUPS', name.log)
  for _, flat in ipairs(all.err and {} or all) do
    local group = fields(flat)
    if string.match(group.name, '^[^@]*') == name.consumer then found[#found + 1] = group end
  end
  return found
end

-- Return the age (ms) of an instance's last heartbeat: 0 while it has a task leased; -1: unknown.
local function idle_ms(name, groups)
  local now, least = read_time(name), -1
  for _, task in ipairs(redis.call('HKEYS', name.out)) do
    if tonumber(redis.call('ZSCORE', name.waiting, task) or 0) > now then return 0 end
  end
  for _, group in ipairs(groups) do
    for _, flat in ipairs(redis.call('XINFO', 'CONSUMERS', name.log, group.name)) do
      local idle = fields(flat).idle
      if least < 0 or idle < least then least = idle end
    end
  end
  return least
end

-- Return the status of a consumer: <group> → [lag (with returned entries), leased, waiting, dead, missed, ms since a heartbeat
-- (-1: unknown)], or [] if Redis has nothing of it.
local function look(name, args)
  local state, groups = redis.call('HMGET', name.state, 'epoch', 'position', 'missed'), groups_of(name)
  if not state[1] and #groups == 0 then return {} end
  local head, leased, returned = read_head(name), redis.call('HLEN', name.out), 0
  for _, group in ipairs(groups) do
    leased = leased + group.pending
    returned = returned + #redis.pcall('XPENDING', name.log, group.name, 'IDLE', LONG_AGO_MS, '-', '+', MAX_RETURNED)
  end
  local known = state[1] and (state[1] == head.epoch or on_line(name, state[1], head.epoch))
  local lag = known and head.offset - (number(state[2]) or 0) or head.offset
  local waiting, dead = redis.call('ZCARD', name.waiting), redis.call('XLEN', name.dead)
  return { lag + returned, leased - returned, waiting, dead, number(state[3]) or 0, idle_ms(name, groups) }
end

-- Remove a consumer with its waiting tasks and dead letters: <group> <quiet_ms> → [waiting, dead], or [ms since a heartbeat], and
-- no change, if that is less than quiet_ms. The caller may delete its state, which expires anyway.
local function remove(name, args)
  local quiet_ms = number(args[2])
  if #args ~= 2 or not quiet_ms then return invalid('expected a consumer and quiet_ms') end
  local groups = groups_of(name)
  local idle = idle_ms(name, groups)
  if idle >= 0 and idle < quiet_ms then return { idle } end
  local counts = { redis.call('ZCARD', name.waiting), redis.call('XLEN', name.dead) }
  for _, group in ipairs(groups) do redis.call('XGROUP', 'DESTROY', name.log, group.name) end
  redis.call('UNLINK', name.state, name.waiting, name.body, name.out, name.together, name.dead)
  return counts
end

local OOM, READS = { 'allow-oom' }, { 'no-writes' }

local function may_count(_, key)
  return may('ZADD', key, '0', '') or may('PEXPIRE', key, '1') or may('ZREM', key, '') or may('ZREMRANGEBYSCORE', key, '0', '0')
    or may('ZSCORE', key, '')
end

register('group_open', OOM, may_create, open)
register('group_take', {}, may_take, take)
register('group_take_known', OOM, may_take, function(name, args) return take(name, args, true) end)
register('group_settle', OOM, may_settle, settle)
register('group_renew', OOM, function(name) return may('ZADD', name.waiting, '0', '') end, renew)
register('group_tick', OOM, function(name) return may('HSET', name.state, 'clock', '') end, tick)
register('group_drop', OOM, may_drop, drop)
register('group_progress', READS, function(name) return may('XPENDING', name.log, name.group) end, progress)
register('group_look', READS, function(name) return may('XINFO', 'GROUPS', name.log) end, look)
register('group_remove', OOM, may_remove, remove)
-- Small and expiring, and called before work that has an answer.
remember('rate', OOM, may_count, 5, { 3, 4 }, ', limit, period_ms and a unique word', rate)
remember('window', OOM, nil, 3, { 3 }, ' and length_ms', window)
remember('put', OOM, nil, 4, { 4 }, ', a value and for_ms', store)
remember('record', {}, may_count, 5, { 4, 5 }, ', an outcome, for_ms and how many', record)
remember('lease', OOM, nil, 4, { 4 }, ', a holder and for_ms', lease)
redis.register_function{
  function_name = 'headgate_consumers_version', callback = function() return VERSION end, flags = { 'no-writes' },
}
