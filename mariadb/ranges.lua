-- sysbench: sums over ranges of 30,000 rows of a table larger than the pool, or joins of 10,000 of its rows.
sysbench.cmdline.options = {
  rows = {"Rows of the table", 5000000},
  join = {"Joins by a secondary index instead of sums", false},
}
function thread_init()
  drv = sysbench.sql.driver()
  con = drv:connect()
  if sysbench.opt.join then con:query("set join_cache_level = 6, join_buffer_size = 4194304, optimizer_switch = 'mrr=on,mrr_sort_keys=on'") end
end
function event()
  if sysbench.opt.join then
    local from = sysbench.rand.uniform(1, 990000)
    con:query(string.format("select sum(length(t.pad)) from numbers n straight_join t on t.k = n.n where n.id between %d and %d", from, from + 9999))
  else
    local from = sysbench.rand.uniform(1, sysbench.opt.rows - 30000)
    con:query(string.format("select sum(k) from t where id between %d and %d", from, from + 29999))
  end
end
