-- Numbers. Lua has doubles only; every integer here stays below 2^53, where
-- doubles count without gaps (law 10). Bytes are big-endian. Only string.byte
-- and string.char are used: some servers have no struct library.

local byte, char, sub, rep, floor = string.byte, string.char, string.sub, string.rep, math.floor

-- The unsigned integer in the w bytes of text that start at position from.
local function unpack_int(text, from, w)
  local n = 0
  for i = from, from + w - 1 do
    n = n * 256 + byte(text, i)
  end
  return n
end

-- n as w bytes.
local function pack_int(n, w)
  local text = ''
  for _ = 1, w do
    text = char(n % 256) .. text
    n = floor(n / 256)
  end
  return text
end

-- floor(x*y/m) and (x*y) mod m, exact although x*y may be far above 2^53.
-- Needs y and m below 2^45: then 128*m + 127*y is below 2^53, and x can be
-- worked off seven bits at a time, as in long division.
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

-- As muldiv, rounded up.
local function muldiv_up(x, y, m)
  local quotient, remainder = muldiv(x, y, m)
  if remainder > 0 then
    return quotient + 1
  end
  return quotient
end
