-- Copies of tables, whose indexes are built at the end; changes of columns without a copy; OPTIMIZE.
create table a (id int auto_increment primary key, k int, v varchar(30), w text, key (k), key vk (v, k), unique u (v), key (w(10)));
insert into a (k, v, w) select seq % 100, concat('v', seq), if(seq % 50 = 0, repeat('w', 6000), 'w') from seq_1_to_30000;
alter table a modify k bigint, algorithm = copy;
check table a;
select count(*), sum(k) from a force index (k) where k between 10 and 20;
select count(*) from a force index (vk) where v between 'v1' and 'v2';
select sum(length(w)) from a;
select data_type from information_schema.columns where table_schema = database() and table_name = 'a' and column_name = 'k';
-- A duplicate is found at the end; nothing has changed.
alter table a add unique (k), algorithm = copy;
alter table a modify v varchar(2), algorithm = copy;
set statement sql_mode = '' for alter ignore table a add unique (k), algorithm = copy;
select count(*) from a;
check table a;
-- Into and out of the engine, with partitions, without a primary key, with a computed column in an index.
create table b (k int, v varchar(10), c int as (k + 1) virtual, d int as (k * 2) stored, key (c), key (d), key (v)) partition by hash (k) partitions 3;
insert into b (k, v) select seq, concat('b', seq) from seq_1_to_25000;
alter table b add column e int, algorithm = copy;
check table b;
select count(*) from b force index (c) where c between 100 and 200;
select count(*) from b force index (d) where d between 100 and 200;
alter table b add unique (v, k), add index (e);
check table b;
select count(*) from b force index (v_2) where v = 'b77';
alter table b engine = aria, remove partitioning;
alter table b drop column d;
create table c (primary key (k), key (v)) select k, v from b where k % 2 = 0;
check table c;
select count(*), min(v), max(v) from c force index (v);
create table broken (unique (v)) select k, 'same' v from c;
show tables like 'broken';
-- Rows that are left out or replaced, and temporary tables, whose rows belong to the transaction.
create table ignored (id int primary key, unique (v)) ignore select k as id, k % 10 as v from c order by k limit 500;
select count(*), min(id), max(id) from ignored;
select count(*) from ignored force index (v) where v between 0 and 5;
create table replaced (id int primary key, unique (v)) replace select k as id, k % 10 as v from c order by k limit 500;
select id, v from replaced force index (v) order by v;
check table ignored, replaced;
start transaction with consistent snapshot;
create temporary table t (id int primary key, key (v)) select k as id, v from c where k < 100;
alter table t modify v varchar(100), algorithm = copy;
select count(*), min(v) from t force index (v);
delete from t where id < 50;
commit;
select count(*) from t;
create table empty_one like a;
alter table empty_one modify k smallint, algorithm = copy;
insert into empty_one (k, v) values (1, 'one');
select k from empty_one force index (k) where k = 1;
-- A longer VARCHAR at once.
create table l (id int primary key, v varchar(10) collate latin1_swedish_ci, u varchar(10) collate utf8mb4_unicode_ci, b varbinary(10), x varchar(300), key (v), key (b, v), key p (u(3)));
insert into l select seq, concat('l', seq), concat('u', seq), seq, repeat('x', seq % 300) from seq_1_to_1000;
alter table l modify v varchar(200) collate latin1_swedish_ci, algorithm = instant;
alter table l modify b varbinary(255), modify x varchar(1000);
alter table l modify u varchar(20) collate utf8mb4_unicode_ci;
alter table l modify v varchar(400) collate latin1_swedish_ci;
insert into l select seq, repeat(char(65 + seq % 26), seq % 190), 'u', repeat('b', seq % 250), repeat('y', seq % 990) from seq_1001_to_1500;
select count(*), max(length(v)) from l force index (v) where v like 'b%';
select count(*) from l force index (b) where b > 'b';
select sum(length(x)), sum(length(v)) from l;
check table l;
-- Columns and indexes in one statement.
alter table l add column n int not null default 7, add index (n), drop column u, drop index p;
insert into l (id, n) values (2000, 8);
select n, count(*) from l force index (n) group by n;
alter table l add column m int first, add column o varchar(5) default 'o', add unique (o, id);
select count(*) from l force index (o) where o = 'o';
check table l;
-- Partitions and tables exchange their rows, with the columns that each has had.
create table x (a int primary key, b int) partition by range (a) (partition p0 values less than (100), partition p1 values less than maxvalue);
insert into x values (1, 1), (101, 101);
create table y (a int primary key, c text, b int);
insert into y values (150, repeat('c', 5000), 2);
alter table y drop column c;
alter table x add column d varchar(10) default 'd', add index (b);
alter table y add column d varchar(10) default 'y', add index (b);
alter table x exchange partition p1 with table y;
alter table x exchange partition p0 with table y;
select * from x;
select * from y;
select a from x force index (b) where b = 2;
check table x, y;
-- OPTIMIZE keeps everything.
delete from a where id % 3 = 0;
insert into a (k, v) values (100000, 'last');
analyze table a;
select count(*), sum(id) from a;
-- Rows selected by two indexes.
create table f (id int primary key, x int, y int, z varchar(100), key (x), key (y));
insert into f select seq, seq % 1000, seq % 501, repeat('z', 100) from seq_1_to_50000;
analyze table f;
set optimizer_switch = 'rowid_filter=on';
select count(*), sum(id) from f where x between 10 and 40 and y between 5 and 9;
select id from f where x = 17 and y between 0 and 20 order by id;
select count(*), sum(length(z)) from f where x in (1, 5, 9) and y < 30;
select id from f where x between 3 and 7 and y = 300 order by id for update;
-- UNIQUE keys that the server keeps by a hash, while the table is copied.
create table h (a int, t text);
insert into h select seq, concat('t', seq) from seq_1_to_12000;
insert into h values (0, 't11999');
alter table h add unique (t);
alter table h add unique (a) using hash;
delete from h where a = 0;
alter table h add unique (t), add unique (a) using hash;
insert into h values (0, 't7');
insert into h values (7, 'new');
alter table h modify a bigint, algorithm = copy;
insert into h values (0, 't11999');
select count(*), sum(a) from h;
check table h;
-- With IGNORE a copy leaves duplicates out, whatever the statement would otherwise need.
create table dup (id int primary key, k int, l int);
insert into dup values (1, 1, 1), (2, 1, 2), (3, 2, 3);
alter ignore table dup add unique (k);
select * from dup order by id;
alter ignore table dup add unique (l), algorithm = inplace;
alter table dup add unique (l), algorithm = inplace;
check table dup;
