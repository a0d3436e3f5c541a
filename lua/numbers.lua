-- Numbers. Lua has only doubles. Every integer here stays below 2^53, where doubles are exact (law 10). Bytes are
-- big-endian. Only string.byte and string.char are used, because some servers have no struct library.
--
-- This is the first part of the decision script. The parts are one Lua chunk, joined by lua.go: the locals of a
-- part are visible in all later parts. They stand in this order:
--
--   numbers, state, sliding_log, log_ring, log_zset, sliding_counter, gcra, fixed_window, concurrent,
--   lease, hold, frame
--
--   takes  nothing
--   gives  byte, char, sub, rep, find, gsub, format, concat, floor, call, pcall, once import() has
--          run; unpack_int, unpack_time, pack_int, pack_time, bytes_of, divide_up, whole, muldiv,
--          muldiv_up

-- These are set at the beginning of the first run: while a library of functions is being loaded, Redis hides them
-- from it.
local byte, char, sub, rep, find, gsub, format, concat, floor, call, pcall

local function import()
  byte, char, sub, rep, find, gsub = string.byte, string.char, string.sub, string.rep, string.find, string.gsub
  format, concat, floor = string.format, table.concat, math.floor
  call, pcall = redis.call, redis.pcall
end

-- The unsigned integer in the w bytes (up to 7) of text that start at position from. The loop is unrolled, because
-- this function and pack_int are most of the cost of a decision.
local function unpack_int(text, from, w)
  local n, b, c, d, e, f, g = byte(text, from, from + w - 1)
  if b then n = n * 256 + b end
  if c then n = n * 256 + c end
  if d then n = n * 256 + d end
  if e then n = n * 256 + e end
  if f then n = n * 256 + f end
  if g then n = n * 256 + g end
  return n
end

-- The same for 7 bytes, because most numbers are times.
local function unpack_time(text, from)
  local a, b, c, d, e, f, g = byte(text, from, from + 6)
  return (((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g
end

-- n as w bytes, up to 7.
local function pack_int(n, w)
  local g = n % 256
  if w == 1 then return char(g) end
  n = (n - g) / 256
  local f = n % 256
  if w == 2 then return char(f, g) end
  n = (n - f) / 256
  local e = n % 256
  n = (n - e) / 256
  local d = n % 256
  if w == 4 then return char(d, e, f, g) end
  n = (n - d) / 256
  local c = n % 256
  if w == 5 then return char(c, d, e, f, g) end
  n = (n - c) / 256
  local b = n % 256
  if w == 6 then return char(b, c, d, e, f, g) end
  local text = char((n - b) / 256, b, c, d, e, f, g)
  if w == 7 then return text end
  return sub(text, 8 - w)
end

-- A number's 7 bytes. Many times share their upper four bytes, which change every 17 s, with the time before, so
-- these are kept.
local high, high_a, high_b, high_c, high_d = -1, 0, 0, 0, 0
local function bytes_of(n)
  local low = n % 16777216
  local g = low % 256
  local f = (low - g) % 65536
  if n == low then
    return 0, 0, 0, 0, (low - f - g) / 65536, f / 256, g
  elseif n - low ~= high then
    high = n - low
    local m = high / 16777216
    high_d = m % 256
    m = (m - high_d) / 256
    high_c = m % 256
    m = (m - high_c) / 256
    high_b = m % 256
    high_a = (m - high_b) / 256
  end
  return high_a, high_b, high_c, high_d, (low - f - g) / 65536, f / 256, g
end

local function pack_time(n)
  return n == 0 and '\0\0\0\0\0\0\0' or char(bytes_of(n))
end

-- x/m rounded up, for whole numbers, without a call of math.ceil.
local function divide_up(x, m)
  local r = x % m
  if r == 0 then
    return x / m
  end
  return (x - r) / m + 1
end

-- Returns the whole number, from 0 to below 2^53, that a text stands for, or nothing if it is no such number.
local function whole(text)
  local n = type(text) == 'string' and tonumber(text)
  if n and n >= 0 and n < 9007199254740992 and n % 1 == 0 then
    return n
  end
end

-- floor(x*y/m) and (x*y) mod m, exact although x*y may be far above 2^53. Needs y and m below 2^45:
-- then 128*m + 127*y is below 2^53, and x can be processed seven bits at a time, as in long
-- division.
local function muldiv(x, y, m)
  if x == 0 or y < 9007199254740992 / x then
    local p = x * y
    return floor(p / m), p % m
  end
  local place = 1
  while place * 128 <= x do
    place = place * 128
  end
  local quotient, remainder = 0, 0
  while place >= 1 do
    local digit = floor(x / place)
    x = x % place
    local p = remainder * 128 + digit * y
    quotient = quotient * 128 + floor(p / m)
    remainder = p % m
    place = place / 128
  end
  return quotient, remainder
end

-- The quotient of muldiv, rounded up.
local function muldiv_up(x, y, m)
  local quotient, remainder = muldiv(x, y, m)
  if remainder > 0 then
    return quotient + 1
  end
  return quotient
end
