-- Inboxes: the items of events under users.<user>.inbox, and what the user has done with them. A part of log.lua, which calls it in the
-- step that appends an event. So an item exists if and only if its event has a receipt, and the count is always current.
--
-- In: an event on users.<user>.inbox.<kind>, which becomes an item; or one on users.<user>.inbox, a change of items:
--   {op: "read" | "unread" | "archive", ids: [1 to 100 ids of items]}
--   {op: "read_all", up_to?: offset, epoch?}      every item whose event is at or below that offset, as meant in that epoch; without
--                                                 both every item. Of an earlier epoch, what the log has of it since counts
--   {op: "mute", pattern, channels: ["page", …]}  the user wants no alerts about the pattern on exactly these channels
--   {op: "unmute", pattern}                       the user wants them again
-- Out: the items; and for a change the payload to log, with the new count `unread` and, for a mute or unmute, all muted
-- channels in `mutes`. The library's own events on users.<user>.inbox report what a page cannot know:
--   {op: "dropped", ids, unread}                  items that the bounds have pushed out: archived ones first, then the oldest
--   {op: "kept", id, at, unread}                  the event at offset `at` has the id of an item that is there: it changes nothing
--
-- An item's id is `<kind>/<id of its event>`. Keys: the hash hg:{N}:inbox:<user> has, by item id, `<state> <offset> <time>
-- <shift> <data>`, and in the field '' `<unread> <bytes> <clock of the oldest> <items> <clock of the last PEXPIRE>`; the sorted
-- set hg:{N}:inbox:<user>:order has the item ids by offset. The state is `u` (unread), `r` (read) or `a` (archived); the clock
-- of an item is its time and shift. The hash hg:{N}:inbox:<user>:mutes has the muted channels by pattern, `mail page push`. It
-- never ends, because it is the user's choice.

local inbox = {}

local MAX_INBOX_ITEMS, MAX_INBOX_BYTES, MAX_INBOX_AGE_MS = 1000, 2 * 1024 * 1024, 90 * 86400000
-- A full inbox drops a tenth at once, so that one event in a hundred reports it. These are the most items, and the most bytes of ids.
local MOST_DROPPED, MOST_DROPPED_BYTES = 100, 16384
local MAX_MUTES, CHANNELS = 64, { 'mail', 'page', 'push' }
local MAX_CHANGED, MAX_INBOX_PAGE, MAX_INBOX_PAGE_BYTES = 100, 100, 65536
-- The bytes of an item without its id and value, measured (docs/decisions/0070-inbox.md).
local ITEM_BYTES = 200
local STATE_AFTER = { read = { u = 'r' }, unread = { r = 'u', a = 'u' }, archive = { u = 'a', r = 'a' }, read_all = { u = 'r' } }
local FIELDS = {
  read = { 'ids' }, unread = { 'ids' }, archive = { 'ids' }, read_all = { 'up_to', 'epoch' }, mute = { 'channels', 'pattern' }, unmute = { 'pattern' },
}
-- How often the expiry of an inbox is extended.
local PUT_OFF_MS = 86400000

-- The kind of item for a user's topic; '' for a change, nil for any other topic.
function inbox.kind_of(topic, user)
  local at = #user + 7
  -- `i`: most events of users are not of inboxes, and comparing a byte creates no string.
  if byte(topic, at + 1) ~= 105 or string.sub(topic, at, at + 5) ~= '.inbox' then return end
  if #topic == at + 5 then return '' end
  return string.sub(topic, at + 6, at + 6) == '.' and string.sub(topic, at + 7) or nil
end

local function read_item(value)
  local state, offset, time, shift, from = match(value, '^(%l) (%d+) (%d+) (-?%d+) ()')
  return state, tonumber(offset), tonumber(time), tonumber(shift), from
end

-- The values of items, by their place in `ids`. `unpack` takes a few thousand at most.
local function values_of(key, ids)
  local values = {}
  for first = 1, #ids, 500 do
    local some = call('HMGET', key, unpack(ids, first, min(first + 499, #ids)))
    for place = 1, #some do values[first + place - 1] = some[place] end
  end
  return values
end

local function wrong_change(reason) return nil, refusal('invalid_request', { reason = 'inbox: ' .. reason }) end

local function is_pattern(text)
  if type(text) ~= 'string' or #text > MAX_TOPIC_BYTES then return false end
  local words = 0
  for word in string.gmatch(text .. '.', '([^.]*)%.') do
    if word ~= '*' and word ~= '#' and not find(word, '^[%w_-]+$') then return false end
    words = words + 1
  end
  return words <= MAX_TOPIC_WORDS
end

-- The channels of a mute in order, each once; nil if invalid.
local function read_channels(given)
  if type(given) ~= 'table' then return end
  local wanted, count, channels = {}, 0, {}
  for _, channel in pairs(given) do wanted[channel], count = true, count + 1 end
  for _, channel in ipairs(CHANNELS) do
    if wanted[channel] then channels[#channels + 1], wanted[channel] = channel, nil end
  end
  return count == #given and next(wanted) == nil and #channels > 0 and table.concat(channels, ' ') or nil
end

-- The parts of a change, read strictly. Returns nil and a refusal.
local function read_change(payload)
  local valid, change = pcall(cjson.decode, payload)
  if not valid or type(change) ~= 'table' then return wrong_change('expected a change such as {"op":"read","ids":["…"]}') end
  local op, ids, up_to = change.op, change.ids, change.up_to
  local fields = type(op) == 'string' and FIELDS[op]
  if not fields then return wrong_change('op: expected one of archive, mute, read, read_all, unmute, unread') end
  for member in pairs(change) do
    if member ~= 'op' and member ~= fields[1] and member ~= fields[2] then
      return wrong_change('unknown field ' .. shown(tostring(member)) .. '; known to ' .. op .. ': ' .. table.concat(fields, ', '))
    end
  end
  if op == 'mute' or op == 'unmute' then
    if not is_pattern(change.pattern) then
      return wrong_change('pattern: expected a pattern of at most ' .. MAX_TOPIC_WORDS .. ' words and ' .. MAX_TOPIC_BYTES .. ' bytes, such as orders.#')
    end
    local channels = op == 'mute' and read_channels(change.channels)
    if channels == nil then return wrong_change('channels: expected a list of some of mail, page, push') end
    return { op = op, pattern = change.pattern, channels = channels }
  end
  if op == 'read_all' then
    if up_to ~= nil and not (type(up_to) == 'number' and up_to >= 0 and up_to % 1 == 0 and up_to < 2 ^ 53) then
      return wrong_change('up_to: expected the offset of an event')
    end
    if change.epoch ~= nil and not (up_to and type(change.epoch) == 'string' and find(change.epoch, '^%x+$')) then
      return wrong_change('epoch: expected that of up_to')
    end
    return { op = op, up_to = up_to, epoch = change.epoch }
  end
  if type(ids) ~= 'table' or #ids < 1 or #ids > MAX_CHANGED then
    return wrong_change('ids: expected a list of 1 to ' .. MAX_CHANGED .. ' ids of items')
  end
  local seen, each = {}, {}
  for _, id in ipairs(ids) do
    if type(id) ~= 'string' or id == '' then return wrong_change('ids: expected the ids of items, as text') end
    if not seen[id] then seen[id], each[#each + 1] = true, id end
  end
  return { op = op, ids = each }
end

-- The effect of a mute or unmute, and all that is muted after it.
local function plan_mute(plan, change)
  local refused = may('HGETALL', plan.mutes) or may('HDEL', plan.mutes, '') or may('HSET', plan.mutes, '', '')
  if refused then return nil, refused end
  local flat, mutes, count = try('HGETALL', plan.mutes), {}, 0
  if flat.err then return nil, try_again(flat) end
  for place = 1, #flat, 2 do mutes[flat[place]], count = flat[place + 1], count + 1 end
  if change.channels and not mutes[change.pattern] and count >= MAX_MUTES then
    return nil, refusal('limit_reached', { name = 'mutes', limit = MAX_MUTES })
  end
  mutes[change.pattern] = change.channels or nil
  local lists = {}
  for pattern, channels in pairs(mutes) do
    lists[pattern] = {}
    for channel in string.gmatch(channels, '%a+') do table.insert(lists[pattern], channel) end
  end
  plan.muted, plan.channels = change.pattern, change.channels
  return ',"mutes":' .. cjson.encode(lists)
end

-- The newest offset that an earlier epoch shares with the log of now. Returns nil and a refusal if the log does not know the epoch.
local function end_of(name, epoch)
  local refused = may('HGETALL', name.epochs)
  if refused then return nil, refused end
  local flat, nth, following = try('HGETALL', name.epochs), nil, math.huge
  if flat.err then return nil, try_again(flat) end
  for place = 1, #flat, 2 do
    if flat[place] == epoch then nth = tonumber(match(flat[place + 1], ' (%d+)$')) end
  end
  if not nth then return wrong_change('epoch: the log knows it no longer: read the inbox, and mark what it has') end
  for place = 2, #flat, 2 do
    local first, at = match(flat[place], '^(%d+) (%d+)$')
    if tonumber(at) > nth then following = min(following, tonumber(first)) end
  end
  return following - 1
end

-- The effect of a change of items: `fields` to write, and `unread` after it.
local function plan_states(plan, change)
  local ids = change.ids
  if not ids then
    local last = change.up_to and whole(change.up_to) or '+inf'
    ids = call('ZRANGE', plan.order, '-inf', last, 'BYSCORE')
  end
  local after, fields, is_known = STATE_AFTER[change.op], {}, not change.ids
  for place, value in ipairs(values_of(plan.key, ids)) do
    if value then
      is_known = true
      local before = string.sub(value, 1, 1)
      local state = after[before]
      if state then
        fields[#fields + 1], fields[#fields + 2] = ids[place], state .. string.sub(value, 2)
        plan.unread = plan.unread + (state == 'u' and 1 or 0) - (before == 'u' and 1 or 0)
      end
    end
  end
  if not is_known then
    return wrong_change('ids: the inbox has no item ' .. shown(change.ids[1]) .. '; an id is <kind>/<id of the event>')
  end
  plan.fields = fields
  return ''
end

local function plan_change(name, head, plan)
  local change, wrong = read_change(plan.payload)
  if not change then return nil, wrong end
  if change.epoch then
    if change.epoch ~= head.epoch then
      local last
      last, wrong = end_of(name, change.epoch)
      if not last then return nil, wrong end
      change.up_to = min(change.up_to, last)
    end
    -- Pages that show the event know nothing of the epoch.
    plan.payload = '{"op":"read_all","up_to":' .. whole(change.up_to) .. '}'
  end
  local after
  after, wrong = (change.pattern and plan_mute or plan_states)(plan, change)
  if not after then return nil, wrong end
  plan.payload = match(plan.payload, '^(.*)}%s*$') .. ',"unread":' .. whole(plan.unread) .. after .. '}'
  local refused = size_fault(head, plan.payload)
  if refused then return nil, refused end
  return plan
end

-- Read an inbox before the first write of an event for it. Returns a plan with the payload to append, or nil and an error.
function inbox.plan(name, head, user, kind, id, payload)
  local key = name.tag .. ':inbox:' .. user
  local order = key .. ':order'
  local refused = may('HSET', key, '', '') or kind ~= '' and may('ZADD', order, '1', '') or (in_cluster or head.sharded) and moving(name, head)
  if refused then return nil, refused end
  -- An event without an id gets a new one.
  local found = try('HMGET', key, '', kind .. '/' .. (id or ''))
  if found.err then return nil, try_again(found) end
  local unread, bytes, oldest, items, put_off = match(found[1] or '0 0 0 0 0', '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
  local plan = {
    key = key, order = order, mutes = key .. ':mutes', fields = {}, user = user, kind = kind, payload = payload, is_there = found[2],
    unread = tonumber(unread), bytes = tonumber(bytes), oldest = tonumber(oldest), items = tonumber(items), put_off = tonumber(put_off),
  }
  if kind == '' then return plan_change(name, head, plan) end
  return plan
end

local function counts_of(plan)
  return format('%.0f %.0f %.0f %.0f %.0f', plan.unread, plan.bytes, plan.oldest, plan.items, plan.put_off)
end

-- Append an event of the library's own after the one that caused it. If that fails, the next count corrects it.
local function report_inbox(name, head, plan, body)
  local topic = 'users.' .. plan.user .. '.inbox'
  body.unread = plan.unread
  local payload = cjson.encode(body)
  local event_id = append(name, head, topic, nil, head.time, payload)
  if not event_id then return end
  write_head(name, head)
  announce(head, topic, plan.user, header_of(head, event_id), payload)
end

-- Drop the items beyond the bounds, but never the newest one.
local function drop_surplus(name, head, plan)
  local oldest_at = head.clock - MAX_INBOX_AGE_MS
  if plan.items <= MAX_INBOX_ITEMS and plan.bytes <= MAX_INBOX_BYTES and plan.oldest >= oldest_at then return end
  if may('HDEL', plan.key, '') or may('ZREM', plan.order, '') or may('ZRANGE', plan.order, '0', '-1') then return end
  local most = plan.items > MAX_INBOX_ITEMS and floor(MAX_INBOX_ITEMS * 0.9) or MAX_INBOX_ITEMS
  local most_bytes = plan.bytes > MAX_INBOX_BYTES and floor(MAX_INBOX_BYTES * 0.9) or MAX_INBOX_BYTES
  local ids = call('ZRANGE', plan.order, '0', '-1')
  local values = values_of(plan.key, ids)
  local dropped, gone, size, oldest = {}, {}, 0, head.clock
  local function drop(place)
    local id, value = ids[place], values[place] or 'a 0 0 0 '
    if #dropped >= MOST_DROPPED or size + #id > MOST_DROPPED_BYTES then return end
    dropped[#dropped + 1], gone[place], size = id, true, size + #id
    plan.items, plan.bytes = plan.items - 1, max(0, plan.bytes - #id - #value - ITEM_BYTES)
    if string.sub(value, 1, 1) == 'u' then plan.unread = plan.unread - 1 end
  end
  for pass = 1, 3 do
    for place = 1, #ids - 1 do
      local state, _, time, shift = read_item(values[place] or 'a 0 0 0 ')
      local is_over = pass == 1 and time + shift < oldest_at
        or pass > 1 and (plan.items > most or plan.bytes > most_bytes) and (pass == 3 or state == 'a')
      if is_over and not gone[place] then drop(place) end
    end
  end
  for place = 1, #ids do
    if not gone[place] and values[place] then
      local _, _, time, shift = read_item(values[place])
      oldest = min(oldest, time + shift)
    end
  end
  plan.oldest = oldest
  if #dropped == 0 then return end
  call('HDEL', plan.key, unpack(dropped))
  call('ZREM', plan.order, unpack(dropped))
  call('HSET', plan.key, '', counts_of(plan))
  report_inbox(name, head, plan, { op = 'dropped', ids = dropped })
end

-- Carry out the plan, after its event has been appended.
function inbox.apply(name, head, plan, event_id)
  if plan.kind == '' then
    for first = 1, #plan.fields, 1000 do
      call('HSET', plan.key, unpack(plan.fields, first, min(first + 999, #plan.fields)))
    end
    if plan.items > 0 then call('HSET', plan.key, '', counts_of(plan)) end
    if plan.channels then call('HSET', plan.mutes, plan.muted, plan.channels) end
    if plan.channels == false then call('HDEL', plan.mutes, plan.muted) end
    return
  end
  local id, offset, clock = plan.kind .. '/' .. event_id, head.offset, head.clock
  if plan.is_there then
    return report_inbox(name, head, plan, { op = 'kept', id = id, at = offset })
  end
  local value = 'u ' .. head.offset_text .. ' ' .. head.time_text .. ' ' .. whole(clock - head.time) .. ' ' .. plan.payload
  plan.oldest = plan.items == 0 and clock or plan.oldest
  plan.unread, plan.bytes, plan.items = plan.unread + 1, plan.bytes + #id + #value + ITEM_BYTES, plan.items + 1
  local is_put_off = plan.items == 1 or clock - plan.put_off >= PUT_OFF_MS
  if is_put_off then plan.put_off = clock end
  call('HSET', plan.key, id, value, '', counts_of(plan))
  call('ZADD', plan.order, head.offset_text, id)
  if is_put_off and not (may('PEXPIRE', plan.key, '1') or may('PEXPIRE', plan.order, '1')) then
    call('PEXPIRE', plan.key, whole(MAX_INBOX_AGE_MS + PUT_OFF_MS))
    call('PEXPIRE', plan.order, whole(MAX_INBOX_AGE_MS + PUT_OFF_MS))
  end
  drop_surplus(name, head, plan)
end

-- A page of an inbox, newest first, with at least one item and at most so many items or bytes: [epoch, offset of the log,
-- unread, all items, start of the next page or 0, muted patterns and channels, id, value, …].
function inbox.page(keys, args)
  local name, wrong_key = names(keys)
  if not name then return wrong_key end
  local user, before, limit = args[1] or '', args[2], number(args[3])
  if #args ~= 4 or not find(user, '^[%w_-]+$') or before ~= '' and not number(before) or not limit or limit < 1 or limit > MAX_INBOX_PAGE
  then
    return refusal('invalid_request', {
      reason = 'expected the word of a user, an offset or nothing, a limit from 1 to ' .. MAX_INBOX_PAGE .. ', and archived or nothing',
    })
  end
  local head, unreadable = read_head(name)
  if not head then return unreadable end
  local key = name.tag .. ':inbox:' .. user
  local order, last = key .. ':order', before ~= '' and '(' .. before or '+inf'
  local elsewhere = (in_cluster or head.sharded) and moving(name, head)
  if elsewhere then return elsewhere end
  local unread = tonumber(match(call('HMGET', key, '')[1] or '', '^%d+')) or 0
  local answer = { head.epoch, head.offset or 0, unread, call('ZCARD', order), 0, call('HGETALL', key .. ':mutes') }
  local shown_last, size = nil, 0
  while true do
    local scored = call('ZRANGE', order, last, '-inf', 'BYSCORE', 'REV', 'LIMIT', '0', whole(limit), 'WITHSCORES')
    local ids = {}
    for at = 1, #scored, 2 do ids[#ids + 1] = scored[at] end
    for place, value in ipairs(values_of(key, ids)) do
      local state = value and string.sub(value, 1, 1)
      if state and (state ~= 'a' or args[4] == 'archived') then
        size = size + #value
        if #answer == 6 + 2 * limit or shown_last and size > MAX_INBOX_PAGE_BYTES then
          answer[5] = tonumber(shown_last)
          return answer
        end
        shown_last = scored[2 * place]
        answer[#answer + 1], answer[#answer + 2] = ids[place], value
      end
    end
    if #ids < limit then return answer end
    last = '(' .. scored[#scored]
  end
end
