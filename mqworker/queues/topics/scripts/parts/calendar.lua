-- calendar: instants as the dates that Go programs write, in UTC.

local WEEKDAYS = { 'Thu', 'Fri', 'Sat', 'Sun', 'Mon', 'Tue', 'Wed' } -- 1970 began on a Thursday
local MONTHS = { 'Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec' }
local MONTH_DAYS = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 }

local function is_leap(year)
  return year % 4 == 0 and (year % 100 ~= 0 or year % 400 == 0)
end

-- year, month, day of the month; a loop over some decades, for it is read more often than it costs
local function date_of(days)
  local year, month = 1970, 1
  while days >= (is_leap(year) and 366 or 365) do
    days = days - (is_leap(year) and 366 or 365)
    year = year + 1
  end
  local function length()
    return MONTH_DAYS[month] + (month == 2 and is_leap(year) and 1 or 0)
  end
  while days >= length() do
    days = days - length()
    month = month + 1
  end
  return year, month, days + 1
end

local function time_of_day(seconds)
  local second = seconds % 86400
  return string.format('%02d:%02d:%02d', math.floor(second / 3600), math.floor(second / 60) % 60, second % 60)
end

-- Sun Nov 15 23:40:23 UTC 2026
local function unix_date(seconds)
  local days = math.floor(seconds / 86400)
  local year, month, day = date_of(days)
  return string.format(
    '%s %s %2d %s UTC %d', WEEKDAYS[days % 7 + 1], MONTHS[month], day, time_of_day(seconds), year
  )
end

-- 2026-11-15 23:40:23.5 +0000 UTC
local function go_time(seconds, microseconds)
  local year, month, day = date_of(math.floor(seconds / 86400))
  local fraction = string.gsub(string.format('.%06d', microseconds), '%.?0*$', '')
  return string.format('%d-%02d-%02d %s%s +0000 UTC', year, month, day, time_of_day(seconds), fraction)
end
