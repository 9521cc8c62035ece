-- Many rows by one statement: collected, and inserted in the order of their keys.
set bulk_insert_buffer_size = 100000; -- several batches
create table bulk (id int primary key, u varchar(20) unique, n int, s varchar(300), key n (n), key s (s(20), n));
insert into bulk select seq * 7919 % 10007, concat('u', seq), seq % 100, repeat(char(97 + seq % 26), seq % 300) from seq_1_to_10000;
select count(*), sum(id), sum(n), sum(length(s)) from bulk;
select count(*) from bulk force index (n) where n = 5;
select count(*) from bulk force index (s) where s like 'cc%';
check table bulk;
-- A refused row ends the statement: nothing of it stays.
insert into bulk select seq, concat('v', seq), 1, '' from seq_20000_to_30000 union all select 5, 'x', 1, '';
insert into bulk select seq + 20000, if(seq = 4000, 'u77', concat('w', seq)), 1, '' from seq_1_to_5000;
insert into bulk select seq + 20000, if(seq % 2, null, concat('w', seq)), 1, '' from seq_1_to_1000 where seq <> 500 or benchmark(1, 1);
select count(*), sum(id), sum(n) from bulk;
delete from bulk where id > 20000;
-- In a transaction, with a savepoint.
begin;
insert into bulk select seq + 30000, null, 2, 'x' from seq_1_to_3000;
savepoint s;
insert into bulk select seq + 40000, null, 2, 'x' from seq_1_to_3000;
select count(*) from bulk where n = 2 and s = 'x';
insert into bulk select seq + 30000, null, 2, 'x' from seq_1_to_3000;
select count(*) from bulk where n = 2 and s = 'x';
rollback to s;
select count(*) from bulk where n = 2 and s = 'x';
commit;
check table bulk;
-- Where the order shows: row by row.
insert ignore into bulk select seq, concat('i', seq), 3, 'i' from seq_1_to_20000;
select count(*), sum(n) from bulk;
replace into bulk select seq, concat('r', seq), 4, 'r' from seq_1_to_3000;
insert into bulk select seq, null, 5, 'o' from seq_2000_to_4000 on duplicate key update n = 6;
select n, count(*) from bulk where n in (4, 5, 6) and s in ('r', 'o') group by n order by n;
-- Reading the table itself.
create table itself (id int auto_increment primary key, n int, c int, key (n));
insert into itself (n) select seq from seq_1_to_200;
insert into itself (n, c) select n, (select count(*) from itself) from itself;
select count(*), min(c), max(c), max(id) from itself;
insert into itself (n) select seq from seq_1_to_70 returning if(id % 69, null, (select count(*) > 400 from itself));
create function so_many() returns int reads sql data return (select count(*) from itself);
insert into itself (n, c) select seq, so_many() from seq_1_to_100;
select count(*), min(c), max(c) from itself;
create trigger counts before insert on itself for each row set new.c = (select count(*) from itself);
insert into itself (n) select seq from seq_1_to_100;
select count(*), max(c) from itself;
drop trigger counts;
select last_insert_id() > 0;
drop function so_many;
-- Conditions that read the table itself while its rows come.
create table own (id int primary key, g int, key (g));
create view base as select * from own;
create view fewer as select id, g from base where (select count(*) from own o where o.id < base.id) < 2 with check option;
insert into fewer (id, g) select seq, 1 from seq_1_to_10;
select count(*) from own;
create table other (b int);
insert into other select seq from seq_1_to_10;
insert into own select o.b, 1 from other o group by o.b having (select count(*) from own where own.id < o.b) < 3;
select count(*) from own;
-- The number of the refused row; a limit of examined rows.
delete from own;
insert into own values (700, 1);
insert into own select seq, 2 from seq_1_to_1000;
get diagnostics condition 1 @row = row_number;
select @row;
insert into own select seq, 2 from seq_1_to_1000 where seq % 2 = 0;
get diagnostics condition 1 @row = row_number;
select @row;
insert into own select seq, 2 from seq_1_to_600 limit rows examined 100;
select count(*) < 400 from own;
create table some select seq n from seq_1_to_1000 limit rows examined 100;
select count(*) between 50 and 150 from some;
-- Numbers of rows without a primary key, virtual columns, descending keys, partitions, long values, unique hashes.
create table various (a varchar(30), v int as (length(a)) virtual, w varchar(40) as (concat(a, 'w')) persistent, key (v), unique (w), key (a desc));
insert into various (a) select concat('k', seq * 31 % 1009) from seq_1_to_1000;
insert into various (a) select concat('l', seq) from seq_1_to_1000 union all select 'k31';
insert into various (a) select concat('l', seq) from seq_1_to_1000 union all select 'l77';
select count(*), sum(v), max(w) from various;
select a from various force index (a) order by a desc limit 3;
check table various;
create table parts (id int primary key, n int, key (n)) partition by hash (id) partitions 3;
insert into parts select seq * 7 % 1009, seq from seq_1_to_1000;
insert into parts select seq + 2000, seq from seq_1_to_1000 union all select 7, 7;
select count(*), sum(id) from parts;
create table hashed (id int primary key, t text, unique (t) using hash);
insert into hashed select seq, concat('t', seq) from seq_1_to_200;
insert into hashed select seq + 1000, concat('s', seq % 150) from seq_1_to_200;
select count(*) from hashed;
create table long_values (id int primary key, t text, key (t(5)));
insert into long_values select 1000 - seq, repeat('t', seq * 20) from seq_1_to_400;
select count(*), sum(length(t)) from long_values;
create temporary table passing (id int primary key, n int, key (n));
insert into passing select seq * 7 % 1009, seq from seq_1_to_1000;
insert into passing select seq + 2000, seq from seq_1_to_1000 union all select 7, 7;
select count(*), sum(id) from passing;
-- Two tables that a connection has locked; no buffer.
lock tables parts write, bulk write;
insert into bulk select id + 50000, null, n, 'l' from parts;
unlock tables;
set bulk_insert_buffer_size = 0;
insert into bulk select id + 60000, null, n, 'l' from parts;
select count(*), sum(id) from bulk where s = 'l';
check table bulk;
-- Automatic numbers of a table that is younger than the snapshot.
set seawall_snapshot_isolation = 1;
begin;
select count(*) from parts;
create temporary table young (id int auto_increment primary key, n int);
insert into young (n) select n from parts;
select count(*), max(id) from young;
commit;
drop temporary table young;
set seawall_snapshot_isolation = default;
drop view fewer, base;
drop table own, other, some, bulk, itself, various, parts, hashed, long_values, passing;
