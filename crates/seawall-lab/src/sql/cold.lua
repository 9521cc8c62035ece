-- sysbench: sums over ranges of 30,000 rows of a table larger than the pool, or joins of 10,000 of its rows.
sysbench.cmdline.options = {
  rows = {"Rows of the table", 5000000},
  load = {"The table, fragmented or in_order; or join, by a secondary index of the first", "fragmented"},
}
function thread_init()
  drv = sysbench.sql.driver()
  con = drv:connect()
  numbers = math.min(sysbench.opt.rows, 1000000)
  if sysbench.opt.load == "join" then con:query("set join_cache_level = 6, join_buffer_size = 4194304, optimizer_switch = 'mrr=on,mrr_sort_keys=on'") end
end
function event()
  if sysbench.opt.load == "join" then
    local from = sysbench.rand.uniform(1, numbers - 10000)
    con:query(string.format("select sum(length(t.pad)) from numbers n straight_join fragmented t on t.k = n.n where n.id between %d and %d", from, from + 9999))
  else
    local from = sysbench.rand.uniform(1, sysbench.opt.rows - 30000)
    con:query(string.format("select sum(k) from %s force index (primary) where id between %d and %d", sysbench.opt.load, from, from + 29999))
  end
end
