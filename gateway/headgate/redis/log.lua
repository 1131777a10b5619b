#!lua name=headgate
-- The log of a namespace, as one Redis function library: append to the log and publish, in one atomic step.
--
-- In: FCALL from a publisher in any language. Out: an entry in the namespace's stream, and a message on the topic's
-- channel (events/event.py reads it), or, for a topic under users.<user>, on the channel of that user. Works on Redis 7.0 or newer
-- and on Valkey; every key is in the slot of the log's key.
--
--   FCALL    headgate_publish   1 hg:{N}:log <topic> <payload> [<id> [<by>]]               → [epoch, offset, duplicate 0/1]
--   FCALL    headgate_append    1 hg:{N}:log <topic> <payload> [<id> [<by>]]               → '<epoch> <offset> <duplicate 0/1>'
--   FCALL    headgate_append_batch 1 hg:{N}:log (<topic> <payload> <id or ''> <by or ''>)…  → lines, in the order of the events
--   FCALL    headgate_configure 1 hg:{N}:log <max_events> <max_age_ms> <max_payload_bytes> [<max_bytes, or ''> [<sharded, or ''> [<database> [users]]]]
--                                                → [epoch, offset, first, time_ms, version, lineage, server, replica 0/1, database]
--   FCALL_RO headgate_head      1 hg:{N}:log [<epoch> [<offset> [<epoch> <offset>]…] [users]]
--                                                → the same; without lineage (nil), unless <epoch> is another one
--   FCALL    headgate_tick      1 hg:{N}:log [<epoch> <told> <elapsed_ms>]   → [epoch, clock, 0]
--   FCALL    headgate_trim      1 hg:{N}:log [<epoch> <told> <elapsed_ms>]   → [epoch, clock, events trimmed]
--   FCALL_RO headgate_inbox     1 hg:{N}:log <user> <before, or ''> <limit> <archived, or ''>
--                                                → a page of a user's inbox (inbox.lua)
--   FCALL    headgate_write     1 <key> HSET|RPUSH|ZADD <argument>…   → the reply of the command, which also a full Redis runs
--   FCALL_RO headgate_version   0 [server [<epoch> <offset>]… [<server that is known>]]
--                                                → version of this library; with `server`: [version, server, replica 0/1]
--
-- Promises: offsets are contiguous from 1 in a log. An epoch and an offset name one event for ever, except after a revert that
-- no client has reported yet (below). Time never goes backwards within a log. A refused call has written nothing; its error is
-- `HEADGATE <code> <JSON of the parts>` (errors.py has the codes).
--
-- Two functions lead to one step. `headgate_publish` is for every language, and refuses a payload that is not strict JSON in
-- UTF-8. `headgate_append` trusts its caller to have checked the payload, and checks everything else: the key, the topic, the
-- id and all sizes. An invalid payload does no harm there, because each gateway checks every message and every entry, and sets
-- a bad one aside (quarantine). An operator grants each by its name (`+fcall|headgate_publish`; docs/operations.md).
-- `headgate_append` replies with one text, because a list costs Redis 0.9 µs more. Decision 22 has the measurements.
--
-- `headgate_append_batch` treats each of its events like `headgate_append`. A refused event does not stop the others, and takes
-- no offset. The events follow each other, with none of another caller in between. All share one read of the time, the head and
-- the ids, and one write of ids and head. A line of the reply is `<epoch> <offset> <n>`: n new events from that offset on, or,
-- with 0, a duplicate. A refused event has the line `-<error>`. While a slot moves, the whole rest is refused, so that no event
-- overtakes another. Decision 32 has the measurements.
--
-- Epochs. Only the process of Redis that began an epoch writes it. The process remembers the offset of the newest event that it
-- wrote in the epoch, and continues only while the head has the same offset. Otherwise (in another process, after a restart or
-- a failover, or in the same one with restored data) an append begins another epoch, and offsets continue. So no epoch and
-- offset are written twice, however much of its end a log has lost.
--
-- A snapshot of the machine, or of the process, reverts data and memory together, and this library cannot detect that. But an offset that
-- the process of its epoch does not remember proves it. So a gateway sends the newest offsets that it knows, of the last epochs, with
-- each request for the head. A publisher sends those of its receipts with `headgate_version`, first on each new connection. The process
-- then forgets the epoch, and the next append begins another one. Only a report of a user who may write the head counts.
--
-- The head hash: epoch, nth (the number of earlier epochs of this log), offset (of the newest event), time (its ms), first and first_time
-- (of the oldest event, as far as this library trimmed), sum (the bytes of all events that the log ever had) and first_sum (of the events
-- before the oldest one, as far as this library read), and the retention: max_events, max_age_ms, max_payload_bytes, max_bytes; and
-- sharded, if the gateways listen on a Cluster. Each entry has the sum up to itself, which gives the log's bytes without reading it. An
-- event writes only offset and time, and a usual one only the offset (`append_usual`), because entries have the time. The process that
-- writes an epoch has all the rest in memory. It saves the rest when an epoch begins, with the clock every ten seconds, and with the
-- retention. Another process begins another epoch, and counts again from the oldest and the newest entry (`recount`). The epochs hash is
-- the lineage: epoch → `<offset of its first event> <nth>`, for the newest MAX_EPOCHS. The reply has it as a flat list.
--
-- The clock of clock.lua measures ages: how long to keep an event, and to remember an id. It does not follow changes of the wall clock.
-- An event whose time differs from that clock has it as a further field. Gateways call `headgate_tick` every few seconds, with the epoch
-- and clock of the last reply and the time since then by their own clock. A reply without an epoch has no clock either. A full Redis
-- refuses `headgate_tick`. Gateways then call `headgate_trim`, which makes room, because a refused publish trims nothing.
--
-- Hashes hg:{N}:id:<n> remember ids, by topic, user and id: <epoch>-<offset>-<clock>. A new hash begins after IDS_MS, or when
-- the newest holds its most bytes, and the last but one is dropped. The head has the number of the newest (ids), its start and
-- the offset before it (ids_time, ids_first), its bytes and its most bytes (ids_bytes, ids_most), how long an id counts at the
-- present rate (ids_hold, ms), and the clock's own fields clock and shift.
--
-- An id may ask to be remembered for longer, up to a day (`id_for_s`, the last part of `by`), because an outbox retries after hours. Such
-- ids are also in the hash hg:{N}:id:day<n> of the day by the clock, whose field '' has its bytes. Two of these hashes count. A hash that
-- has reached its bytes takes no more, and the event is refused, since forgetting an id would break a promise.
--
-- A reply about the head names the server by a random token that this process made. A gateway that reads heads on one connection and
-- listens on another compares the tokens, to know that both lead to the same process. (Redis' own run id would need one more right.)
--
-- Users. An event under users.<user> is published once, on the channel of the user, with the topic in front. A gateway before
-- version 14 of this library expects some of them on the channels of topics. It does not send `users` when it configures the
-- log or reads the head. The head then has `alone` 0, and such events are published on both channels, until no such call has
-- come for OLDER_MS. While `alone` is 1, `headgate_head` answers such a call as version 1 of this library. Every gateway takes
-- that for a fault, reports what it may have missed, and configures the log on a new connection.
--
-- Redis Cluster. If the head has `sharded`, the library publishes with SPUBLISH: on the same channels, and on the feed channel
-- `hg:{N}/feed`, with the topic in front. While a slot moves key by key, some keys of a namespace are on one node and some on
-- another, and a client that follows ASK may call a function on either. A key on the other node must not count as missing. So a
-- step that depends on such a key makes sure that all keys are here, and otherwise replies TRYAGAIN.
--
-- Databases. Channels have no database, so the name of a channel has its number, if it is not 0: `hg:{N}@1:<topic>`. A function
-- cannot ask for its database. The gateways of the log report it (`headgate_configure`), and the head has it (database) for all
-- publishers. A log that an append has begun has no database yet (`-`), and is published on no channel: its first gateway reads
-- what it holds. A log without the field is of an older library, and publishes as before, on the channels of database 0.
--
-- `by` may have more parts: `<by> <traceparent>`, `<by> <traceparent> <publisher>` or `<by> <traceparent> <publisher>
-- <id_for_s>`. Each part may be empty, a traceparent also `-`. The traceparent (W3C Trace Context) and the publisher (a user's
-- name in printable ASCII) become fields of the entry. Neither is part of an id, and a malformed one is dropped. The header of
-- a message ends with the traceparent of its event, if it has one. A publisher that begins with `=` follows it, since clients
-- may know that one (events/sender.py); then `-` stands for a missing traceparent. An older gateway finds such a header
-- malformed, and reads the event at its offset from the log. It loses nothing, but works more.
--
-- Raise VERSION with every change of the code. Processes replace an older library by a newer one, never the reverse.

local VERSION = 24
-- The version in the reply to an older gateway that would otherwise miss events of users.
local VERSION_WITHOUT_USERS = 1

local HARD_MAX_PAYLOAD_BYTES = 1024 * 1024
local MAX_TOPIC_BYTES, MAX_TOPIC_WORDS = 255, 8
local MAX_ID_LENGTH = 128
local MAX_BY_LENGTH = 64
local TRACEPARENT_LENGTH, MAX_PUBLISHER_LENGTH = 55, 128
-- The first byte (`=`) of a publisher whom clients may know.
local SHOWN = 61
local MAX_NAMESPACE_LENGTH = 64
local MAX_DEPTH = 64
local MAX_DATABASE = 1e6
-- Redis does nothing else during a batch.
local MAX_BATCH_EVENTS = 256
local IDEMPOTENCY_MS = 300000
-- How long a hash of ids takes new ones. In its second half no id of the previous hash counts any more.
local IDS_MS = 2 * IDEMPOTENCY_MS
-- The bytes of an id without its topic, user and id. Measured: 97 bytes in Redis 7.0, 68 in Valkey 9.1, and room for the table.
local ID_BYTES = 112
-- The most bytes of a hash of ids. There are two. Together they take 3/8 of the bytes that the log may have, and what the log
-- leaves free of these.
local IDS_SHARE, LEAST_IDS_BYTES = 3 / 8, 10 * 1024 * 1024
-- It holds the ids of at least this many events, of any length, because a page's outbox relies on it.
local LEAST_IDS = 65536
-- The longest time to remember an id on request; the time that a hash of them covers; and the most part of the log's bytes for each.
local MAX_ID_FOR_S, DAY_MS = 86400, 86400000
local KEPT_IDS_SHARE = 1 / 4
-- A hash of ids that is not dropped expires, long after its ids stop counting.
local FORGOTTEN_MS = 2 * 86400000
-- Retention until a gateway configures the log.
local DEFAULT_MAX_EVENTS, DEFAULT_MAX_AGE_MS, DEFAULT_MAX_PAYLOAD_BYTES = 10000000, 600000, 65536
local DEFAULT_MAX_BYTES = 256 * 1024 * 1024
local LEAST_MAX_BYTES, GREATEST_MAX_BYTES = 1024 * 1024, 1e14
-- The bytes of an entry without its payload: about 100 of the stream, and its topic and id.
local ENTRY_BYTES = 128
-- The most entries that one call trims by count, and by age or bytes, which reads a few of them. So a lowered retention or an idle
-- log is trimmed in small steps.
local MAX_SURPLUS_PER_CALL, MAX_READ_PER_CALL = 100, 1000
-- A trim costs more than writing an event. So a log of many events may exceed its limit by up to TRIM_STEP - 1 events.
local TRIM_STEP, LEAST_TRIMMED_IN_STEPS = 16, 1000
-- For the same reason, a log at its limit of bytes, or a log of many events at its limit of age, is trimmed below the limit by
-- this part of it.
local SLACK = 1 / 64
-- One for each start or failover of Redis. A position in an older epoch counts as a position in a lost log.
local MAX_EPOCHS = 256
-- The namespaces (of all databases) whose newest offset this process remembers. Forgetting one costs an epoch.
local MAX_REMEMBERED = 10000
-- How often reports may end an epoch of a log: this many times at once, and once per period. Under a stream of wrong reports
-- the lineage of MAX_EPOCHS still covers six minutes.
local MAX_PROOFS, PROOF_EVERY_MS = 128, 3000
-- How long after its last call an older gateway may still be running. Each reads the head with every fence, at least once a minute.
local OLDER_MS = 150000
-- The topics and keys that this process remembers as valid. It checks others again. Few topics, because Lua's collector
-- traverses all of them repeatedly: 5,000 cost each event more than a check of its topic.
local MAX_KNOWN_TOPICS, MAX_KNOWN_KEYS = 250, 1000

-- The API, as locals: an event needs about forty of these names, and Lua looks up each global in two tables. Set at the first
-- call, because a library loads without the API.
local call, try, is_allowed, find, match, format, floor, max, min, byte
-- The format of a whole number. `%d` takes half the time of `%.0f` if a long of C has 64 bits.
local WHOLE

-- Returns an error where `rename-command` hides a command without which no function works. Any other that the server lacks counts
-- as one that the caller may not run.
local function bind()
  for _, name in ipairs({ 'TIME', 'HMGET', 'HSET', 'HGETALL', 'XADD', 'XINFO', 'XRANGE', 'UNLINK' }) do
    if not pcall(redis.acl_check_cmd, name) then return redis.error_reply("ERR unknown command '" .. name .. "'") end
  end
  local try_to, check = pcall, redis.acl_check_cmd
  is_allowed = function(...)
    local is_known, may_run = try_to(check, ...)
    return is_known and may_run
  end
  call, try = redis.call, redis.pcall
  find, match, format, byte = string.find, string.match, string.format, string.byte
  floor, max, min = math.floor, math.max, math.min
  WHOLE = format('%d', 2 ^ 52) == format('%.0f', 2 ^ 52) and '%d' or '%.0f'
end

-- Refusals ------------------------------------------------------------------------------------------------------------

local function refusal(code, parts)
  return redis.error_reply('HEADGATE ' .. code .. ' ' .. cjson.encode(parts))
end

-- A caller's text may be hostile or huge, but an error line must stay printable and short.
local function shown(text)
  text = string.gsub(text, '[^\32-\126]', '?')
  return #text > 80 and string.sub(text, 1, 80) .. '...' or text
end

-- Whole numbers above 1e14 would be printed with an exponent by tostring.
local function whole(number)
  return format(WHOLE, number)
end

-- The grammar: events/topic.py, events/event.py and keys.py say the same -------------------------------------------------------------

local function topic_fault(topic)
  if topic == '' then return 'it is empty' end
  if #topic > MAX_TOPIC_BYTES then return 'longer than ' .. MAX_TOPIC_BYTES .. ' bytes' end
  if find(topic, '[^A-Za-z0-9_.-]') or find('.' .. topic .. '.', '..', 1, true) then
    return 'words are letters, digits, _ and -, joined by single dots; wildcards are for patterns'
  end
  local _, dots = string.gsub(topic, '%.', '')
  if dots + 1 > MAX_TOPIC_WORDS then
    return (dots + 1) .. ' words, at most ' .. MAX_TOPIC_WORDS .. ' are allowed'
  end
end

-- More words than a topic may have.
local TOO_MANY_WORDS = '^[^.]*%.[^.]*%.[^.]*%.[^.]*%.[^.]*%.[^.]*%.[^.]*%.[^.]*%.'

-- Whether it is certainly a topic, as most are, in the fewest possible steps. `topic_fault` decides on the rest.
local function is_usual_topic(topic)
  return #topic <= MAX_TOPIC_BYTES and find(topic, '^[%w_-][%w_.-]*[%w_-]$') and not find(topic, '..', 1, true)
    and (#topic <= 2 * MAX_TOPIC_WORDS or not find(topic, TOO_MANY_WORDS))
end

-- The user of a topic: the second word, after `users`.
local function user_of(topic)
  return match(topic, '^users%.([^.]+)')
end

-- By topic: its user, or false. A topic in use is in the younger table. When that is full, the older table goes.
local known_topics, older_topics, topics = {}, {}, 0

-- The user of a topic, or false; nil and the fault if it is invalid.
local function read_topic(topic)
  local user = known_topics[topic]
  if user ~= nil then return user end
  -- A user's topic of three or four words is read in one step (46 is a dot), and not remembered, because users are many.
  local own, ends = match(topic, '^users%.([%w_-]+)%.[%w_-]+%.?[%w_-]*()')
  if own and ends > #topic and byte(topic, -1) ~= 46 and #topic <= MAX_TOPIC_BYTES then return own end
  user = older_topics[topic]
  if user == nil then
    local fault = not is_usual_topic(topic) and topic_fault(topic)
    if fault then return nil, fault end
    user = user_of(topic) or false
  end
  if topics >= MAX_KNOWN_TOPICS then known_topics, older_topics, topics = {}, known_topics, 0 end
  known_topics[topic], topics = user, topics + 1
  return user
end

-- Most ids are letters and digits. One pass of a class takes half the time of a search for its opposite.
local function is_event_id(id)
  return #id >= 1 and #id <= MAX_ID_LENGTH and (match(id, '^%w*()') > #id or match(id, '^[A-Za-z0-9_.:~-]*()') > #id)
end

local function is_by(by)
  return #by >= 1 and #by <= MAX_BY_LENGTH and not find(by, '[^A-Za-z0-9_-]')
end

-- The parts of `by`: the owner of the id, and the other publisher fields of the entry or nil. A text of another form stays unchanged.
local function read_by(by)
  if not by or not find(by, ' ', 1, true) then return by end
  local own, traceparent, publisher, for_s = match(by, '^([^ ]*) ([^ ]*) ?([^ ]*) ?(%d*)$')
  if not own then return by end
  if #traceparent ~= TRACEPARENT_LENGTH or find(traceparent, '[^0-9a-f-]') then traceparent = nil end
  if #publisher == 0 or #publisher > MAX_PUBLISHER_LENGTH or find(publisher, '[^!-~]') then publisher = nil end
  return own ~= '' and own or nil, (traceparent or publisher) and { traceparent = traceparent, publisher = publisher },
    for_s ~= '' and tonumber(for_s) or nil
end

local function is_utf8(text)
  local at = match(text, '^[%z\1-\127]*()')
  while at <= #text do
    local next_at = match(text, '^[\194-\223][\128-\191]()', at)
      or match(text, '^\224[\160-\191][\128-\191]()', at)
      or match(text, '^\237[\128-\159][\128-\191]()', at)
      or match(text, '^[\225-\236\238\239][\128-\191][\128-\191]()', at)
      or match(text, '^\240[\144-\191][\128-\191][\128-\191]()', at)
      or match(text, '^[\241-\243][\128-\191][\128-\191][\128-\191]()', at)
      or match(text, '^\244[\128-\143][\128-\191][\128-\191]()', at)
    if not next_at then return false end
    at = match(text, '^[%z\1-\127]*()', next_at)
  end
  return true
end

-- cjson allows control characters in strings; JSON does not.
local function has_raw_control(text)
  if match(text, '^%C*()') > #text then return false end
  if find(text, '[%z\1-\8\11\12\14-\31]') then return true end
  for inside in string.gmatch((string.gsub(text, '\\.', '')), '"([^"]*)"') do
    if find(inside, '[%z\1-\31]') then return true end
  end
  return false
end

-- A separate instance, so that strictness and depth do not affect other libraries. Made at the first call, because cjson is
-- absent while a library loads. It is slightly laxer than JSON in numbers (`1.`); the gateway checks again.
local strict_json

local function json_fault(payload)
  if not strict_json then
    strict_json = cjson.new()
    strict_json.decode_invalid_numbers(false)
    strict_json.decode_max_depth(MAX_DEPTH)
  end
  local valid, fault = pcall(strict_json.decode, payload)
  if not valid then return shown(tostring(fault)) end
  -- Pure printable ASCII, as from most encoders, needs neither of the two checks below.
  if match(payload, '^[ -~]*()') > #payload then return end
  if has_raw_control(payload) then return 'a control character in a string' end
  if not is_utf8(payload) then return 'not UTF-8' end
end

-- By log key.
local known_keys, keys_known = {}, 0

-- The names of keys.py, built from the log's key. Returns nil and a refusal for any other key.
local function names(keys)
  local known = #keys == 1 and known_keys[keys[1]]
  if known then return known end
  local namespace = #keys == 1 and match(keys[1], '^hg:{([A-Za-z0-9_-]+)}:log$')
  if not namespace or #namespace > MAX_NAMESPACE_LENGTH then
    return nil, refusal('unknown_namespace', { namespace = shown(keys[1] or ''), expected = 'one key: hg:{namespace}:log' })
  end
  local prefix = 'hg:{' .. namespace .. '}:'
  if keys_known >= MAX_KNOWN_KEYS then known_keys, keys_known = {}, 0 end
  known = {
    log = keys[1], head = prefix .. 'head', epochs = prefix .. 'epochs', id = prefix .. 'id:', tag = 'hg:{' .. namespace .. '}',
  }
  known_keys[keys[1]], keys_known = known, keys_known + 1
  return known
end

-- A slot that moves ----------------------------------------------------------------------------------------------------

-- The answer for an error reply. While the slot moves it asks the caller to try again, for which Redis has no code inside a function.
-- Redis 8 has another text for a command of several keys.
local function try_again(reply)
  if find(reply.err, 'non local key', 1, true) or find(reply.err, 'undeclared keys', 1, true) then
    return redis.error_reply('TRYAGAIN the slot of this namespace is moving to another node')
  end
  return reply
end

-- Whether this is a node of a Cluster; nil until a user with the right asks.
local in_cluster

-- Nil if every key of the log is here or does not exist; otherwise the answer. While a slot moves, both nodes refuse a command
-- of several keys if one of them is missing there. With a head that knows the hashes of ids, this covers them too, and the hash
-- that the next id may begin.
local function moving(name, head)
  if in_cluster == nil and is_allowed('INFO', 'cluster') then
    in_cluster = find(call('INFO', 'cluster'), 'cluster_enabled:1', 1, true) ~= nil
  end
  -- A user with neither right is not in a Cluster, where publishing needs the latter.
  if in_cluster == false or not is_allowed('MGET', name.log, name.head, name.epochs) then return end
  local found
  if head and head.own then
    local ids = head.own.ids
    found = try(
      'MGET', name.log, name.head, name.epochs, name.id .. whole(ids - 1), name.id .. whole(ids), name.id .. whole(ids + 1)
    )
  else
    found = try('MGET', name.log, name.head, name.epochs)
  end
  return found.err and try_again(found)
end

-- The head --------------------------------------------------------------------------------------------------------------

-- Anything but a plain number (a hand-made head) counts as missing. 15 digits are exact in Lua's numbers.
local function number(text)
  return text and #text <= 15 and find(text, '^%d+$') and tonumber(text) or nil
end

-- By epoch, the head of a log that this process writes, as last written, with its clock and its hashes of ids (`own`). Kept
-- while this library is loaded. By log key, the last written of them (databases may have logs of the same name).
local written, remembered = {}, 0
local newest_head = {}

-- Set the database of a log (`-`: none), and so the names of its channels.
local function set_database(name, head, database)
  head.database = database
  local site = database ~= '-' and name.tag .. (database == '0' and '' or '@' .. database)
  head.channel, head.users, head.feed = site and site .. ':', site and site .. '/users.', site and site .. '/feed'
end

-- A head as stored, perhaps by another process. The numbers of its events may be older than its offset.
local function stored_head(name)
  local raw = call(
    'HMGET', name.head, 'epoch', 'offset', 'time', 'first', 'first_time', 'max_events', 'max_age_ms', 'max_payload_bytes', 'nth',
    'sum', 'first_sum', 'max_bytes', 'sharded', 'database', 'alone'
  )
  local head = { epoch = raw[1] or '', offset = number(raw[2]), time = number(raw[3]) or 0, first_time = number(raw[5]) or 0 }
  head.offset_text, head.time_text, head.stored_time = raw[2], raw[3], raw[3]
  head.exists = head.offset and #head.epoch == 16 and not find(head.epoch, '[^0-9a-f]')
  -- A usual event leaves the time that is stored as it was. A user who may not read the log is refused later.
  local newest = head.exists and try('XRANGE', name.log, raw[2], raw[2])
  local time = newest and newest[1] and number(newest[1][2][6])
  if time and time > head.time then head.time, head.time_text = time, whole(time) end
  head.first = min(number(raw[4]) or 1, (head.offset or 0) + 1)
  head.max_events = number(raw[6]) or DEFAULT_MAX_EVENTS
  head.max_age_ms = number(raw[7]) or DEFAULT_MAX_AGE_MS
  head.max_payload_bytes = number(raw[8]) or DEFAULT_MAX_PAYLOAD_BYTES
  -- In a log that an older library began, everything counts as its first epoch.
  head.nth = number(raw[9]) or 0
  head.sum, head.first_sum, head.max_bytes = number(raw[10]) or 0, number(raw[11]) or 0, number(raw[12]) or DEFAULT_MAX_BYTES
  head.sharded = raw[13] == '1'
  -- No gateway can listen to a log that has not begun, or it would have configured it.
  head.alone = raw[15] == '1' or not head.exists
  set_database(name, head, raw[14] or head.exists and '0' or '-')
  return head
end

-- The head: from this process's memory, if the data is as this process left it. Returns nil and an error if it cannot be read.
local function read_head(name)
  local raw = try('HMGET', name.head, 'epoch', 'offset', 'time')
  if raw.err then return nil, try_again(raw) end
  local head = raw[1] and written[raw[1]]
  if not head or head.offset_text ~= raw[2] then return stored_head(name) end
  -- A usual event leaves the time that is stored as it was.
  if head.stored_time ~= raw[3] then head.time, head.time_text, head.stored_time = number(raw[3]) or 0, raw[3], raw[3] end
  return head
end

local function wall_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + floor(time[2] / 1000)
end

-- <clock.lua>

-- The newest offset that the stream ever held, which an XADD must exceed. 0 without a stream. Call `may_open` first, or a
-- missing right would look like that.
local function newest_in_stream(name)
  local found = try('XINFO', 'STREAM', name.log)
  for index = 1, #found, 2 do
    if found[index] == 'last-generated-id' then return tonumber(match(found[index + 1], '^%d+')) end
  end
  return 0
end

local function forget(epoch)
  if written[epoch] then
    written[epoch] = nil
    remembered = remembered - 1
  end
end

local function remember(name, head)
  -- A usual event has channels.
  newest_head[name.log] = head.channel and head or nil
  if written[head.epoch] == head then return end
  if remembered >= MAX_REMEMBERED then written, remembered, newest_head = {}, 0, { [name.log] = newest_head[name.log] } end
  if not written[head.epoch] then remembered = remembered + 1 end
  written[head.epoch], head.exists, head.name = head, true, name
end

-- A caller reports an event by its epoch and offset. If this process wrote the epoch and does not remember that event, it was reverted
-- with its memory, and must not write to the epoch again.
local function end_epoch(epoch, offset)
  local head = written[epoch]
  offset = head and number(offset)
  if not offset or offset <= head.offset then return end
  local name = head.name
  if not (is_allowed('HSET', name.head, 'offset', '1') and is_allowed('TIME')) then return end
  local now = wall_ms()
  local used_until = max(now, min(name.proofs_until or 0, now + MAX_PROOFS * PROOF_EVERY_MS)) + PROOF_EVERY_MS
  if used_until > now + MAX_PROOFS * PROOF_EVERY_MS then return end
  name.proofs_until = used_until
  forget(epoch)
end

-- The same for pairs of an epoch and an offset, from an argument on.
local function end_reverted(args, first)
  for at = first, #args - 1, 2 do end_epoch(args[at], args[at + 1]) end
end

local function needs_epoch(head)
  return head.exists and written[head.epoch] ~= head
end

-- Return the most bytes of a hash of ids. A log that grows into its bytes shortens the next hash, not those that are there.
local function most_ids_bytes(head)
  local spare = max(0, head.max_bytes - (head.sum - head.first_sum))
  return floor(max(LEAST_IDS_BYTES, (IDS_SHARE * head.max_bytes + spare) / 2))
end

-- Read the time, and what this process knows of the log; the head has what another process knew.
local function read_own(name, head)
  local wall = wall_ms()
  if not head.own then
    local raw, before = call('HMGET', name.head, 'clock', 'shift', 'ids', 'ids_time', 'ids_first', 'ids_bytes', 'ids_hold'), written[head.epoch]
    local shift = raw[2] and find(raw[2], '^-?%d+$') and #raw[2] <= 15 and tonumber(raw[2]) or 0
    if before then before.own.clock.saved = nil end
    head.own = {
      clock = before and before.own.clock or start_clock(wall, number(raw[1]), shift),
      ids = number(raw[3]) or 0, ids_time = number(raw[4]) or 0, ids_first = number(raw[5]) or 0, ids_bytes = number(raw[6]) or 0,
      ids_hold = number(raw[7]) or IDEMPOTENCY_MS, ids_most = most_ids_bytes(head),
    }
  end
  return wall
end

-- Return the time of an event that is appended now.
local function read_time(name, head, told, elapsed)
  local wall = read_own(name, head)
  head.clock = read_clock(head.own.clock, wall, told, elapsed)
  return max(wall, head.time)
end

-- The address of a fresh table differs between processes, TIME within one.
local function new_epoch(name, head)
  local stamp = call('TIME')
  return string.sub(redis.sha1hex(stamp[1] .. '.' .. stamp[2] .. name.log .. tostring({}) .. head.epoch), 1, 16)
end

-- A new log: nothing of the old one may be taken for the new one's, so the stream goes. Returns an error, or nil.
local function begin_log(name, head)
  local elsewhere = moving(name, head)
  if elsewhere then return elsewhere end
  call('UNLINK', name.log)
  forget(head.epoch)
  head.began = 'log'
  head.epoch = new_epoch(name, head)
  head.offset, head.offset_text, head.first, head.first_time = 0, '0', 1, head.clock
  head.nth = 0
  head.sum, head.first_sum = 0, 0
  if head.own then head.own.ids_first = 0 end
end

-- The bytes of all events below the oldest one from an offset on; nil without one, or if an older library has written that, and
-- counted nothing.
local function bytes_below(name, offset)
  local oldest = call('XRANGE', name.log, offset, '+', 'COUNT', 1)[1]
  local fields = oldest and oldest[2]
  local sum = fields and number(fields[10])
  return sum and sum - #fields[2] - #fields[8] - ENTRY_BYTES
end

-- When an event was written, by the clock.
local function clock_of(fields)
  return number(fields[11] == 'clock' and fields[12] or fields[6]) or 0
end

-- Set the numbers of the events from the entries, because the head has those of another process's last save.
local function recount(name, head)
  local newest = call('XRANGE', name.log, head.offset_text, head.offset_text)[1]
  local before, sum = written[head.epoch], newest and number(newest[2][10])
  head.sum = sum or max(head.sum, before and before.sum or 0)
  local oldest = call('XRANGE', name.log, '-', '+', 'COUNT', 1)[1]
  if oldest then
    head.first = min(tonumber(match(oldest[1], '^%d+')), head.offset + 1)
    head.first_time, head.first_sum = clock_of(oldest[2]), bytes_below(name, '-') or head.first_sum
  else
    head.first, head.first_time, head.first_sum = head.offset + 1, head.clock, head.sum
  end
end

-- A new epoch of the same log: offsets go on. Returns an error, or nil.
local function begin_epoch(name, head)
  local elsewhere = moving(name, head)
  if elsewhere then return elsewhere end
  recount(name, head)
  forget(head.epoch)
  head.began, head.before = 'epoch', head.epoch
  head.epoch = new_epoch(name, head)
  head.nth = head.nth + 1
  head.begins_at = head.offset + 1
end

-- Forget the oldest epochs, where this user may.
local function prune_epochs(name)
  if not (is_allowed('HGETALL', name.epochs) and is_allowed('HDEL', name.epochs, '')) then return end
  local flat = call('HGETALL', name.epochs)
  if #flat <= 2 * MAX_EPOCHS then return end
  local newest = 0
  for index = 2, #flat, 2 do newest = max(newest, tonumber(match(flat[index], '%d+$')) or 0) end
  for index = 1, #flat, 2 do
    if (tonumber(match(flat[index + 1], '%d+$')) or 0) <= newest - MAX_EPOCHS then
      call('HDEL', name.epochs, flat[index])
    end
  end
end

local function is_unsaved_head(head)
  return head.own.unsaved or is_unsaved(head.own.clock)
end

-- The facts of a head that usual events need, which rarely change otherwise.
local function set_usual(name, head)
  local own = head.own
  own.key, own.key_before = name.id .. whole(own.ids), name.id .. whole(own.ids - 1)
  own.ids_most = most_ids_bytes(head)
  head.message_begins = 'hg1 ' .. head.epoch .. ' '
  head.trim_step = head.max_events >= LEAST_TRIMMED_IN_STEPS and TRIM_STEP or 1
end

-- Return for how long an id counts at the mean rate since the newest hash began, of which the first seconds say little.
local function ids_hold(head)
  local own, age = head.own, head.clock - head.own.ids_time
  if age >= SAVE_MS then
    local filled = min(own.ids_bytes / own.ids_most, (head.offset - own.ids_first) / LEAST_IDS)
    own.ids_hold = floor(min(IDEMPOTENCY_MS, age / max(1e-9, filled)))
  end
  return own.ids_hold
end

-- Save this process's facts for another one: when an epoch begins, and now and then.
local function save_head(name, head, ...)
  local own = head.own
  set_usual(name, head)
  call(
    'HSET', name.head, 'epoch', head.epoch, 'offset', head.offset_text, 'time', head.time_text,
    'first', whole(head.first), 'first_time', whole(head.first_time), 'sum', whole(head.sum), 'first_sum', whole(head.first_sum),
    'clock', whole(own.clock.last), 'shift', whole(own.clock.shift),
    'ids', whole(own.ids), 'ids_time', whole(own.ids_time), 'ids_first', whole(own.ids_first),
    'ids_bytes', whole(own.ids_bytes), 'ids_most', whole(own.ids_most), 'ids_hold', whole(ids_hold(head)),
    'database', head.database, 'alone', head.alone and '1' or '0', ...
  )
  own.unsaved, own.clock.saved = nil, own.clock.last
end

-- Store the head, and the epoch if it has just begun. Called when nothing can be refused any more.
local function write_head(name, head)
  if head.began or is_unsaved_head(head) then
    save_head(name, head)
  else
    call('HSET', name.head, 'offset', head.offset_text, 'time', head.time_text)
  end
  if head.began then
    if head.began == 'epoch' and not call('HMGET', name.epochs, head.before)[1] then
      -- A library without epochs began this log, so its line has nothing of an earlier log.
      call('UNLINK', name.epochs)
      call('HSET', name.epochs, head.before, '1 0')
      head.nth = 1
    end
    call('HSET', name.head, 'nth', whole(head.nth))
    if head.began == 'log' then
      call('UNLINK', name.epochs)
      call('HSET', name.epochs, head.epoch, '1 0')
    else
      call('HSET', name.epochs, head.epoch, whole(head.begins_at) .. ' ' .. whole(head.nth))
      prune_epochs(name)
    end
    head.began = nil
  end
  head.stored_time = head.time_text
  remember(name, head)
end

-- The token of this process, kept while this library is loaded; empty for a first user without the right to make one.
local server

local function this_server()
  if not server then
    if not is_allowed('TIME') then return '' end
    local stamp = call('TIME')
    server = string.sub(redis.sha1hex(stamp[1] .. '.' .. stamp[2] .. tostring({}) .. 'server'), 1, 16)
  end
  return server
end

-- Whether this server is a replica, as far as this user may know. A primary that is made a replica keeps its connections.
local function is_replica()
  if not is_allowed('INFO', 'replication') then return 0 end
  return find(call('INFO', 'replication'), 'role:slave', 1, true) and 1 or 0
end

-- [epoch, offset of the newest event, offset of the oldest readable one (offset + 1: none), time, version, lineage or nil,
-- server, replica, database]. At each position a listener must know that the present library publishes on the channels of
-- users, and that it listens to the server with this head.
local function position(name, head, with_lineage, version)
  local oldest = call('XRANGE', name.log, '-', '+', 'COUNT', 1)[1]
  local first = oldest and tonumber(match(oldest[1], '^%d+')) or head.offset + 1
  local lineage = with_lineage and try('HGETALL', name.epochs)
  if lineage and lineage.err then return try_again(lineage) end
  local elsewhere = (not oldest or lineage and #lineage == 0) and moving(name)
  if elsewhere then return elsewhere end
  return { head.epoch, head.offset, first, head.time, version, lineage or false, this_server(), is_replica(), head.database }
end

-- Retention -------------------------------------------------------------------------------------------------------------

-- Return the least offset from `low` to `high` that stays, by bisection. All later ones stay too.
local function least_that(stays, low, high)
  if stays(low) then return low end
  while low < high do
    local middle = floor((low + high) / 2)
    if stays(middle) then high = middle else low = middle + 1 end
  end
  return low
end

-- Trim by bytes: return the oldest offset, from a given one on, that stays in a log that ends at `last`, and the bytes below it. The
-- newest always stays.
local function lighten(name, head, first, last, sum)
  local most = head.max_bytes * (1 - SLACK)
  local offset = least_that(function(offset)
    local below = bytes_below(name, whole(offset))
    return below and sum - below <= most
  end, first, min(last, first + MAX_READ_PER_CALL))
  -- The event to append is not there yet, so everything stored is below it.
  return offset, offset > head.offset and head.sum or bytes_below(name, whole(offset)) or head.first_sum
end

-- Whether a trim must read entries, for an event of so many bytes.
local function is_trim_read(head, bytes)
  return head.clock - head.first_time > head.max_age_ms or head.sum + bytes - head.first_sum > head.max_bytes
end

-- Trim by age: return the oldest offset, from a given one on, that stays, and its time.
local function rejuvenate(name, head, first)
  local oldest_at = head.clock - head.max_age_ms * (head.offset - first >= 2 * LEAST_TRIMMED_IN_STEPS and 1 - SLACK or 1)
  local function time_at(offset)
    local found = call('XRANGE', name.log, whole(offset), '+', 'COUNT', 1)[1]
    return found and clock_of(found[2]) or head.clock
  end
  local offset = least_that(function(offset) return time_at(offset) >= oldest_at end, first, min(head.offset + 1, first + MAX_READ_PER_CALL))
  return offset, time_at(offset)
end

-- How to trim, by count, exactly, by age and by bytes, a log that is about to end at `last` with `sum`: returns the oldest offset that
-- stays, its time and the bytes below it. Reads nothing unless the oldest event is too old, or the log may be too heavy.
local function plan_trim(name, head, last, sum)
  local first = max(head.first, min(last - head.max_events + 1, head.first + MAX_SURPLUS_PER_CALL))
  local first_time, first_sum = head.first_time, head.first_sum
  if head.clock - first_time > head.max_age_ms then first, first_time = rejuvenate(name, head, first) end
  if sum - first_sum > head.max_bytes then first, first_sum = lighten(name, head, first, last, sum) end
  return first, first_time, first_sum
end

-- Publish -----------------------------------------------------------------------------------------------------------------

-- A missing right for a later write must refuse before the first write, or a part of the step would remain.
local function may(command, name, ...)
  if is_allowed(command, name, ...) then return end
  if not pcall(redis.acl_check_cmd, command) then return redis.error_reply("ERR unknown command '" .. command .. "'") end
  return redis.error_reply('NOPERM this user may not run ' .. command .. ' on ' .. name)
end

local function may_open(name)
  if not is_allowed('XINFO', 'STREAM', name.log) then
    return redis.error_reply('NOPERM this user may not run XINFO STREAM on ' .. name.log)
  end
  return may('UNLINK', name.log) or may('UNLINK', name.epochs) or may('HSET', name.head, 'offset', '1')
    or may('HSET', name.epochs, '', '') or may('XRANGE', name.log, '-', '+')
end

-- The rights to publish an event on its channels.
local function may_announce(name, head, topic, user)
  if not head.channel then return end
  local publish = head.sharded and 'SPUBLISH' or 'PUBLISH'
  return not (user and head.alone) and may(publish, head.channel .. topic, '') or user and may(publish, head.users .. user, '')
    or head.sharded and (may(publish, head.feed, '') or may('MGET', name.log, name.head))
end

-- The rights of an event, but for those of its first write, which refuses by itself. `fully`: those of rarer steps
-- too, and of every write.
local function may_publish(name, head, topic, id, user, fully)
  return fully and (may('XADD', name.log, '1-0', 'topic', '') or may_open(name)) or may('HSET', name.head, 'offset', '1')
    or fully and id and may('HSET', name.id .. '1', '', '') or may_announce(name, head, topic, user)
end

-- An id belongs to its topic and to the user on whose behalf it is published. A client that may publish one topic, or guesses
-- an id, must not make another client's event look like a duplicate. Neither topics nor `by` hold a colon or a slash.
local function id_of(topic, id, by)
  return topic .. ':' .. (by and by .. '/' or '') .. id
end

-- The epoch and offset of a receipt that counts; nil if it is too old, or of a replaced log. Returns nil and an error if this
-- node cannot know.
local function read_receipt(name, head, receipt, for_ms)
  local epoch, offset, told = match(receipt, '^(%x+)-(%d+)-(%d+)$')
  if not told or head.clock - tonumber(told) >= (for_ms or IDEMPOTENCY_MS) then return end
  if epoch ~= head.epoch then
    -- Receipt and event are written in one step, so they are lost together. But a receipt outlives a replaced log.
    local known = try('HMGET', name.epochs, epoch)
    if known.err then return nil, try_again(known) end
    if not known[1] then return nil, moving(name) end
  end
  return epoch, offset
end

-- Whether an id in the hash before the newest may count.
local function are_older_ids(head)
  return head.own.ids ~= head.own.oldest_ids and head.clock - head.own.ids_time < IDEMPOTENCY_MS
end

-- The receipt of an id that counts: its epoch, offset, key and text; nil without one. Returns nil and an error if this node cannot know.
local function recall(name, head, id)
  -- In a Cluster an id on the other node must not count as new, nor be new where its hash cannot begin.
  local elsewhere = (in_cluster or head.sharded) and moving(name, head)
  if elsewhere then return nil, elsewhere end
  local key = name.id .. whole(head.own.ids)
  local found = try('HMGET', key, id)
  if not found.err and not found[1] and are_older_ids(head) then
    key = name.id .. whole(head.own.ids - 1)
    found = try('HMGET', key, id)
  end
  if found.err then return nil, try_again(found) end
  local receipt = found[1]
  if not receipt then return end
  local epoch, offset = read_receipt(name, head, receipt)
  if not epoch then return nil, offset end
  return { epoch = epoch, offset = offset, key = key, receipt = receipt }
end

-- For an id to remember for `for_s`: its receipt, as from `recall`, or the place for it; or nil and an error.
local function recall_kept(name, head, id, for_s)
  local day = floor(head.clock / DAY_MS)
  local key, key_before = name.id .. 'day' .. whole(day), name.id .. 'day' .. whole(day - 1)
  if in_cluster or head.sharded then
    local here = try('MGET', name.log, key, key_before)
    if here.err then return nil, try_again(here) end
  end
  local found, before = try('HMGET', key, id, ''), try('HMGET', key_before, id)
  if found.err or before.err then return nil, try_again(found.err and found or before) end
  for _, receipt in ipairs({ found[1] or '', before[1] or '' }) do
    local epoch, offset = read_receipt(name, head, receipt, 1000 * for_s)
    if epoch then return { epoch = epoch, offset = offset, key = receipt == found[1] and key or key_before, receipt = receipt } end
    if offset then return nil, offset end
  end
  local bytes, most = (number(found[2] or nil) or 0) + #id + ID_BYTES, floor(KEPT_IDS_SHARE * head.max_bytes)
  if bytes > most then
    return nil, refusal('limit_reached', { name = 'kept_id_bytes', limit = most, retry_after_s = 60 })
  end
  local refused = may('HSET', key, '', '')
  if refused then return nil, refused end
  return { place = key, day = day }
end

-- Remember an id in the place from `recall_kept`. The first id of a day drops the hashes of days that no longer count.
local function keep_id(name, kept, id, receipt)
  local bytes = call('HMGET', kept.place, '')[1]
  call('HSET', kept.place, '', whole((number(bytes or nil) or 0) + #id + ID_BYTES), id, receipt)
  if bytes then return end
  if is_allowed('PEXPIRE', kept.place, '1') then call('PEXPIRE', kept.place, 3 * DAY_MS) end
  for day = kept.day - 7, kept.day - 2 do
    local key = name.id .. 'day' .. whole(day)
    if is_allowed('UNLINK', key) then call('UNLINK', key) end
  end
end

local function are_ids_due(head)
  local own = head.own
  return head.clock - own.ids_time >= IDS_MS or own.ids_bytes >= own.ids_most and head.offset - own.ids_first >= LEAST_IDS
end

-- The receipt of the event at an offset, as the hash of ids holds it.
local function receipt_of(head, offset_text)
  return head.epoch .. '-' .. offset_text .. '-' .. (head.clock == head.time and head.time_text or whole(head.clock))
end

-- Forget an id whose event could not be appended. Without the right to delete it, an empty receipt counts as none.
local function unclaim(key, id)
  if is_allowed('HDEL', key, id) then
    try('HDEL', key, id)
  else
    try('HSET', key, id, '')
  end
end

-- Whether any user so far may not use HGET or HINCRBY. Then each user's right is checked first.
local is_usual_refused = false

-- Begin a new hash of ids if it is due, and drop those in which no id counts any more. If this user may not, the next one who may does.
local function turn_ids(name, head)
  if not are_ids_due(head) then return end
  local own = head.own
  local age = head.clock - own.ids_time
  if may('UNLINK', name.id .. '1') then return end
  call('UNLINK', name.id .. whole(own.ids - 1))
  local are_all_old = age >= IDS_MS + IDEMPOTENCY_MS
  if are_all_old then call('UNLINK', name.id .. whole(own.ids)) end
  if age < IDS_MS then own.ids_hold = min(IDEMPOTENCY_MS, age) end
  own.ids, own.ids_time, own.ids_first, own.ids_bytes, own.unsaved = own.ids + 1, head.clock, head.offset, 0, true
  own.oldest_ids = are_all_old and own.ids or own.ids - 1
  return true
end

-- Drop the second newest hash if none of its ids counts any more. Its bytes are half of all bytes of ids.
local function drop_older_ids(name, head)
  local own = head.own
  if own.ids == own.oldest_ids or are_older_ids(head) or may('UNLINK', name.id .. '1') then return end
  call('UNLINK', name.id .. whole(own.ids - 1))
  own.oldest_ids = own.ids
end

-- Remember ids of so many bytes for a while: each, followed by the receipt of its event.
local function remember_ids(name, head, bytes, ...)
  local turned = turn_ids(name, head)
  local key = name.id .. whole(head.own.ids)
  head.own.ids_bytes = head.own.ids_bytes + bytes
  call('HSET', key, ...)
  if turned and is_allowed('PEXPIRE', key, '1') then call('PEXPIRE', key, FORGOTTEN_MS) end
end

-- An entry with further fields: one alone without a table, as most have it.
local function longer_entry(head, place, topic, event_id, time, time_text, payload, sum, origin)
  local traceparent, publisher, clock = origin.traceparent, origin.publisher, head.clock ~= time and whole(head.clock)
  if not clock and not (traceparent and publisher) then
    return place, 'topic', topic, 'id', event_id, 'time', time_text, 'data', payload, 'sum', sum,
      traceparent and 'traceparent' or 'publisher', traceparent or publisher
  end
  local fields = { place, 'topic', topic, 'id', event_id, 'time', time_text, 'data', payload, 'sum', sum }
  if clock then fields[#fields + 1], fields[#fields + 2] = 'clock', clock end
  if traceparent then fields[#fields + 1], fields[#fields + 2] = 'traceparent', traceparent end
  if publisher then fields[#fields + 1], fields[#fields + 2] = 'publisher', publisher end
  return unpack(fields)
end

-- An entry, and its clock where that is not its time.
local function entry(head, place, topic, event_id, time, time_text, payload, sum, origin)
  if origin then return longer_entry(head, place, topic, event_id, time, time_text, payload, sum, origin) end
  if head.clock == time then
    return place, 'topic', topic, 'id', event_id, 'time', time_text, 'data', payload, 'sum', sum
  end
  return place, 'topic', topic, 'id', event_id, 'time', time_text, 'data', payload, 'sum', sum, 'clock', whole(head.clock)
end

-- Append at the next offset, and trim in the same step or leave that to the next event (`later`). A stream ahead of its head
-- (one of them was lost, or restored) is replaced by a new log. Returns the event's id, or nil and an error.
local function append(name, head, topic, id, time, payload, origin, later)
  local offset, sum = head.offset + 1, head.sum + #topic + #payload + ENTRY_BYTES
  local offset_text, time_text = whole(offset), time == head.time and head.time_text or whole(time)
  local event_id, place = id or head.epoch .. '-' .. offset_text, offset_text .. '-0'
  local first, first_time, first_sum = plan_trim(name, head, offset, sum)
  local added
  if head.offset == 0 then
    added = try('XADD', name.log, entry(head, place, topic, event_id, time, time_text, payload, whole(sum), origin))
  elseif not later and (first > head.first or head.is_trim_due) then
    added = try(
      'XADD', name.log, 'NOMKSTREAM', 'MINID', '=', whole(first),
      entry(head, place, topic, event_id, time, time_text, payload, whole(sum), origin)
    )
  else
    added = try(
      'XADD', name.log, 'NOMKSTREAM', entry(head, place, topic, event_id, time, time_text, payload, whole(sum), origin)
    )
  end
  -- This process may have written the epoch before the slot went to another node. Now the slot comes back, the head first.
  added = added or moving(name, head)
    or try('XADD', name.log, entry(head, place, topic, event_id, time, time_text, payload, whole(sum), origin))
  if added.err then
    if head.began == 'log' or newest_in_stream(name) < offset then return nil, try_again(added) end
    -- Nothing is trimmed for an event that this user may not append.
    local refused = may('XADD', name.log, '1-0', 'topic', '') or may_open(name) or begin_log(name, head)
    if refused then return nil, refused end
    return append(name, head, topic, id, time, payload, origin, later)
  end
  head.is_trim_due = later and (head.is_trim_due or first > head.first)
  head.offset, head.offset_text, head.time, head.time_text, head.sum = offset, offset_text, time, time_text, sum
  head.first, head.first_time, head.first_sum = first, first_time, first_sum
  return event_id
end

-- The user of an event's topic, or false; nil and a refusal if a part of the event is invalid.
local function read_event(topic, id, by, for_s)
  local user, fault = read_topic(topic)
  if user == nil then return nil, refusal('invalid_topic', { topic = shown(topic), reason = fault }) end
  if id and not is_event_id(id) then
    return nil, refusal('invalid_event', {
      field = 'id', reason = 'expected 1 to ' .. MAX_ID_LENGTH .. ' characters of A-Z a-z 0-9 _ . : ~ -',
    })
  end
  if by and not is_by(by) then
    return nil, refusal('invalid_event', {
      field = 'by', reason = 'expected 1 to ' .. MAX_BY_LENGTH .. ' characters of A-Z a-z 0-9 _ -',
    })
  end
  if for_s and not (id and for_s >= 1 and for_s <= MAX_ID_FOR_S) then
    return nil, refusal('invalid_event', { field = 'id_for_s', reason = 'expected 1 to ' .. MAX_ID_FOR_S .. ' s, and an id' })
  end
  return user
end

-- Refuse a payload above the log's limit.
local function size_fault(head, payload)
  local limit = min(head.max_payload_bytes, HARD_MAX_PAYLOAD_BYTES)
  return #payload > limit and refusal('payload_too_large', { size = #payload, limit = limit, where = 'bus' })
end

-- The start of the message of the last event, up to its payload.
local function header_of(head, event_id, origin)
  local sender = origin and origin.publisher
  if sender and byte(sender) == SHOWN then
    event_id = event_id .. ' ' .. (origin.traceparent or '-') .. ' ' .. sender
  elseif origin and origin.traceparent then
    event_id = event_id .. ' ' .. origin.traceparent
  end
  return 'hg1 ' .. head.epoch .. ' ' .. head.offset_text .. ' ' .. head.time_text .. ' ' .. event_id .. '\n'
end

-- Publish an event on its channels, if they are known. Build each long text once, because Redis 7.0 hashes all of it.
local function announce(head, topic, user, header, payload)
  if not head.channel then return end
  local command = head.sharded and 'SPUBLISH' or 'PUBLISH'
  if not (user and head.alone) then call(command, head.channel .. topic, header .. payload) end
  if not (user or head.sharded) then return end
  local message = topic .. '\n' .. header .. payload
  -- With a pattern for each user of a gateway, Redis would compare each event with all patterns. A channel per user costs nothing.
  if user then call(command, head.users .. user, message) end
  -- There are no sharded patterns.
  if head.sharded then call(command, head.feed, message) end
end

-- <inbox.lua>

-- Append one valid event, to a log that may have to begin. Returns its epoch, its offset, and 1 for a known id or 0; or nil and an error.
local function take(name, head, topic, user, payload, id, by, origin, trusted, for_s)
  local time = read_time(name, head)
  local begins = not head.exists or needs_epoch(head)
  local refused = may_publish(name, head, topic, id, user, begins or not trusted)
    or is_trim_read(head, #topic + #payload + ENTRY_BYTES) and may('XRANGE', name.log, '-', '+')
  if refused then return nil, refused end
  local own_id = id and id_of(topic, id, by)
  local kept, unkept
  if for_s then
    kept, unkept = recall_kept(name, head, own_id, for_s)
    if not kept then return nil, unkept end
    if kept.epoch then
      -- As below: WAIT.
      if not may('HSET', kept.key, '', '') then call('HSET', kept.key, own_id, kept.receipt) end
      return kept.epoch, kept.offset, 1
    end
  end
  local kind = user and inbox.kind_of(topic, user)
  local plan
  if kind then
    plan, refused = inbox.plan(name, head, user, kind, id, payload)
    if not plan then
      -- A repeated change gets the answer of the first.
      local known = own_id and head.exists and recall(name, head, own_id)
      if known then return known.epoch, known.offset, 1 end
      return nil, refused
    end
    payload = plan.payload
  end
  if own_id and head.exists then
    local known, unknown = recall(name, head, own_id)
    if unknown then return nil, unknown end
    refused = may('HSET', name.id .. '1', '', '')
    if known then
      -- Write the same value again, so that a publisher's WAIT after this covers the event too.
      if not refused then call('HSET', known.key, own_id, known.receipt) end
      return known.epoch, known.offset, 1
    end
    if refused then return nil, refused end
  end
  if begins then
    refused = (head.exists and begin_epoch or begin_log)(name, head)
    if refused then return nil, refused end
  end
  local event_id, not_appended = append(name, head, topic, id, time, payload, origin)
  if not event_id then return nil, not_appended end
  if own_id then
    remember_ids(name, head, #own_id + ID_BYTES, own_id, receipt_of(head, head.offset_text))
  end
  if kept then keep_id(name, kept, own_id, receipt_of(head, head.offset_text)) end
  write_head(name, head)
  announce(head, topic, user, header_of(head, event_id, origin), payload)
  local offset_text = head.offset_text
  if plan then inbox.apply(name, head, plan, event_id) end
  return head.epoch, offset_text, 0
end

-- The usual event, in the fewest possible commands: one with an id of its own, in a log that this process writes and where nothing else
-- is due. Returns its epoch and offset, and 0. On nil nothing is written, and `take` must take or refuse the event.
--
-- One command reads the head and advances it, and is undone if the data is not as this process left it. So the time of the
-- newest event is stored only now and then; entries have it.
local function append_usual(key, topic, payload, id, trusted)
  local head, user, name = newest_head[key], read_topic(topic), known_keys[key]
  if not (head and name) or user == nil or written[head.epoch] ~= head or head.sharded or in_cluster
    or user and inbox.kind_of(topic, user)
  then return end
  local own, clock, limit = head.own, head.own.clock, head.max_payload_bytes
  if #payload > limit or limit > HARD_MAX_PAYLOAD_BYTES or own.unsaved or not clock.saved or clock.doubt ~= 0
    or clock.shift ~= 0 or not is_event_id(id)
  then return end
  local time = wall_ms()
  local offset, sum = head.offset + 1, head.sum + #topic + #payload + ENTRY_BYTES
  local surplus = offset - head.first + 1 - head.max_events
  -- SAVE_MS is at most LEAP_MS, so a time soon after a save is not a leap either.
  if time < head.time or time < clock.last or time - clock.saved >= SAVE_MS
    or time - own.ids_time >= IDS_MS or own.ids_bytes >= own.ids_most and head.offset - own.ids_first >= LEAST_IDS
    or time - head.first_time > head.max_age_ms or sum - head.first_sum > head.max_bytes
    or surplus > MAX_SURPLUS_PER_CALL or head.is_trim_due
  then return end
  local is_alone, users_channel = user and head.alone, user and head.users .. user
  local channel = is_alone and users_channel or head.channel .. topic
  if not is_allowed('PUBLISH', channel, '') or user and not is_alone and not is_allowed('PUBLISH', users_channel, '')
    or is_usual_refused and not (is_allowed('HGET', name.head, 'epoch') and is_allowed('HINCRBY', name.head, 'offset', '1'))
  then return end
  local own_id = topic .. ':' .. id
  local epoch = try('HGET', name.head, 'epoch')
  if epoch ~= head.epoch then
    is_usual_refused = is_usual_refused or type(epoch) == 'table'
    return
  end
  if own.ids ~= own.oldest_ids and time - own.ids_time < IDEMPOTENCY_MS and try('HGET', own.key_before, own_id) then return end
  if not trusted and json_fault(payload) then return end
  local moved = try('HINCRBY', name.head, 'offset', '1')
  if moved ~= offset then
    is_usual_refused = is_usual_refused or type(moved) == 'table'
    if type(moved) == 'number' then call('HINCRBY', name.head, 'offset', '-1') end
    return
  end
  local offset_text, time_text = format(WHOLE, offset), time == head.time and head.time_text or format(WHOLE, time)
  if try('HSETNX', own.key, own_id, head.epoch .. '-' .. offset_text .. '-' .. time_text) ~= 1 then
    call('HINCRBY', name.head, 'offset', '-1')
    return
  end
  local added
  if surplus >= head.trim_step then
    added = try(
      'XADD', key, 'NOMKSTREAM', 'MINID', '=', format(WHOLE, head.first + surplus), offset_text,
      'topic', topic, 'id', id, 'time', time_text, 'data', payload, 'sum', format(WHOLE, sum)
    )
  else
    added = try(
      'XADD', key, 'NOMKSTREAM', offset_text,
      'topic', topic, 'id', id, 'time', time_text, 'data', payload, 'sum', format(WHOLE, sum)
    )
  end
  if not added or added.err then
    unclaim(own.key, own_id)
    call('HINCRBY', name.head, 'offset', '-1')
    return
  end
  if surplus >= head.trim_step then head.first = head.first + surplus end
  head.offset, head.offset_text, head.time, head.time_text, head.sum = offset, offset_text, time, time_text, sum
  head.clock, clock.last, own.ids_bytes = time, time, own.ids_bytes + #own_id + ID_BYTES
  if is_alone then
    call('PUBLISH', channel, topic .. '\n' .. head.message_begins .. offset_text .. ' ' .. time_text .. ' ' .. id .. '\n' .. payload)
  elseif not user then
    call('PUBLISH', channel, head.message_begins .. offset_text .. ' ' .. time_text .. ' ' .. id .. '\n' .. payload)
  else
    announce(head, topic, user, header_of(head, id), payload)
  end
  return head.epoch, offset_text, 0
end

local function publish(keys, args, trusted, answer)
  if args[3] and not args[4] and not keys[2] then
    local epoch, offset, duplicate = append_usual(keys[1], args[1], args[2], args[3], trusted)
    if epoch then return answer(epoch, offset, duplicate) end
  end
  local name, wrong_key = names(keys)
  if not name then return wrong_key end
  local topic, payload, id = args[1], args[2], args[3]
  local by, origin, for_s = read_by(args[4])
  if #args < 2 or #args > 4 then
    return refusal('invalid_request', { reason = 'expected topic, payload, perhaps an id, and then perhaps whose it is' })
  end
  local user, refused = read_event(topic, id, by, for_s)
  if refused then return refused end
  local head, unreadable = read_head(name)
  if not head then return unreadable end
  refused = size_fault(head, payload)
  if refused then return refused end
  local fault = not trusted and json_fault(payload)
  if fault then return refusal('not_serializable', { reason = fault }) end
  local epoch, offset, duplicate = take(name, head, topic, user, payload, id, by, origin, trusted, for_s)
  if not epoch then return offset end
  return answer(epoch, offset, duplicate)
end

local function as_list(epoch, offset, duplicate) return { epoch, tonumber(offset), duplicate } end

local function as_text(epoch, offset, duplicate) return epoch .. ' ' .. offset .. ' ' .. duplicate end

-- A batch -------------------------------------------------------------------------------------------------------------------

-- The events of a batch, with a `fault` for an invalid one.
local function read_batch(head, args)
  local events = {}
  for at = 1, #args, 4 do
    local topic, payload, id, by = args[at], args[at + 1], args[at + 2], args[at + 3]
    local origin, for_s
    id, by = id ~= '' and id or nil, by ~= '' and by or nil
    by, origin, for_s = read_by(by)
    local user, fault = read_event(topic, id, by, for_s)
    fault = fault or size_fault(head, payload)
    -- All fields at once, because growing a table costs as much as a command.
    events[#events + 1] = {
      topic = topic, payload = payload, id = id, by = by, origin = origin, user = user, own_id = not fault and id and id_of(topic, id, by), fault = fault,
      for_s = for_s, same = nil, key = nil, receipt = nil, epoch = nil, offset = nil, is_new = nil, header = nil, kept = nil,
    }
  end
  return events
end

-- Set the fault of all events of a batch, from a given one on, that have none.
local function refuse_from(events, first, fault)
  for index = first, #events do events[index].fault = events[index].fault or fault end
end

-- Find the events with a known id: in the log (`epoch`, `offset`, and the `key` and `receipt` of the last of them), or of an
-- earlier event in the batch (`same`). Returns an error, or nil.
local function recall_batch(name, head, events, first)
  local own, ids, places, seen = head.own, {}, {}, {}
  for index = first, #events do
    local event = events[index]
    if event.own_id then
      event.same = seen[event.own_id]
      if not event.same then
        ids[#ids + 1], places[#places + 1], seen[event.own_id] = event.own_id, event, event
      end
    end
  end
  if #ids == 0 then return end
  local refused = may('HSET', name.id .. '1', '', '') or (in_cluster or head.sharded) and moving(name, head)
  if refused then return refused end
  for number = own.ids, are_older_ids(head) and own.ids - 1 or own.ids, -1 do
    local key = name.id .. whole(number)
    local found = try('HMGET', key, unpack(ids))
    if found.err then return try_again(found) end
    for index, event in ipairs(places) do
      if found[index] and not event.receipt then
        event.key, event.receipt = key, found[index]
        local epoch, offset = read_receipt(name, head, event.receipt)
        if not epoch and offset then return offset end
        event.epoch, event.offset = epoch, offset
      end
    end
  end
  for _, event in ipairs(places) do
    if event.for_s and not event.epoch then
      local kept, fault = recall_kept(name, head, event.own_id, event.for_s)
      if fault and find(fault.err, '^TRYAGAIN') then return fault end
      if kept and kept.epoch then
        event.key, event.receipt, event.epoch, event.offset = kept.key, kept.receipt, kept.epoch, kept.offset
      else
        event.kept, event.fault = kept, fault
      end
    end
  end
end

-- Append the new events of a batch to a log that this process writes, with one read of all ids, and one write of them and of the head.
local function append_new(name, head, events, first)
  local time = read_time(name, head)
  local refused = may('HSET', name.head, 'offset', '1') or recall_batch(name, head, events, first)
  if refused then return refuse_from(events, first, refused) end
  local last, known
  for index = first, #events do
    local event = events[index]
    if event.epoch then
      known = event
    elseif not event.same and not event.fault then
      last = event
    end
  end
  local channels, ids, ids_bytes, added = {}, {}, 0, {}
  for index = first, #events do
    local event = events[index]
    local topic, user, payload = event.topic, event.user, event.payload
    if event.same then
      event.epoch, event.offset, event.fault = event.same.epoch, event.same.offset, event.same.fault
    elseif not event.epoch and not event.fault then
      if channels[topic] == nil then channels[topic] = may_announce(name, head, topic, user) or false end
      local fault = channels[topic]
        or is_trim_read(head, #topic + #payload + ENTRY_BYTES) and may('XRANGE', name.log, '-', '+')
      local event_id
      if not fault then
        event_id, fault = append(name, head, topic, event.id, time, payload, event.origin, event ~= last)
      end
      if event_id then
        -- Another log has begun, which is known from here on.
        if head.began then write_head(name, head) end
        event.epoch, event.offset, event.is_new = head.epoch, head.offset_text, true
        event.header = header_of(head, event_id, event.origin)
        added[#added + 1] = event
        if event.own_id then
          ids[#ids + 1], ids[#ids + 2] = event.own_id, receipt_of(head, head.offset_text)
          ids_bytes = ids_bytes + #event.own_id + ID_BYTES
          if event.kept then keep_id(name, event.kept, event.own_id, receipt_of(head, head.offset_text)) end
        end
      else
        event.fault = fault
        -- In order or not at all: later events would otherwise overtake it.
        if find(fault.err, '^TRYAGAIN') then refuse_from(events, index + 1, fault) end
      end
    end
  end
  if #ids > 0 then remember_ids(name, head, ids_bytes, unpack(ids)) end
  if #added > 0 then
    write_head(name, head)
    for _, event in ipairs(added) do announce(head, event.topic, event.user, event.header, event.payload) end
  elseif known then
    -- As in `take`: a publisher that waits for replicas waits for this event too.
    call('HSET', known.key, known.own_id, known.receipt)
  end
end

-- The result of a batch: a line for each run of new events, each duplicate and each refused event.
local function told_batch(events)
  local lines, index = {}, 1
  while index <= #events do
    local event, count = events[index], 0
    if event.fault then
      lines[#lines + 1] = '-' .. string.gsub(event.fault.err, '%c', ' ')
    else
      while events[index + count] and events[index + count].is_new and events[index + count].epoch == event.epoch
      and tonumber(events[index + count].offset) == tonumber(event.offset) + count
    do
        count = count + 1
      end
      lines[#lines + 1] = event.epoch .. ' ' .. event.offset .. ' ' .. count
    end
    index = index + max(count, 1)
  end
  return table.concat(lines, '\n')
end

local function append_batch(keys, args)
  local name, wrong_key = names(keys)
  if not name then return wrong_key end
  if #args == 0 or #args % 4 ~= 0 or #args > 4 * MAX_BATCH_EVENTS then
    return refusal('invalid_request', {
      reason = 'expected topic, payload, id and by (each of these two may be empty) of 1 to ' .. MAX_BATCH_EVENTS .. ' events',
    })
  end
  local head, unreadable = read_head(name)
  if not head then return unreadable end
  local events, index, is_for_inbox = read_batch(head, args), 1, false
  for _, event in ipairs(events) do is_for_inbox = is_for_inbox or event.user and inbox.kind_of(event.topic, event.user) end
  -- One by one until this process writes the log, and for events that change inboxes.
  while index <= #events and (is_for_inbox or not head.exists or needs_epoch(head)) do
    local event = events[index]
    if not event.fault then
      local epoch, offset, duplicate =
        take(name, head, event.topic, event.user, event.payload, event.id, event.by, event.origin, true, event.for_s)
      if epoch then
        event.epoch, event.offset, event.is_new = epoch, offset, duplicate == 0
      else
        event.fault = offset
        if find(offset.err, '^TRYAGAIN') then refuse_from(events, index + 1, offset) end
      end
    end
    index = index + 1
  end
  if index <= #events then append_new(name, head, events, index) end
  return told_batch(events)
end

-- Configure, head, version ------------------------------------------------------------------------------------------------

local function bounded(text, low, high)
  local value = number(text)
  return value and value >= low and value <= high and value
end

-- Whether for long enough no gateway has called that expects events of users on the channels of topics.
local function is_older_gone(name, head)
  if name.is_older_there or not name.older_at then name.older_at, name.is_older_there = head.clock, nil end
  return head.clock - name.older_at >= OLDER_MS
end

-- Store the retention, and make sure that this process has begun the log's epoch. A gateway calls this at its start, to learn
-- at once the line of the next event.
local function configure(keys, args)
  local name, wrong_key = names(keys)
  if not name then return wrong_key end
  local max_events, max_age_ms = bounded(args[1], 1, 10000000), bounded(args[2], 1, 30 * 86400000)
  local max_payload_bytes = bounded(args[3], 1, HARD_MAX_PAYLOAD_BYTES)
  local has_max_bytes = (args[4] or '') ~= ''
  local max_bytes = not has_max_bytes or bounded(args[4], LEAST_MAX_BYTES, GREATEST_MAX_BYTES)
  local sharded = args[5] == 'sharded'
  local is_sharded_right = (args[5] or '') == '' or sharded
  local has_database, knows_users = args[6] ~= nil, args[7] == 'users'
  local database = not has_database or bounded(args[6], 0, MAX_DATABASE)
  if not (#args >= 3 and #args <= 7 and knows_users == (#args == 7) and is_sharded_right and database and max_events and max_age_ms and max_payload_bytes and max_bytes)
  then
    return refusal('invalid_request', {
      reason = 'expected max_events 1 to 10000000, max_age_ms 1 to 30 days, max_payload_bytes 1 to ' .. HARD_MAX_PAYLOAD_BYTES
        .. ', and perhaps max_bytes from ' .. LEAST_MAX_BYTES .. ' and then perhaps sharded, or nothing, a database, and users',
    })
  end
  local refused = may_open(name)
  if refused then return refused end
  local head, unreadable = read_head(name)
  if not head then return unreadable end
  local time = read_time(name, head)
  if not head.exists or newest_in_stream(name) > head.offset then
    refused = begin_log(name, head)
  elseif needs_epoch(head) then
    refused = begin_epoch(name, head)
  end
  if refused then return refused end
  head.time, head.time_text = time, whole(time)
  head.max_events, head.max_age_ms, head.max_payload_bytes, head.sharded = max_events, max_age_ms, max_payload_bytes, sharded
  if has_max_bytes then head.max_bytes = max_bytes end
  name.is_older_there = name.is_older_there or not knows_users
  head.alone = knows_users and (head.alone or is_older_gone(name, head))
  -- An older gateway does not send its database, and listens on the channels of 0.
  set_database(name, head, has_database and whole(database) or head.database == '-' and '0' or head.database)
  save_head(
    name, head, 'max_events', whole(max_events), 'max_age_ms', whole(max_age_ms), 'max_payload_bytes', whole(max_payload_bytes),
    'max_bytes', whole(head.max_bytes), 'sharded', sharded and '1' or '0'
  )
  write_head(name, head)
  return position(name, head, true, VERSION)
end

-- The head of the log. Creates nothing: without a log the epoch is empty and the offset 0.
local function head_position(keys, args)
  local name, wrong_key = names(keys)
  if not name then return wrong_key end
  end_reverted(args, 1)
  local head, unreadable = read_head(name)
  if not head then return unreadable end
  if not head.exists then
    return moving(name) or { '', 0, 1, 0, VERSION, false, this_server(), is_replica() }
  end
  -- A listener sends at least one epoch.
  local is_older = args[1] and args[#args] ~= 'users'
  name.is_older_there = name.is_older_there or is_older
  return position(name, head, args[1] and args[1] ~= head.epoch, is_older and head.alone and VERSION_WITHOUT_USERS or VERSION)
end

-- Upkeep ------------------------------------------------------------------------------------------------------------------

-- Report the time: in `epoch` a gateway received the clock's time `told`, `elapsed` ms ago by its own clock. Without room, also trim.
local function upkeep(keys, args, with_trim)
  local name, wrong_key = names(keys)
  if not name then return wrong_key end
  local epoch, told, elapsed = args[1], number(args[2]), number(args[3])
  if #args ~= 0 and not (#args == 3 and told and elapsed) then
    return refusal('invalid_request', { reason = 'expected nothing more, or an epoch, a time that was told in it, and how long ago' })
  end
  local head, unreadable = read_head(name)
  if not head then return unreadable end
  -- Until a new process of Redis begins its epoch, only the previous process knows the time.
  if not head.exists or needs_epoch(head) then return { '', 0, 0 } end
  local refused = may('HSET', name.head, 'clock', '')
    or with_trim and (may('XTRIM', name.log, 'MINID', '1') or may('UNLINK', name.id .. '1'))
  if refused then return refused end
  read_own(name, head)
  local elsewhere = in_cluster and moving(name, head)
  if elsewhere then return elsewhere end
  if epoch and epoch ~= head.epoch and not call('HMGET', name.epochs, epoch)[1] then told, elapsed = nil, nil end
  read_time(name, head, told, elapsed)
  drop_older_ids(name, head)
  if not head.alone and is_older_gone(name, head) then head.alone, head.own.unsaved = true, true end
  local before = head.first
  if with_trim then
    local first, first_time, first_sum = plan_trim(name, head, head.offset, head.sum)
    if first > before then call('XTRIM', name.log, 'MINID', '=', whole(first)) end
    head.first, head.first_time, head.first_sum = first, first_time, first_sum
    turn_ids(name, head)
    head.own.unsaved = true
  end
  if is_unsaved_head(head) then save_head(name, head) end
  return { head.epoch, head.clock, head.first - before }
end

-- Small writes ------------------------------------------------------------------------------------------------------------

-- What processes share, and what operators order, must get through while Redis is full. The caller bounds its key.
local SMALL_WRITES = { HSET = true, RPUSH = true, ZADD = true }

local function write_small(keys, args)
  if #keys ~= 1 or not SMALL_WRITES[args[1]] then
    return refusal('invalid_request', { reason = 'expected one key, and HSET, RPUSH or ZADD with its arguments' })
  end
  return try(args[1], keys[1], unpack(args, 2))
end

local function register(name, callback, flag)
  redis.register_function{
    function_name = name,
    callback = function(keys, args)
      return not call and bind() or callback(keys, args)
    end,
    flags = { flag },
  }
end

register('headgate_publish', function(keys, args) return publish(keys, args, false, as_list) end)
register('headgate_append', function(keys, args) return publish(keys, args, true, as_text) end)
register('headgate_append_batch', append_batch)
-- A full Redis must allow these: it stays full without a trim, and a gateway that cannot start does not trim.
register('headgate_configure', configure, 'allow-oom')
register('headgate_trim', function(keys, args) return upkeep(keys, args, true) end, 'allow-oom')
register('headgate_write', write_small, 'allow-oom')
register('headgate_tick', function(keys, args) return upkeep(keys, args, false) end)
register('headgate_head', head_position, 'no-writes')
register('headgate_inbox', inbox.page, 'no-writes')
register('headgate_version', function(_, args)
  if args[1] ~= 'server' then return VERSION end
  end_reverted(args, 2)
  local here = this_server()
  -- Matters only for a new server: the heads of a known one show whether it has become a replica.
  local is_known = #args % 2 == 0 and args[#args] == here
  return { VERSION, here, is_known and 0 or is_replica() }
end, 'no-writes')
