-- insert 500,000 rows, two indexes
drop table if exists t, m, b;
create table t (id int primary key, k int, c char(120), pad varchar(60), s varchar(40) character set utf8mb4, key (k), key (s));
insert into t select seq, seq * 7919 % 1000003, repeat(char(97 + seq % 26), 100), repeat('y', seq % 60), concat('name ', seq * 104729 % 1000003) from seq_1_to_500000;

-- count all rows, three times
select count(*) from t; select count(*) from t; select count(*) from t;

-- scan all rows, twice
select sum(length(c)) from t; select sum(length(c)) from t;

-- scan an index of integers, twice
select sum(k) from t force index (k); select sum(k) from t force index (k);

-- scan an index of texts
select max(length(s)) from t force index (s);

-- read 290,000 rows by the primary key
select sum(length(c)) from t where id between 10000 and 300000;

-- read 300,000 rows, descending
select sum(length(c)) from (select c from t order by id desc limit 300000) x;

-- read 50,000 rows by an index
select sum(length(c)) from t force index (k) where k between 1000 and 50000; select sum(length(c)) from t force index (k) where k between 201000 and 250000;

-- read 50,000 rows by an index, descending
select sum(length(c)) from (select c from t force index (k) order by k desc limit 50000) x;

-- sort 500,000 rows
select sum(length(c)) from (select c from t order by pad, c limit 100000) x;

-- join 100,000 rows by the primary key
select count(*), sum(length(b.c)) from t a straight_join t b on b.id = a.k where a.id < 100000;

-- join 100,000 rows by an index
select count(*), sum(length(b.c)) from t a straight_join t b force index (k) on b.k = a.id where a.id < 100000;

-- merge two indexes
select count(*), sum(length(c)) from t where k < 20000 or s like 'name 2%';

-- update 100,000 rows, an indexed column
update t set k = k + 1000000 where id between 1 and 100000;

-- update 200,000 rows, no index
update t set pad = 'z' where id between 1 and 200000;

-- update 50,000 rows found by an index
update t set pad = 'zz' where k between 100000 and 150000;

-- roll back an update of 200,000 rows
begin; update t set pad = 'rr' where id between 1 and 200000; rollback;

-- delete 50,000 rows found by an index
delete from t where k between 200000 and 250000;

-- delete 100,000 rows by the primary key
delete from t where id between 100001 and 200000;

-- insert 100,000 rows, on duplicate key update
insert into t select seq, seq * 7919 % 1000003, repeat('d', 100), 'y', concat('name ', seq) from seq_50001_to_150000 on duplicate key update pad = 'dup';

-- replace 50,000 rows
replace into t select seq, seq, repeat('r', 100), 'y', concat('rname ', seq) from seq_1_to_50000;

-- add an index
alter table t add key kp (k, pad);

-- add a column
alter table t add column n int default 5;

-- check the table
check table t;

-- optimize the table
optimize table t;

-- copy the table
alter table t modify c varchar(200);

-- 60,000 statements: insert a row
create table m (a int, b int, v varchar(50), primary key (a, b));
delimiter //
begin not atomic declare i int default 0; set autocommit = 0; while i < 60000 do insert into m values (1, i, 'x'); set i = i + 1; end while; commit; end//
delimiter ;

-- 60,000 statements: read a row
delimiter //
begin not atomic declare i int default 0; declare x varchar(50); while i < 60000 do select v into x from m where a = 1 and b = i; set i = i + 1; end while; end//
delimiter ;

-- 40,000 statements: update a row
delimiter //
begin not atomic declare i int default 0; while i < 40000 do update m set v = 'yy' where a = 1 and b = i; set i = i + 1; end while; commit; set autocommit = 1; end//
delimiter ;

-- 2,000 transactions: update a row
delimiter //
begin not atomic declare i int default 0; while i < 2000 do update m set v = concat('z', i) where a = 1 and b = i % 100; set i = i + 1; end while; end//
delimiter ;

-- 300 temporary tables
delimiter //
begin not atomic declare i int default 0; while i < 300 do
  create temporary table x (id int primary key, v varchar(10)); insert into x values (1, 'a'), (2, 'b'); drop temporary table x; set i = i + 1;
end while; end//
delimiter ;

-- insert 3,000 texts of 20,000 bytes
create table b (id int primary key auto_increment, k int, t mediumtext, key (k));
insert into b (k, t) select seq, repeat(char(97 + seq % 26), 20000) from seq_1_to_3000;

-- update an integer beside them
update b set k = k + 1;

-- read them
select sum(length(t)) from b where t not like 'zz%';
