-- TPC-C for sysbench: the nine tables, the five transactions in their shares, and the consistency conditions 1 to 4 of clause 3.3.2.
-- prepare with several threads; run; check fails with the condition that does not hold. No keying and think times: sysbench's rate.
sysbench.cmdline.options = {
  warehouses = {"Warehouses", 1},
  storage_engine = {"Storage engine", "InnoDB"},
}
local ITEMS, DISTRICTS, CUSTOMERS, ORDERS = 100000, 10, 3000, 3000
local uniform = sysbench.rand.uniform
local format = string.format
local NAMES = {"BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"}
local letters = string.rep("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", 12)

local function text(least, most)
  local length, from = uniform(least, most), uniform(1, 62)
  return letters:sub(from, from + length - 1)
end
local function last_name(number)
  return NAMES[math.floor(number / 100) + 1] .. NAMES[math.floor(number / 10) % 10 + 1] .. NAMES[number % 10 + 1]
end
-- The non-uniform distribution of clause 2.1.6, with constant C = 0.
local function skewed(a, low, high)
  return bit.bor(uniform(0, a), uniform(low, high)) % (high - low + 1) + low
end

local TABLES = {
  [[warehouse (w_id smallint primary key, w_name varchar(10), w_address char(60), w_tax decimal(4,4), w_ytd decimal(14,2))]],
  [[district (d_w_id smallint, d_id tinyint, d_name varchar(10), d_address char(60), d_tax decimal(4,4), d_ytd decimal(14,2), d_next_o_id int,
     primary key (d_w_id, d_id))]],
  [[customer (c_w_id smallint, c_d_id tinyint, c_id smallint, c_first varchar(16), c_middle char(2), c_last varchar(16), c_address char(60),
     c_phone char(16), c_since datetime, c_credit char(2), c_credit_lim decimal(12,2), c_discount decimal(4,4), c_balance decimal(12,2),
     c_ytd_payment decimal(12,2), c_payment_cnt smallint, c_delivery_cnt smallint, c_data varchar(500),
     primary key (c_w_id, c_d_id, c_id), key by_name (c_w_id, c_d_id, c_last, c_first))]],
  [[history (h_c_id smallint, h_c_d_id tinyint, h_c_w_id smallint, h_d_id tinyint, h_w_id smallint, h_date datetime, h_amount decimal(6,2),
     h_data varchar(24))]],
  [[new_order (no_w_id smallint, no_d_id tinyint, no_o_id int, primary key (no_w_id, no_d_id, no_o_id))]],
  [[orders (o_w_id smallint, o_d_id tinyint, o_id int, o_c_id smallint, o_entry_d datetime, o_carrier_id tinyint, o_ol_cnt tinyint,
     o_all_local tinyint, primary key (o_w_id, o_d_id, o_id), key by_customer (o_w_id, o_d_id, o_c_id, o_id))]],
  [[order_line (ol_w_id smallint, ol_d_id tinyint, ol_o_id int, ol_number tinyint, ol_i_id int, ol_supply_w_id smallint,
     ol_delivery_d datetime, ol_quantity tinyint, ol_amount decimal(6,2), ol_dist_info char(24),
     primary key (ol_w_id, ol_d_id, ol_o_id, ol_number))]],
  [[item (i_id int primary key, i_im_id int, i_name varchar(24), i_price decimal(5,2), i_data varchar(50))]],
  [[stock (s_w_id smallint, s_i_id int, s_quantity smallint, s_dist_01 char(24), s_dist_02 char(24), s_dist_03 char(24), s_dist_04 char(24),
     s_dist_05 char(24), s_dist_06 char(24), s_dist_07 char(24), s_dist_08 char(24), s_dist_09 char(24), s_dist_10 char(24), s_ytd int,
     s_order_cnt smallint, s_remote_cnt smallint, s_data varchar(50), primary key (s_w_id, s_i_id))]],
}

-- ---- the rows of the beginning -----------------------------------------------------------------------------------------

local function fill(con, name, rows)
  con:bulk_insert_init("insert into " .. name .. " values ")
  rows(function(...) con:bulk_insert_next(format(...)) end)
  con:bulk_insert_done()
end

local function fill_warehouse(con, w)
  con:query(format("insert into warehouse values (%d, 'w%d', '%s', 0.%04d, 300000)", w, w, text(60, 60), uniform(0, 2000)))
  fill(con, "stock", function(add)
    for i = 1, ITEMS do
      local d = text(24, 24)
      add("(%d,%d,%d,'%s','%s','%s','%s','%s','%s','%s','%s','%s','%s',0,0,0,'%s')", w, i, uniform(10, 100), d, d, d, d, d, d, d, d, d, d, text(26, 50))
    end
  end)
  for d = 1, DISTRICTS do
    con:query(format("insert into district values (%d, %d, 'd%d', '%s', 0.%04d, 30000, %d)", w, d, d, text(60, 60), uniform(0, 2000), ORDERS + 1))
    fill(con, "customer", function(add)
      for c = 1, CUSTOMERS do
        add("(%d,%d,%d,'%s','OE','%s','%s','%s',now(),'%s',50000,0.%04d,-10,10,1,0,'%s')", w, d, c, text(8, 16),
          last_name(c <= 1000 and c - 1 or skewed(255, 0, 999)), text(60, 60), text(16, 16), uniform(1, 10) == 1 and "BC" or "GC", uniform(0, 5000), text(300, 500))
      end
    end)
    fill(con, "history", function(add)
      for c = 1, CUSTOMERS do add("(%d,%d,%d,%d,%d,now(),10,'%s')", c, d, w, d, w, text(12, 24)) end
    end)
    -- Each customer has one order, in random order: multiples of a number that shares no factor with their number.
    local lines = {}
    fill(con, "orders", function(add)
      for o = 1, ORDERS do
        lines[o] = uniform(5, 15)
        add("(%d,%d,%d,%d,now(),%s,%d,1)", w, d, o, (o * 1789) % CUSTOMERS + 1, o <= 2100 and uniform(1, 10) or "null", lines[o])
      end
    end)
    fill(con, "new_order", function(add)
      for o = 2101, ORDERS do add("(%d,%d,%d)", w, d, o) end
    end)
    fill(con, "order_line", function(add)
      for o = 1, ORDERS do
        for n = 1, lines[o] do
          add("(%d,%d,%d,%d,%d,%d,%s,5,%s,'%s')", w, d, o, n, uniform(1, ITEMS), w, o <= 2100 and "now()" or "null",
            o <= 2100 and "0" or format("%d.%02d", uniform(0, 9999), uniform(0, 99)), text(24, 24))
        end
      end
    end)
  end
end

local function create()
  local con = sysbench.sql.driver():connect()
  for _, columns in ipairs(TABLES) do con:query(format("create table %s engine=%s charset=latin1", columns, sysbench.opt.storage_engine)) end
  fill(con, "item", function(add)
    for i = 1, ITEMS do add("(%d,%d,'%s',%d.%02d,'%s')", i, uniform(1, 10000), text(14, 24), uniform(1, 99), uniform(0, 99), text(26, 50)) end
  end)
end
local function prepare()
  local con = sysbench.sql.driver():connect()
  for w = sysbench.tid + 1, sysbench.opt.warehouses, sysbench.opt.threads do fill_warehouse(con, w) end
end

-- ---- the conditions of consistency -------------------------------------------------------------------------------------

local CONDITIONS = {
  {"1: W_YTD is the sum of D_YTD", "select count(*) from warehouse where w_ytd <> (select sum(d_ytd) from district where d_w_id = w_id)"},
  {"2: D_NEXT_O_ID - 1 is the greatest order, and the greatest new order", [[select count(*) from district
     where d_next_o_id - 1 <> (select max(o_id) from orders where o_w_id = d_w_id and o_d_id = d_id)
     or d_next_o_id - 1 <> ifnull((select max(no_o_id) from new_order where no_w_id = d_w_id and no_d_id = d_id), d_next_o_id - 1)]]},
  {"3: the new orders have no gaps", [[select count(*) from (select max(no_o_id) - min(no_o_id) + 1 - count(*) gaps
     from new_order group by no_w_id, no_d_id) g where gaps <> 0]]},
  {"4: O_OL_CNT is the number of lines", [[select count(*) from (select o_w_id w, o_d_id d, sum(o_ol_cnt) n from orders group by o_w_id, o_d_id) o
     join (select ol_w_id w, ol_d_id d, count(*) n from order_line group by ol_w_id, ol_d_id) l using (w, d) where o.n <> l.n]]},
}
local function check()
  local con = sysbench.sql.driver():connect()
  for _, condition in ipairs(CONDITIONS) do
    local wrong = con:query_row(condition[2])
    if tonumber(wrong) ~= 0 then error("condition " .. condition[1] .. ": it does not hold in " .. wrong .. " cases") end
  end
  print("the conditions of consistency hold")
end

sysbench.cmdline.commands = {
  create = {create}, prepare = {prepare, sysbench.cmdline.PARALLEL_COMMAND}, check = {check},
}

-- ---- the transactions --------------------------------------------------------------------------------------------------

function thread_init()
  drv = sysbench.sql.driver()
  con = drv:connect()
end
-- After a deadlock or a wait that was too long; the second leaves the transaction open.
function sysbench.hooks.before_restart_event() con:query("rollback") end

local function query(...) return con:query(format(...)) end
local function one(...) return con:query_row(format(...)) end
local function other_warehouse(w)
  if sysbench.opt.warehouses == 1 then return w end
  local other = uniform(1, sysbench.opt.warehouses - 1)
  return other >= w and other + 1 or other
end
-- A customer by number, or of those with a name the one in the middle.
local function customer(w, d)
  if uniform(1, 100) > 60 then return skewed(1023, 1, CUSTOMERS) end
  local found = query("select c_id from customer where c_w_id = %d and c_d_id = %d and c_last = '%s' order by c_first", w, d, last_name(skewed(255, 0, 999)))
  local ids = {}
  for _ = 1, found.nrows do ids[#ids + 1] = unpack(found:fetch_row(), 1, 1) end
  return tonumber(ids[math.ceil(#ids / 2)] or skewed(1023, 1, CUSTOMERS))
end

local function new_order(w)
  local d, c, count = uniform(1, DISTRICTS), skewed(1023, 1, CUSTOMERS), uniform(5, 15)
  local lines, fails, all_local = {}, uniform(1, 100) == 1, 1
  for n = 1, count do
    local supply = w
    if uniform(1, 100) == 1 then supply = other_warehouse(w) end
    if supply ~= w then all_local = 0 end
    lines[n] = {item = skewed(8191, 1, ITEMS), supply = supply, quantity = uniform(1, 10)}
  end
  -- In the order of their rows: two orders then do not wait for each other in a circle.
  table.sort(lines, function(a, b) return a.supply < b.supply or (a.supply == b.supply and a.item < b.item) end)
  con:query("begin")
  one("select w_tax, c_discount, c_last, c_credit from warehouse, customer where w_id = %d and c_w_id = w_id and c_d_id = %d and c_id = %d", w, d, c)
  local o = tonumber((one("select d_next_o_id from district where d_w_id = %d and d_id = %d for update", w, d)))
  query("update district set d_next_o_id = %d where d_w_id = %d and d_id = %d", o + 1, w, d)
  query("insert into orders values (%d, %d, %d, %d, now(), null, %d, %d)", w, d, o, c, count, all_local)
  query("insert into new_order values (%d, %d, %d)", w, d, o)
  for n, line in ipairs(lines) do
    local price = one("select i_price from item where i_id = %d", (fails and n == count) and ITEMS + 1 or line.item)
    if not price then return con:query("rollback") end
    local quantity, info = one("select s_quantity, s_dist_%02d from stock where s_w_id = %d and s_i_id = %d for update", d, line.supply, line.item)
    quantity = tonumber(quantity) - line.quantity
    if quantity < 10 then quantity = quantity + 91 end
    query("update stock set s_quantity = %d, s_ytd = s_ytd + %d, s_order_cnt = s_order_cnt + 1, s_remote_cnt = s_remote_cnt + %d where s_w_id = %d and s_i_id = %d",
      quantity, line.quantity, line.supply == w and 0 or 1, line.supply, line.item)
    query("insert into order_line values (%d, %d, %d, %d, %d, %d, null, %d, %f, '%s')", w, d, o, n, line.item, line.supply, line.quantity,
      line.quantity * tonumber(price), info)
  end
  con:query("commit")
end

local function payment(w)
  local d, amount = uniform(1, DISTRICTS), uniform(100, 500000) / 100
  local cw, cd = w, d
  if uniform(1, 100) > 85 then cw, cd = other_warehouse(w), uniform(1, DISTRICTS) end
  con:query("begin")
  query("update warehouse set w_ytd = w_ytd + %.2f where w_id = %d", amount, w)
  one("select w_name, w_address from warehouse where w_id = %d", w)
  query("update district set d_ytd = d_ytd + %.2f where d_w_id = %d and d_id = %d", amount, w, d)
  one("select d_name, d_address from district where d_w_id = %d and d_id = %d", w, d)
  local c = customer(cw, cd)
  local credit = one("select c_credit, c_first, c_last, c_balance from customer where c_w_id = %d and c_d_id = %d and c_id = %d for update", cw, cd, c)
  local data = ""
  if credit == "BC" then data = format(", c_data = left(concat('%d %d %d %d %d %.2f|', c_data), 500)", c, cd, cw, d, w, amount) end
  query("update customer set c_balance = c_balance - %.2f, c_ytd_payment = c_ytd_payment + %.2f, c_payment_cnt = c_payment_cnt + 1%s where c_w_id = %d and c_d_id = %d and c_id = %d",
    amount, amount, data, cw, cd, c)
  query("insert into history values (%d, %d, %d, %d, %d, now(), %.2f, 'w%d d%d')", c, cd, cw, d, w, amount, w, d)
  con:query("commit")
end

local function order_status(w)
  local d = uniform(1, DISTRICTS)
  con:query("begin")
  local c = customer(w, d)
  one("select c_balance, c_first, c_middle, c_last from customer where c_w_id = %d and c_d_id = %d and c_id = %d", w, d, c)
  local o = one("select o_id from orders where o_w_id = %d and o_d_id = %d and o_c_id = %d order by o_id desc limit 1", w, d, c)
  if o then query("select ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d from order_line where ol_w_id = %d and ol_d_id = %d and ol_o_id = %s", w, d, o) end
  con:query("commit")
end

local function delivery(w)
  local carrier = uniform(1, 10)
  con:query("begin")
  for d = 1, DISTRICTS do
    local o = one("select no_o_id from new_order where no_w_id = %d and no_d_id = %d order by no_o_id limit 1 for update", w, d)
    if o then
      query("delete from new_order where no_w_id = %d and no_d_id = %d and no_o_id = %s", w, d, o)
      local c = one("select o_c_id from orders where o_w_id = %d and o_d_id = %d and o_id = %s", w, d, o)
      query("update orders set o_carrier_id = %d where o_w_id = %d and o_d_id = %d and o_id = %s", carrier, w, d, o)
      query("update order_line set ol_delivery_d = now() where ol_w_id = %d and ol_d_id = %d and ol_o_id = %s", w, d, o)
      local amount = one("select sum(ol_amount) from order_line where ol_w_id = %d and ol_d_id = %d and ol_o_id = %s", w, d, o)
      query("update customer set c_balance = c_balance + %s, c_delivery_cnt = c_delivery_cnt + 1 where c_w_id = %d and c_d_id = %d and c_id = %s", amount, w, d, c)
    end
  end
  con:query("commit")
end

local function stock_level(w)
  local d = uniform(1, DISTRICTS)
  con:query("begin")
  local o = tonumber((one("select d_next_o_id from district where d_w_id = %d and d_id = %d", w, d)))
  one("select count(distinct s_i_id) from order_line, stock where ol_w_id = %d and ol_d_id = %d and ol_o_id between %d and %d and s_w_id = %d and s_i_id = ol_i_id and s_quantity < %d",
    w, d, o - 20, o - 1, w, uniform(10, 20))
  con:query("commit")
end

function event()
  local w, dice = uniform(1, sysbench.opt.warehouses), uniform(1, 100)
  if dice <= 45 then new_order(w)
  elseif dice <= 88 then payment(w)
  elseif dice <= 92 then order_status(w)
  elseif dice <= 96 then delivery(w)
  else stock_level(w) end
end
