#!lua name=headgate
-- The log of a namespace, as one Redis function library: append to the log and publish, in one atomic step.
--
-- In: FCALL from a publisher in any language. Out: an entry in the namespace's stream, and a message on the topic's
-- channel (event.py reads it); for a topic under users.<user> also one on the channel of that user. Works on Redis 7.0 or newer
-- and on Valkey; every key is in the slot of the log's key.
--
--   FCALL    headgate_publish   1 hg:{N}:log <topic> <payload> [<id> [<by>]]               → [epoch, offset, duplicate 0/1]
--   FCALL    headgate_configure 1 hg:{N}:log <max_events> <max_age_ms> <max_payload_bytes> [<max_bytes, or ''> [sharded]]
--                                                → [epoch, offset, first, time_ms, version, lineage, server, replica 0/1]
--   FCALL_RO headgate_head      1 hg:{N}:log [<epoch>]
--                                                → the same; without lineage (nil), unless <epoch> is another one
--   FCALL    headgate_tick      1 hg:{N}:log [<epoch> <told> <elapsed_ms>]   → [epoch, clock, 0]
--   FCALL    headgate_trim      1 hg:{N}:log [<epoch> <told> <elapsed_ms>]   → [epoch, clock, events trimmed]
--   FCALL_RO headgate_version   0                → version of this library
--
-- Promises: offsets are contiguous from 1 in a log; an epoch and an offset name one event for ever; time never goes backwards
-- within a log; a refused call has written nothing. A call is refused with the error `HEADGATE <code> <JSON of the parts>`;
-- errors.py knows the codes.
--
-- Epochs. An epoch is written by one process of Redis, the one that began it. The process remembers the offset of the newest
-- event that it has written in it, and goes on in it only while the head says the same. In any other case (another process, after
-- a restart or a failover; the same one, with data that was put back) an append begins another epoch, and offsets go on. So
-- nothing is written twice at one epoch and offset, however much of its end a log has lost.
--
-- The head hash: epoch, nth (how many epochs of this log came before it), offset (of the newest event), time (its ms), first and
-- first_time (of the oldest event, as far as this library trimmed), sum (the bytes of all events that the log ever had) and
-- first_sum (of those below the oldest one, as far as this library looked), and the retention: max_events, max_age_ms,
-- max_payload_bytes, max_bytes; and sharded, if the gateways listen on a Cluster. Each entry has the sum up to itself, so that the
-- log's bytes are known unread. The epochs hash is the lineage: epoch → `<offset of its first event> <nth>`, of the newest
-- MAX_EPOCHS. The reply has it as a flat list.
--
-- Ages are measured by the clock of clock.lua, which does not follow a wall clock that somebody sets: how long an event is kept, and an
-- id remembered. An event whose time is not that of the clock has it as a further field. Gateways call `headgate_tick` every few
-- seconds, with the epoch and clock that the last call told them and how long ago that was by their own; without an epoch in the reply
-- there was none to tell. A Redis that is full refuses that, and then they call `headgate_trim`, which makes room: a publish that is
-- refused trims nothing.
--
-- Ids are remembered in hashes hg:{N}:id:<n>, by topic, user and id: <epoch>-<offset>-<clock>. A new one begins after IDEMPOTENCY_MS,
-- or after so many events, and the last but one is dropped. The head says which is the newest (ids), and when and behind which offset
-- it began (ids_time, ids_first), beside clock and shift, the clock's own.
--
-- A reply about the head names the server: a random token that this process made. A gateway that reads heads on one connection and
-- listens on another knows by it that both lead to the same process. (Redis' own run id would need the right to ask for it.)
--
-- Redis Cluster. Where the head says `sharded`, the library publishes with SPUBLISH: on the channel of the topic, on that of the user,
-- and on the feed channel `hg:{N}/feed`, the topic in front. While a slot moves key by key, some keys of a namespace are on one node
-- and some on another, and a client that follows ASK may call a function on either. A key that is elsewhere must not be taken for
-- one that is not there. So a step that decides by such a key makes sure that all are here, and else answers TRYAGAIN.
--
-- Raise VERSION with every change: an older library is replaced by a newer one, never the other way round.

local VERSION = 8

local HARD_MAX_PAYLOAD_BYTES = 1024 * 1024
local MAX_TOPIC_BYTES, MAX_TOPIC_WORDS = 255, 8
local MAX_ID_LENGTH = 128
local MAX_BY_LENGTH = 64
local MAX_NAMESPACE_LENGTH = 64
local MAX_DEPTH = 64
local IDEMPOTENCY_MS = 300000
-- A hash of ids holds those of so many events at most: the more, the more bytes the log may have.
local LEAST_IDS, LOG_BYTES_PER_ID = 65536, 4096
-- A hash of ids that nobody drops any more ends by itself, long after its ids do not count.
local FORGOTTEN_MS = 2 * 86400000
-- Retention until a gateway has configured the log.
local DEFAULT_MAX_EVENTS, DEFAULT_MAX_AGE_MS, DEFAULT_MAX_PAYLOAD_BYTES = 10000, 600000, 65536
local DEFAULT_MAX_BYTES = 256 * 1024 * 1024
local LEAST_MAX_BYTES, GREATEST_MAX_BYTES = 1024 * 1024, 1e14
-- What an entry takes beside its payload: about 100 bytes of the stream, and its topic and id.
local ENTRY_BYTES = 128
-- The most that one publish trims, so that a retention that was just lowered, or a log that was idle, is worked off in
-- small steps: by age each entry must be read, by bytes a few, by count none.
local MAX_AGED_PER_CALL, MAX_SURPLUS_PER_CALL, MAX_HEAVY_PER_CALL = 4, 100, 1000
-- By age, a call that only trims.
local MAX_AGED_PER_TRIM = 100
-- One for each time that Redis was started or failed over. A position in an older epoch counts as one in a log that is lost.
local MAX_EPOCHS = 256
-- The namespaces (of all databases) whose newest offset this process remembers. Beyond that it forgets, which costs an epoch each.
local MAX_REMEMBERED = 10000

-- Refusals ------------------------------------------------------------------------------------------------------------

local function refusal(code, parts)
  return redis.error_reply('HEADGATE ' .. code .. ' ' .. cjson.encode(parts))
end

-- The text of a caller may be hostile or huge; an error line must stay printable and short.
local function shown(text)
  text = string.gsub(text, '[^\32-\126]', '?')
  return #text > 80 and string.sub(text, 1, 80) .. '...' or text
end

-- Whole numbers above 1e14 would be printed with an exponent by tostring.
local function whole(number)
  return string.format('%.0f', number)
end

-- The grammar: topic.py, event.py and layout.py say the same -------------------------------------------------------------

local function topic_fault(topic)
  if topic == '' then return 'it is empty' end
  if #topic > MAX_TOPIC_BYTES then return 'longer than ' .. MAX_TOPIC_BYTES .. ' bytes' end
  if string.find(topic, '[^A-Za-z0-9_.-]') or string.find('.' .. topic .. '.', '..', 1, true) then
    return 'words are letters, digits, _ and -, joined by single dots; wildcards are for patterns'
  end
  local _, dots = string.gsub(topic, '%.', '')
  if dots + 1 > MAX_TOPIC_WORDS then
    return (dots + 1) .. ' words, at most ' .. MAX_TOPIC_WORDS .. ' are allowed'
  end
end

local function is_event_id(id)
  return #id >= 1 and #id <= MAX_ID_LENGTH and not string.find(id, '[^A-Za-z0-9_.:~-]')
end

local function is_by(by)
  return #by >= 1 and #by <= MAX_BY_LENGTH and not string.find(by, '[^A-Za-z0-9_-]')
end

local function is_utf8(text)
  local at = string.find(text, '[\128-\255]')
  while at do
    local next_at = string.match(text, '^[\194-\223][\128-\191]()', at)
      or string.match(text, '^\224[\160-\191][\128-\191]()', at)
      or string.match(text, '^\237[\128-\159][\128-\191]()', at)
      or string.match(text, '^[\225-\236\238\239][\128-\191][\128-\191]()', at)
      or string.match(text, '^\240[\144-\191][\128-\191][\128-\191]()', at)
      or string.match(text, '^[\241-\243][\128-\191][\128-\191][\128-\191]()', at)
      or string.match(text, '^\244[\128-\143][\128-\191][\128-\191]()', at)
    if not next_at then return false end
    at = string.find(text, '[\128-\255]', next_at)
  end
  return true
end

-- cjson lets control characters stand in strings; JSON does not.
local function has_raw_control(text)
  if not string.find(text, '%c') then return false end
  if string.find(text, '[%z\1-\8\11\12\14-\31]') then return true end
  for inside in string.gmatch((string.gsub(text, '\\.', '')), '"([^"]*)"') do
    if string.find(inside, '[%z\1-\31]') then return true end
  end
  return false
end

-- An instance of our own (made at the first call: cjson is not there while a library loads), so that strictness and depth
-- are not set for other libraries. It is still a little laxer than JSON in numbers (`1.`); the gateway checks once more.
local strict_json

local function json_fault(payload)
  if not strict_json then
    strict_json = cjson.new()
    strict_json.decode_invalid_numbers(false)
    strict_json.decode_max_depth(MAX_DEPTH)
  end
  local valid, fault = pcall(strict_json.decode, payload)
  if not valid then return shown(tostring(fault)) end
  if has_raw_control(payload) then return 'a control character in a string' end
  if not is_utf8(payload) then return 'not UTF-8' end
end

-- The names of layout.py, built from the log's key. Returns nil and a refusal for any other key.
local function names(keys)
  local namespace = #keys == 1 and string.match(keys[1], '^hg:{([A-Za-z0-9_-]+)}:log$')
  if not namespace or #namespace > MAX_NAMESPACE_LENGTH then
    return nil, refusal('unknown_namespace', { namespace = shown(keys[1] or ''), expected = 'one key: hg:{namespace}:log' })
  end
  local prefix = 'hg:{' .. namespace .. '}:'
  local users = 'hg:{' .. namespace .. '}/users.'
  return {
    log = keys[1], head = prefix .. 'head', epochs = prefix .. 'epochs', id = prefix .. 'id:', channel = prefix, users = users,
    feed = 'hg:{' .. namespace .. '}/feed',
  }
end

-- A slot that moves ----------------------------------------------------------------------------------------------------

-- The answer to an error reply: while the slot moves, that the caller is to try again. Redis has no code for that inside a function.
local function try_again(reply)
  if string.find(reply.err, 'non local key', 1, true) then
    return redis.error_reply('TRYAGAIN the slot of this namespace is moving to another node')
  end
  return reply
end

-- Whether this is a node of a Cluster; nil until a user asks who may know it.
local in_cluster

-- Nil if every key of the log is here, or is nowhere; else the answer. Redis refuses a command of several keys on both of the nodes
-- between which a slot is moving, if one of them is missing there. With a head that knows where ids are: of the ids too, and of the
-- hash that the next one may begin.
local function moving(name, head)
  if in_cluster == nil and redis.acl_check_cmd('INFO', 'cluster') then
    in_cluster = string.find(redis.call('INFO', 'cluster'), 'cluster_enabled:1', 1, true) ~= nil
  end
  -- A user who may ask neither is not in a Cluster, where publishing takes that right.
  if in_cluster == false or not redis.acl_check_cmd('MGET', name.log, name.head, name.epochs) then return end
  local found
  if head and head.own then
    local ids = head.own.ids
    found = redis.pcall(
      'MGET', name.log, name.head, name.epochs, name.id .. whole(ids - 1), name.id .. whole(ids), name.id .. whole(ids + 1)
    )
  else
    found = redis.pcall('MGET', name.log, name.head, name.epochs)
  end
  return found.err and try_again(found)
end

-- The head --------------------------------------------------------------------------------------------------------------

-- Anything but a plain number (a hand-made head) counts as not there. 15 digits are exact in Lua's numbers.
local function number(text)
  return text and #text <= 15 and string.find(text, '^%d+$') and tonumber(text) or nil
end

-- Returns nil and an error if the head cannot be read.
local function read_head(name)
  local raw = redis.pcall(
    'HMGET', name.head, 'epoch', 'offset', 'time', 'first', 'first_time', 'max_events', 'max_age_ms', 'max_payload_bytes', 'nth',
    'sum', 'first_sum', 'max_bytes', 'sharded'
  )
  if raw.err then return nil, try_again(raw) end
  local head = { epoch = raw[1] or '', offset = number(raw[2]), time = number(raw[3]) or 0, first_time = number(raw[5]) or 0 }
  head.exists = head.offset and #head.epoch == 16 and not string.find(head.epoch, '[^0-9a-f]')
  head.first = math.min(number(raw[4]) or 1, (head.offset or 0) + 1)
  head.max_events = number(raw[6]) or DEFAULT_MAX_EVENTS
  head.max_age_ms = number(raw[7]) or DEFAULT_MAX_AGE_MS
  head.max_payload_bytes = number(raw[8]) or DEFAULT_MAX_PAYLOAD_BYTES
  -- Of a log that an older library began, all there is counts as its first epoch.
  head.nth = number(raw[9]) or 0
  head.sum, head.first_sum, head.max_bytes = number(raw[10]) or 0, number(raw[11]) or 0, number(raw[12]) or DEFAULT_MAX_BYTES
  head.sharded = raw[13] == '1'
  return head
end

local function wall_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- <clock.lua>

-- The newest offset that the stream ever held: an XADD must go above it. 0 without a stream; `may_open` comes first, or a right
-- that is missing would be taken for that.
local function newest_in_stream(name)
  local found = redis.pcall('XINFO', 'STREAM', name.log)
  for index = 1, #found, 2 do
    if found[index] == 'last-generated-id' then return tonumber(string.match(found[index + 1], '^%d+')) end
  end
  return 0
end

-- By epoch, what this process knows of a log that it writes: offset (of the newest event that it has written), clock, and where ids
-- are. Kept for as long as this library is loaded.
local written, remembered = {}, 0

local function forget(epoch)
  if written[epoch] then
    written[epoch] = nil
    remembered = remembered - 1
  end
end

local function remember(head)
  if not written[head.epoch] then
    if remembered >= MAX_REMEMBERED then written, remembered = {}, 0 end
    remembered = remembered + 1
  end
  written[head.epoch] = head.own
  head.own.offset = head.offset
end

local function needs_epoch(head)
  local own = written[head.epoch]
  return head.exists and not (own and own.offset == head.offset)
end

-- Read the time, and what this process knows of the log; the head has what another process knew.
local function read_own(name, head)
  local wall, own = wall_ms(), written[head.epoch]
  if not own or needs_epoch(head) then
    local raw = redis.call('HMGET', name.head, 'clock', 'shift', 'ids', 'ids_time', 'ids_first')
    local shift = raw[2] and string.find(raw[2], '^-?%d+$') and #raw[2] <= 15 and tonumber(raw[2]) or 0
    if own then own.clock.saved = nil end
    own = {
      clock = own and own.clock or start_clock(wall, number(raw[1]), shift),
      ids = number(raw[3]) or 0, ids_time = number(raw[4]) or 0, ids_first = number(raw[5]) or 0,
    }
  end
  head.own = own
  return wall
end

local function read_time(name, head, told, elapsed)
  local wall = read_own(name, head)
  head.clock = read_clock(head.own.clock, wall, told, elapsed)
  head.time = math.max(wall, head.time)
end

-- The address of a fresh table differs between processes, TIME within one.
local function new_epoch(name, head)
  local stamp = redis.call('TIME')
  return string.sub(redis.sha1hex(stamp[1] .. '.' .. stamp[2] .. name.log .. tostring({}) .. head.epoch), 1, 16)
end

-- A new log: nothing of the old one may be taken for the new one's, so the stream goes. Returns an error, or nil.
local function begin_log(name, head)
  local elsewhere = moving(name, head)
  if elsewhere then return elsewhere end
  redis.call('UNLINK', name.log)
  forget(head.epoch)
  head.began = 'log'
  head.epoch = new_epoch(name, head)
  head.offset, head.first, head.first_time = 0, 1, head.clock
  head.nth = 0
  head.sum, head.first_sum = 0, 0
end

-- A new epoch of the same log: offsets go on. Returns an error, or nil.
local function begin_epoch(name, head)
  local elsewhere = moving(name, head)
  if elsewhere then return elsewhere end
  forget(head.epoch)
  head.began, head.before = 'epoch', head.epoch
  head.epoch = new_epoch(name, head)
  head.nth = head.nth + 1
  head.begins_at = head.offset + 1
end

-- Forget the oldest epochs, where this user may.
local function prune_epochs(name)
  if not (redis.acl_check_cmd('HGETALL', name.epochs) and redis.acl_check_cmd('HDEL', name.epochs, '')) then return end
  local flat = redis.call('HGETALL', name.epochs)
  if #flat <= 2 * MAX_EPOCHS then return end
  local newest = 0
  for index = 2, #flat, 2 do newest = math.max(newest, tonumber(string.match(flat[index], '%d+$')) or 0) end
  for index = 1, #flat, 2 do
    if (tonumber(string.match(flat[index + 1], '%d+$')) or 0) <= newest - MAX_EPOCHS then
      redis.call('HDEL', name.epochs, flat[index])
    end
  end
end

-- Keep for another process what this one knows, now and then.
local function save_own(name, own)
  if not own.unsaved and not is_unsaved(own.clock) then return end
  redis.call(
    'HSET', name.head, 'clock', whole(own.clock.last), 'shift', whole(own.clock.shift),
    'ids', whole(own.ids), 'ids_time', whole(own.ids_time), 'ids_first', whole(own.ids_first)
  )
  own.unsaved, own.clock.saved = nil, own.clock.last
end

-- Store the head, and the epoch if it has just begun: called when nothing can be refused any more.
local function write_head(name, head, ...)
  redis.call(
    'HSET', name.head, 'epoch', head.epoch, 'offset', head.offset_text or whole(head.offset),
    'time', head.time_text or whole(head.time),
    'first', whole(head.first), 'first_time', whole(head.first_time),
    'sum', whole(head.sum), 'first_sum', whole(head.first_sum), ...
  )
  save_own(name, head.own)
  if head.began then
    if head.began == 'epoch' and not redis.call('HMGET', name.epochs, head.before)[1] then
      -- A library without epochs has begun this log: nothing of a log before it is on its line.
      redis.call('UNLINK', name.epochs)
      redis.call('HSET', name.epochs, head.before, '1 0')
      head.nth = 1
    end
    redis.call('HSET', name.head, 'nth', whole(head.nth))
    if head.began == 'log' then
      redis.call('UNLINK', name.epochs)
      redis.call('HSET', name.epochs, head.epoch, '1 0')
    else
      redis.call('HSET', name.epochs, head.epoch, whole(head.begins_at) .. ' ' .. whole(head.nth))
      prune_epochs(name)
    end
  end
  remember(head)
end

-- The token of this process, kept for as long as this library is loaded; empty for a user who may not make one, and is the first.
local server

local function this_server()
  if not server then
    if not redis.acl_check_cmd('TIME') then return '' end
    local stamp = redis.call('TIME')
    server = string.sub(redis.sha1hex(stamp[1] .. '.' .. stamp[2] .. tostring({}) .. 'server'), 1, 16)
  end
  return server
end

-- Whether this server is a replica, as far as this user may know. A primary that is made a replica keeps its connections.
local function is_replica()
  if not redis.acl_check_cmd('INFO', 'replication') then return 0 end
  return string.find(redis.call('INFO', 'replication'), 'role:slave', 1, true) and 1 or 0
end

-- [epoch, offset of the newest event, offset of the oldest one that can still be read (offset + 1: none), time, VERSION, lineage or
-- nil, server, replica]: a listener must know, at each position, that the library in force is one that publishes on the channels
-- of users, and that it listens to the server that has this head.
local function position(name, head, with_lineage)
  local oldest = redis.call('XRANGE', name.log, '-', '+', 'COUNT', 1)[1]
  local first = oldest and tonumber(string.match(oldest[1], '^%d+')) or head.offset + 1
  local lineage = with_lineage and redis.pcall('HGETALL', name.epochs)
  if lineage and lineage.err then return try_again(lineage) end
  local elsewhere = (not oldest or lineage and #lineage == 0) and moving(name)
  if elsewhere then return elsewhere end
  return { head.epoch, head.offset, first, head.time, VERSION, lineage or false, this_server(), is_replica() }
end

-- Retention -------------------------------------------------------------------------------------------------------------

-- The bytes of all events below the oldest one from an offset on; nil without one, or if an older library has written that, and
-- counted nothing.
local function bytes_below(name, offset)
  local oldest = redis.call('XRANGE', name.log, whole(offset), '+', 'COUNT', 1)[1]
  local fields = oldest and oldest[2]
  local sum = fields and number(fields[10])
  return sum and sum - #fields[2] - #fields[8] - ENTRY_BYTES
end

-- When an event was written, by the clock.
local function clock_of(fields)
  return number(fields[11] == 'clock' and fields[12] or fields[6]) or 0
end

-- Trim by bytes: return the oldest offset, from one on, that may stay. The newest always does. Where it is neither the first nor the
-- second, as when a large event pushes out many small ones, halving finds it.
local function lighten(name, head, first)
  local low, high = first, math.min(head.offset, first + MAX_HEAVY_PER_CALL)
  local function fits(offset)
    local below = bytes_below(name, offset)
    if not below or head.sum - below > head.max_bytes then return false end
    head.first_sum = math.max(below, head.first_sum)
    return true
  end
  if low >= high or fits(low) then return low end
  low = low + 1
  while low < high do
    local middle = low == first + 1 and low or math.floor((low + high) / 2)
    if fits(middle) then high = middle else low = middle + 1 end
  end
  head.first_sum = bytes_below(name, low) or head.first_sum
  return low
end

-- Trim by count, exactly, by age and by bytes. Reads nothing unless the oldest event is too old, or the log may be too heavy.
local function trim(name, head, max_aged)
  local first = math.max(head.first, math.min(head.offset - head.max_events + 1, head.first + MAX_SURPLUS_PER_CALL))
  if head.clock - head.first_time > head.max_age_ms then
    for _ = 1, max_aged do
      local oldest = redis.call('XRANGE', name.log, whole(first), '+', 'COUNT', 1)[1]
      if not oldest then
        first, head.first_time = head.offset + 1, head.clock
        break
      end
      head.first_time = clock_of(oldest[2])
      first = tonumber(string.match(oldest[1], '^%d+'))
      if head.clock - head.first_time <= head.max_age_ms then break end
      first = first + 1
    end
  end
  if head.sum - head.first_sum > head.max_bytes then first = lighten(name, head, first) end
  if first > head.first then
    redis.call('XTRIM', name.log, 'MINID', '=', whole(first))
    head.first = first
  end
end

-- Publish -----------------------------------------------------------------------------------------------------------------

-- A right that is missing for a later write must refuse before the first one, or a part of the step would stand.
local function may(command, name, ...)
  if redis.acl_check_cmd(command, name, ...) then return end
  return redis.error_reply('NOPERM this user may not run ' .. command .. ' on ' .. name)
end

local function may_open(name)
  if not redis.acl_check_cmd('XINFO', 'STREAM', name.log) then
    return redis.error_reply('NOPERM this user may not run XINFO STREAM on ' .. name.log)
  end
  return may('UNLINK', name.log) or may('UNLINK', name.epochs) or may('HSET', name.head, 'offset', '1')
    or may('HSET', name.epochs, '', '')
end

-- The user whose topic it is: the second word behind `users`.
local function user_of(topic)
  return string.match(topic, '^users%.([^.]+)')
end

local function may_publish(name, head, topic, id, user)
  local publish = head.sharded and 'SPUBLISH' or 'PUBLISH'
  return may('XADD', name.log, '1-0', 'topic', '') or may('XTRIM', name.log, 'MINID', '1') or may_open(name)
    or may(publish, name.channel .. topic, '') or id and may('HSET', name.id .. '1', '', '')
    or user and may(publish, name.users .. user, '')
    or head.sharded and (may(publish, name.feed, '') or may('MGET', name.log, name.head))
end

-- An id counts for its topic, and for the user on whose behalf it is published: whoever may publish one topic, or guesses an id,
-- must not make another's event look like a repetition. Neither topics nor `by` hold a colon or a slash.
local function id_of(topic, id, by)
  return topic .. ':' .. (by and by .. '/' or '') .. id
end

-- The receipt of an id that counts: [epoch, offset, the key where it is, its text], or an empty table. Returns nil and an error if that
-- cannot be known here.
local function recall(name, head, id)
  -- In a Cluster an id that is on the other node must not be taken for a new one, nor be new where its hash cannot begin.
  local elsewhere = (in_cluster or head.sharded) and moving(name, head)
  if elsewhere then return nil, elsewhere end
  local key = name.id .. whole(head.own.ids)
  local found = redis.pcall('HMGET', key, id)
  if not found.err and not found[1] and head.own.ids ~= head.own.oldest_ids then
    key = name.id .. whole(head.own.ids - 1)
    found = redis.pcall('HMGET', key, id)
  end
  if found.err then return nil, try_again(found) end
  local receipt = found[1]
  if not receipt then return {} end
  local epoch, offset, told = string.match(receipt, '^(%x+)-(%d+)-(%d+)$')
  if not told or head.clock - tonumber(told) >= IDEMPOTENCY_MS then return {} end
  if epoch ~= head.epoch then
    -- Receipt and event are written in one step, so they are lost together; but a receipt outlives a log that was replaced.
    local known = redis.pcall('HMGET', name.epochs, epoch)
    if known.err then return nil, try_again(known) end
    if not known[1] then return {}, moving(name) end
  end
  return { epoch, tonumber(offset), key, receipt }
end

-- Begin a new hash of ids if it is time, and drop those in which no id counts any more: this user, or the next one who may.
local function turn_ids(name, head)
  local own = head.own
  local age = head.clock - own.ids_time
  if age < IDEMPOTENCY_MS and head.offset - own.ids_first < math.max(LEAST_IDS, head.max_bytes / LOG_BYTES_PER_ID) then return end
  if may('UNLINK', name.id .. '1') then return end
  redis.call('UNLINK', name.id .. whole(own.ids - 1))
  if age >= 2 * IDEMPOTENCY_MS then redis.call('UNLINK', name.id .. whole(own.ids)) end
  own.ids, own.ids_time, own.ids_first, own.unsaved = own.ids + 1, head.clock, head.offset, true
  own.oldest_ids = age >= 2 * IDEMPOTENCY_MS and own.ids or own.ids - 1
  return true
end

local function remember_id(name, head, id)
  local turned = turn_ids(name, head)
  local key = name.id .. whole(head.own.ids)
  redis.call('HSET', key, id, head.epoch .. '-' .. head.offset_text .. '-' .. whole(head.clock))
  if turned and redis.acl_check_cmd('PEXPIRE', key, '1') then redis.call('PEXPIRE', key, FORGOTTEN_MS) end
end

-- Append at the next offset. A stream that is ahead of its head (one of them was lost, or restored) is replaced by a new log.
local function append(name, head, topic, id, payload)
  local first = head.offset == 0
  local function add()
    head.offset, head.sum = head.offset + 1, head.sum + #topic + #payload + ENTRY_BYTES
    -- The texts that are needed again and again.
    head.offset_text, head.time_text = whole(head.offset), whole(head.time)
    head.event_id = id or head.epoch .. '-' .. head.offset_text
    local function entry()
      local place, sum = head.offset_text .. '-0', whole(head.sum)
      if head.clock == head.time then
        return place, 'topic', topic, 'id', head.event_id, 'time', head.time_text, 'data', payload, 'sum', sum
      end
      return place, 'topic', topic, 'id', head.event_id, 'time', head.time_text, 'data', payload, 'sum', sum,
        'clock', whole(head.clock)
    end
    if first then return redis.pcall('XADD', name.log, entry()) end
    -- This process may have written the epoch before the slot went to another node. Now the slot comes back, the head first.
    local added = redis.pcall('XADD', name.log, 'NOMKSTREAM', entry())
    return added or moving(name, head) or redis.pcall('XADD', name.log, entry())
  end
  local added = add()
  if added.err and newest_in_stream(name) >= head.offset then
    local refused = begin_log(name, head)
    if refused then return refused end
    first = true
    added = add()
  end
  return added.err and added or nil
end

local function publish(keys, args)
  local name, wrong_key = names(keys)
  if not name then return wrong_key end
  local topic, payload, id, by = args[1], args[2], args[3], args[4]
  if #args < 2 or #args > 4 then
    return refusal('invalid_request', { reason = 'expected topic, payload, perhaps an id, and then perhaps whose it is' })
  end
  local fault = topic_fault(topic)
  if fault then return refusal('invalid_topic', { topic = shown(topic), reason = fault }) end
  if id and not is_event_id(id) then
    return refusal('invalid_event', {
      field = 'id', reason = 'expected 1 to ' .. MAX_ID_LENGTH .. ' characters of A-Z a-z 0-9 _ . : ~ -',
    })
  end
  if by and not is_by(by) then
    return refusal('invalid_event', { field = 'by', reason = 'expected 1 to ' .. MAX_BY_LENGTH .. ' characters of A-Z a-z 0-9 _ -' })
  end
  local head, unreadable = read_head(name)
  if not head then return unreadable end
  local limit = math.min(head.max_payload_bytes, HARD_MAX_PAYLOAD_BYTES)
  if #payload > limit then
    return refusal('payload_too_large', { size = #payload, limit = limit, where = 'bus' })
  end
  fault = json_fault(payload)
  if fault then return refusal('not_serializable', { reason = fault }) end

  read_time(name, head)
  local own_id = id and id_of(topic, id, by)
  if own_id and head.exists then
    local known, unknown = recall(name, head, own_id)
    if unknown then return unknown end
    local epoch, offset, key, receipt = unpack(known)
    if epoch then
      -- A write of the same, so that a publisher that waits for replicas behind it (WAIT) waits for the event too.
      if not may('HSET', key, '', '') then redis.call('HSET', key, own_id, receipt) end
      return { epoch, offset, 1 }
    end
  end

  local user = user_of(topic)
  local refused = may_publish(name, head, topic, id, user)
  if refused then return refused end
  if not head.exists then
    refused = begin_log(name, head)
  elseif needs_epoch(head) then
    refused = begin_epoch(name, head)
  end
  if refused then return refused end
  refused = append(name, head, topic, id, payload)
  if refused then return refused end
  trim(name, head, MAX_AGED_PER_CALL)
  if own_id then remember_id(name, head, own_id) end
  write_head(name, head)
  local message =
    table.concat({ 'hg1', head.epoch, head.offset_text, head.time_text, head.event_id }, ' ') .. '\n' .. payload
  local publish = head.sharded and 'SPUBLISH' or 'PUBLISH'
  redis.call(publish, name.channel .. topic, message)
  -- With a pattern for every user of a gateway, Redis would compare each event with all of them: their channel costs nothing.
  if user then redis.call(publish, name.users .. user, topic .. '\n' .. message) end
  -- There are no sharded patterns.
  if head.sharded then redis.call(publish, name.feed, topic .. '\n' .. message) end
  return { head.epoch, head.offset, 0 }
end

-- Configure, head, version ------------------------------------------------------------------------------------------------

local function bounded(text, low, high)
  local value = number(text)
  return value and value >= low and value <= high and value
end

-- Store the retention, and make sure that the log has an epoch which is this process's: a gateway calls this at its start, and so
-- learns at once which line the next event will be on.
local function configure(keys, args)
  local name, wrong_key = names(keys)
  if not name then return wrong_key end
  local max_events, max_age_ms = bounded(args[1], 1, 10000000), bounded(args[2], 1, 30 * 86400000)
  local max_payload_bytes = bounded(args[3], 1, HARD_MAX_PAYLOAD_BYTES)
  local has_max_bytes = (args[4] or '') ~= ''
  local max_bytes = not has_max_bytes or bounded(args[4], LEAST_MAX_BYTES, GREATEST_MAX_BYTES)
  local sharded = args[5] == 'sharded'
  if not (#args >= 3 and #args <= (sharded and 5 or 4) and max_events and max_age_ms and max_payload_bytes and max_bytes) then
    return refusal('invalid_request', {
      reason = 'expected max_events 1 to 10000000, max_age_ms 1 to 30 days, max_payload_bytes 1 to ' .. HARD_MAX_PAYLOAD_BYTES
        .. ', and perhaps max_bytes from ' .. LEAST_MAX_BYTES .. ' and then perhaps sharded',
    })
  end
  local refused = may_open(name)
  if refused then return refused end
  local head, unreadable = read_head(name)
  if not head then return unreadable end
  read_time(name, head)
  if not head.exists or newest_in_stream(name) > head.offset then
    refused = begin_log(name, head)
  elseif needs_epoch(head) then
    refused = begin_epoch(name, head)
  end
  if refused then return refused end
  write_head(
    name, head, 'max_events', whole(max_events), 'max_age_ms', whole(max_age_ms), 'max_payload_bytes', whole(max_payload_bytes),
    'max_bytes', whole(has_max_bytes and max_bytes or head.max_bytes), 'sharded', sharded and '1' or '0'
  )
  return position(name, head, true)
end

-- Where the log stands. Creates nothing: without a log the epoch is empty and the offset 0.
local function head_position(keys, args)
  local name, wrong_key = names(keys)
  if not name then return wrong_key end
  local head, unreadable = read_head(name)
  if not head then return unreadable end
  if not head.exists then
    return moving(name) or { '', 0, 1, 0, VERSION, false, this_server(), is_replica() }
  end
  return position(name, head, args[1] and args[1] ~= head.epoch)
end

-- Upkeep ------------------------------------------------------------------------------------------------------------------

-- Make the time known: in `epoch` a gateway was told `told` by the clock, `elapsed` ms ago by its own. Without room, also trim.
local function upkeep(keys, args, with_trim)
  local name, wrong_key = names(keys)
  if not name then return wrong_key end
  local epoch, told, elapsed = args[1], number(args[2]), number(args[3])
  if #args ~= 0 and not (#args == 3 and told and elapsed) then
    return refusal('invalid_request', { reason = 'expected nothing more, or an epoch, a time that was told in it, and how long ago' })
  end
  local head, unreadable = read_head(name)
  if not head then return unreadable end
  -- Before another process of Redis has begun its epoch, only the one before knows the time.
  if not head.exists or needs_epoch(head) then return { '', 0, 0 } end
  local refused = may('HSET', name.head, 'clock', '')
    or with_trim and (may('XTRIM', name.log, 'MINID', '1') or may('UNLINK', name.id .. '1'))
  if refused then return refused end
  read_own(name, head)
  local elsewhere = in_cluster and moving(name, head)
  if elsewhere then return elsewhere end
  if epoch and epoch ~= head.epoch and not redis.call('HMGET', name.epochs, epoch)[1] then told, elapsed = nil, nil end
  read_time(name, head, told, elapsed)
  local before = head.first
  if with_trim then
    trim(name, head, MAX_AGED_PER_TRIM)
    turn_ids(name, head)
    redis.call(
      'HSET', name.head, 'first', whole(head.first), 'first_time', whole(head.first_time), 'first_sum', whole(head.first_sum)
    )
  end
  save_own(name, head.own)
  return { head.epoch, head.clock, head.first - before }
end

redis.register_function('headgate_publish', publish)
-- A Redis that is full must let these in: it stays full without a trim, and a gateway that cannot begin does not trim.
redis.register_function{ function_name = 'headgate_configure', callback = configure, flags = { 'allow-oom' } }
redis.register_function{
  function_name = 'headgate_trim', callback = function(keys, args) return upkeep(keys, args, true) end, flags = { 'allow-oom' },
}
redis.register_function('headgate_tick', function(keys, args) return upkeep(keys, args, false) end)
redis.register_function{ function_name = 'headgate_head', callback = head_position, flags = { 'no-writes' } }
redis.register_function{
  function_name = 'headgate_version', callback = function() return VERSION end, flags = { 'no-writes' },
}
