-- sysbench: updates of random rows of t, in a column that no index has.
sysbench.cmdline.options = {rows = {"Rows of the table", 1000000}}
function thread_init()
  drv = sysbench.sql.driver()
  con = drv:connect()
end
function event()
  con:query(string.format("update t set pad = repeat('%s', 190) where id = %d", string.char(97 + sysbench.rand.uniform(0, 25)), sysbench.rand.uniform(1, sysbench.opt.rows)))
end
