-- sysbench: the insert benchmark. Rows come at the head of a table with three random secondary keys.
sysbench.cmdline.options = {
  role = {"head: inserts; churn: inserts at the head, and deletes as many at the tail; tail: reads the oldest rows", "head"},
}
local BATCH = 100
function thread_init()
  drv = sysbench.sql.driver()
  con = drv:connect()
end
function sysbench.hooks.before_restart_event() con:query("rollback") end
local function insert()
  local rows = {}
  for i = 1, BATCH do
    local function key() return sysbench.rand.uniform(1, 2000000000) end
    rows[i] = string.format("(%d,%d,%d,'%s')", key(), key(), key(), string.rep(string.char(97 + i % 26), 100))
  end
  con:query("insert into events (a, b, c, data) values " .. table.concat(rows, ","))
end
function event()
  if sysbench.opt.role == "tail" then
    con:query("select id, a, data from events order by id limit 10")
  elseif sysbench.opt.role == "churn" then
    con:query("begin")
    insert()
    con:query("delete from events order by id limit " .. BATCH)
    con:query("commit")
  else
    insert()
  end
end
