-- A clock of the data, part of each function library (functions.py inserts it). It measures elapsed time, not the time of day.
--
-- Redis offers only the wall clock, which people and time servers set, forwards and back. This clock runs with it and differs from
-- it by a `shift`. It never goes back. It leaps, by more than LEAP_MS, only if a leap is proven or no watcher can contradict it:
--
-- - If the wall clock goes back, this clock continues from where it was.
-- - If the wall clock leaps ahead, either it was set, or no call came for that long. This is in doubt at first, and this clock
--   continues as if the wall clock had been set.
-- - A watcher calls every few seconds with the last time that it received, and the time since then by its own monotonic clock.
--   This settles a doubt about the time in between, and adds what this clock has missed.
-- - If no watcher with a time from before the leap calls within GRACE_MS, there was none, and the wall clock counts.
--
-- docs/decisions/0020-time.md has the argument. This file makes no call of Redis: the caller passes the wall clock, and saves the
-- clock when `is_unsaved` says so.

local LEAP_MS, GRACE_MS = 10000, 20000
-- The most time, already reported to watchers, that may be lost with the process.
local SAVE_MS = 10000
-- The most that one proof moves the clock.
local MAX_PROOF_MS = 31 * 86400000

-- Start a clock, or continue a saved one. No watcher ever received a time above `saved` + SAVE_MS.
local function start_clock(wall, saved, shift)
  local last = wall - (shift or 0)
  if saved then last = math.max(saved, math.min(last, saved + SAVE_MS)) end
  return { last = last, shift = shift or 0, doubt = 0, since = 0, saved = saved, steps = 0 }
end

-- Ignore small shifts: the clock then stands still, or leaps, for LEAP_MS at most.
local function set_shift(clock, shift)
  clock.shift = math.abs(shift) > LEAP_MS and shift or 0
  clock.steps, clock.saved = clock.steps + 1, nil
end

-- Follow the wall clock since the last call.
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
      -- No watcher has called since the previous leap, for that long.
      set_shift(clock, clock.shift - clock.doubt)
      clock.last, clock.doubt = clock.last + clock.doubt, 0
    end
    if clock.doubt == 0 then clock.since = clock.last end
    -- One more, to distinguish times reported from now on from earlier ones.
    clock.doubt = clock.doubt + gone - 1
    set_shift(clock, clock.shift + gone - 1)
    return clock.last + 1
  end
  return now
end

-- The time now (ms). `told`, `elapsed`: the time that the caller last received, and how long ago (ms).
local function read_clock(clock, wall, told, elapsed)
  -- The usual case: the wall clock has advanced a little, and nothing is in doubt. The rest would give the same time.
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

-- Whether the caller should save `last` and `shift` now.
local function is_unsaved(clock)
  return not clock.saved or clock.last - clock.saved >= SAVE_MS
end
