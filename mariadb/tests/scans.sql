-- Scans of more rows than are read in one call, in both directions, and what changes meanwhile.
create table t (id int primary key, k int, v varchar(300), b mediumtext, key (k), key (k, v(10)));
insert into t select seq * 3, seq % 40, repeat(char(97 + seq % 26), seq % 300), if(seq % 50 = 7, repeat('long ', 3000), null) from seq_1_to_500;
select count(*), sum(id), sum(crc32(v)), sum(length(b)) from t;
select group_concat(id order by null) from (select id from t order by id limit 70) s;
select group_concat(id order by null) from (select id from t order by id desc limit 70) s;
select group_concat(id) from (select id from t where id between 100 and 400 order by id limit 1000) s;
select group_concat(id) from (select id from t where id between 100 and 400 order by id desc limit 1000) s;
select group_concat(id) from (select id from t where id > 1400 order by id limit 1000) s;
select group_concat(k) from (select k from t force index (k) where k between 5 and 9 order by k limit 1000) s;
select group_concat(k) from (select k from t force index (k) where k < 6 order by k desc limit 1000) s;
select sum(id), sum(crc32(v)) from t force index (k) where k in (1, 5, 7, 39);
select k, min(id), max(id), count(*) from t group by k order by k limit 12;
select distinct k from t where id > 900 order by k desc limit 15;
select count(*), sum(a.id * b.k) from t a join t b on a.k = b.k and a.id < b.id where a.id between 30 and 300;
select count(*) from t a straight_join t b force index (primary) on b.id between a.id and a.id + 40 where a.id < 200;
-- Functions that change another table, or fail, while the scan goes on.
create table log (n int auto_increment primary key, id int unique);
delimiter |
create function noted(i int) returns int begin insert into log (id) values (i); return (select count(*) from log); end|
create function tried(i int) returns int begin
  declare continue handler for 1062 return -1; insert into log (id) values (i % 100); return i; end|
delimiter ;
select group_concat(noted(id) order by id) from (select id from t order by id limit 60) s;
select count(*), max(c) from (select noted(id + 10000) c from t where id between 300 and 600) s;
begin; select sum(tried(id)) from t where id < 500; rollback;
select sum(tried(id)) from t where id < 700 order by id desc;
select count(*), sum(id) from log;
-- Changes of the table itself by the statement that scans it.
insert into t select id + 5000, k, v, b from t where id between 200 and 800;
update t set k = k + 1 where id between 300 and 900 order by id;
update t join log on log.id = t.id set t.v = 'joined' where t.id < 500;
delete from t where id between 40 and 320 and k % 3 = 0;
replace into t select id, k + 100, v, b from t where id > 6000;
select count(*), sum(id), sum(k), sum(crc32(v)), sum(length(b)) from t;
-- A HANDLER goes on in other statements, between which the table changes, and in both directions.
handler t open as h;
handler h read `primary` >= (600) where id % 2 = 0 limit 5;
handler h read `primary` next;
update t set k = 777 where id between 600 and 1200;
handler h read `primary` next limit 40;
delete from t where id between 700 and 760;
handler h read `primary` next limit 3;
handler h read `primary` prev limit 45;
insert into t (id, k) values (601, 1), (602, 2);
handler h read `primary` next limit 40;
begin; insert into t (id, k) values (751, 1), (752, 1); handler h read `primary` next limit 6; rollback;
handler h read `primary` next limit 10;
handler h read k >= (20) limit 12;
handler h read k prev limit 12;
handler h read first limit 3;
handler h read next limit 50;
handler h close;
-- Every level of isolation, and locking reads.
set session transaction isolation level read committed;
select count(*), sum(id), sum(k) from t where id > 100;
begin; select count(*), sum(id) from t where id > 100 for update; update t set k = k + 1 where id > 1000; select sum(k) from t; rollback;
set session transaction isolation level serializable;
begin; select count(*), sum(id), sum(k) from t where id > 100; select count(*) from t lock in share mode; delete from t where id < 100; select count(*), sum(id) from t; rollback;
set session transaction isolation level read uncommitted;
select count(*), sum(id), sum(k) from t;
set session transaction isolation level repeatable read;
begin; select sum(id) from t; savepoint s; delete from t where id % 2; select count(*), sum(id) from t; rollback to s; select count(*), sum(id) from t; commit;
drop function noted; drop function tried; drop table t, log;
-- A range of the primary key is read as a range, however much of the table it is.
create table t (id int primary key, a char(100), key (a));
insert into t select seq, seq from seq_1_to_5000;
analyze table t;
flush status; select sum(length(a)) from t where id between 1 and 3000; show status like 'Handler_read%';
-- Here the costs of two plans are nearly equal.
select sum(length(a)) from t where id > 100 or a like '5%';
flush status; update t set a = concat(a, 'x') where id between 1 and 4500; show status like 'Handler_read%';
flush status; delete from t where id > 200 and a like '%x'; show status like 'Handler_read%';
drop table t;
