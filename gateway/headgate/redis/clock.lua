-- A clock of the data, part of each function library (functions.py puts it in). It measures how long ago, and never says when.
--
-- Redis can be asked for the wall clock only, which people and time servers set, forwards and back. This clock runs with it and
-- differs from it by a `shift`. It never goes back. It leaps, by more than LEAP_MS, only when a leap is proven or nobody is there
-- to know better:
--
-- - If the wall clock goes back, this clock goes on from where it was.
-- - If the wall clock leaps ahead, it was set, or nobody has called for so long. Which of these is in doubt at first, and this clock
--   goes on as if it had been set.
-- - Whoever watches the time calls every few seconds, and says which time it was told before, and how long ago by its own monotonic
--   clock. This decides a doubt about what lies in between, and makes good what this clock has not seen.
-- - If nobody who was told a time before the leap calls within GRACE_MS, nobody was there, and the wall clock is believed.
--
-- docs/decisions/0020-time.md has the argument. No call of Redis is made here: the caller brings the wall clock, and keeps what
-- `is_unsaved` says is to be kept.

local LEAP_MS, GRACE_MS = 10000, 20000
-- How much of the time that was told may be lost with the process.
local SAVE_MS = 10000
-- The most that one proof moves the clock.
local MAX_PROOF_MS = 31 * 86400000

-- A clock that begins, or goes on from what was saved of it. No watcher was ever told a time above `saved` + SAVE_MS.
local function start_clock(wall, saved, shift)
  local last = wall - (shift or 0)
  if saved then last = math.max(saved, math.min(last, saved + SAVE_MS)) end
  return { last = last, shift = shift or 0, doubt = 0, since = 0, saved = saved, steps = 0 }
end

-- Small differences are not worth a shift: the clock stands still, or leaps, for LEAP_MS at the most.
local function set_shift(clock, shift)
  clock.shift = math.abs(shift) > LEAP_MS and shift or 0
  clock.steps, clock.saved = clock.steps + 1, nil
end

-- Notice what the wall clock has done since the last call.
local function advance_clock(clock, wall)
  local now = wall - clock.shift
  local gone = now - clock.last
  if gone < 0 then
    if gone < -LEAP_MS then
      clock.doubt = math.max(0, clock.doubt + gone)
      set_shift(clock, clock.shift + gone)
    end
    return clock.last
  elseif gone > LEAP_MS then
    if clock.doubt > 0 and gone >= GRACE_MS then
      -- Nobody has spoken up since the leap before, for so long.
      set_shift(clock, clock.shift - clock.doubt)
      clock.last, clock.doubt = clock.last + clock.doubt, 0
    end
    if clock.doubt == 0 then clock.since = clock.last end
    -- One more, so that a time that is told from now on is not taken for one that was told before.
    clock.doubt = clock.doubt + gone - 1
    set_shift(clock, clock.shift + gone - 1)
    return clock.last + 1
  end
  return now
end

-- The time now (ms). `told` and `elapsed`, if given: the caller was told that time, so long ago.
local function read_clock(clock, wall, told, elapsed)
  -- Mostly the wall clock has gone on a little, and nothing is in doubt. The rest would come to the same time.
  local now = wall - clock.shift
  if not told and clock.doubt == 0 and now >= clock.last and now - clock.last <= LEAP_MS then
    clock.last = now
    return now
  end
  now = advance_clock(clock, wall)
  if told then
    local lacking = math.min(told + elapsed - now, MAX_PROOF_MS)
    if clock.doubt > 0 and (told <= clock.since or told > now) then
      if lacking + LEAP_MS >= clock.doubt then lacking = clock.doubt end
      set_shift(clock, clock.shift - math.max(0, lacking))
      clock.doubt = 0
    elseif lacking > LEAP_MS then
      set_shift(clock, clock.shift - lacking)
    end
  elseif clock.doubt > 0 and now - clock.since >= GRACE_MS then
    set_shift(clock, clock.shift - clock.doubt)
    clock.doubt = 0
  end
  clock.last = math.max(now, wall - clock.shift)
  return clock.last
end

-- Whether the clock is to be saved now: `last` and `shift`.
local function is_unsaved(clock)
  return not clock.saved or clock.last - clock.saved >= SAVE_MS
end
