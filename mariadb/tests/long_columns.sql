-- Long values: on both sides of the limit from which they are stored apart, changed, moved, rolled back, dropped.
create table l (id int primary key, n int, t text, b longblob, j json, key (n), key (t(20)));
insert into l values (1, 1, repeat('a', 3999), repeat('b', 4000), '{"k": 1}'), (2, 2, repeat('c', 4001), repeat('d', 300000), concat('["', repeat('e', 9000), '"]')),
  (3, 3, null, null, null), (4, 4, '', '', null);
select id, n, length(t), md5(t), length(b), md5(b), length(j), md5(j) from l order by id;
select id, n from l order by n;
select id, length(t) from l force index (t) where t like 'c%';
-- Other columns only; then only their lengths, only their contents.
update l set n = n + 10;
update l set b = repeat('x', 300000) where id = 2;
select id, n, left(b, 2), length(b) from l order by id;
update l set t = repeat('y', 4001) where id = 2;
select id, left(t, 2), length(t) from l force index (t) where t like 'y%';
update l set t = repeat('z', 100), b = concat(b, 'tail') where id = 2;
select id, md5(t), right(b, 5), md5(j) from l order by id;
update l set t = repeat('Z', 60000), b = null where id = 2;
select id, length(t), length(b), length(j) from l order by id;
-- The key changes: values move with it, whether the statement reads them or not.
update l set id = id + 100 where id = 2;
select id, md5(t), length(b), md5(j) from l order by id;
update l set id = 2, t = concat(t, '!') where id = 102;
select id, right(t, 2), length(t), md5(j) from l order by id;
update l set id = id + 1 order by id desc;
select id, md5(t), md5(b), md5(j) from l order by id;
-- Undone.
begin;
update l set t = repeat('u', 5000), b = repeat('v', 70000);
savepoint s;
delete from l where id > 2;
insert into l values (9, 9, repeat('9', 9000), null, null);
rollback to s;
select id, md5(t), md5(b) from l order by id;
rollback;
select id, md5(t), md5(b) from l order by id;
insert into l values (20, 1, repeat('a', 5000), null, null), (20, 2, repeat('b', 5000), null, null);
select count(*) from l where id = 20;
-- Statements that read before they write.
replace into l values (3, 33, repeat('r', 8000), repeat('s', 8000), null);
replace into l (id, t) values (3, 'short');
insert into l values (3, 1, repeat('q', 8000), 'x', null) on duplicate key update t = concat(values(t), t), n = 77;
select id, n, length(t), md5(t), b from l order by id;
insert into l select id + 50, n, t, b, j from l;
select id, n, md5(t), md5(b), md5(j) from l order by id;
create table copies engine = myisam select * from l;
select count(*) from l join copies using (id) where not (l.t <=> copies.t and l.b <=> copies.b and l.j <=> copies.j);
-- Longer rows than their order needs; groups and distinct values.
select md5(group_concat(t order by id)) from l;
select length(t), count(*) from l group by t order by 1;
select distinct left(t, 3), length(t) from l order by 1, 2;
-- Columns come and go.
alter table l add column e text default 'none' after n;
update l set e = repeat('e', 10000) where id = 2;
select id, length(e), md5(t) from l order by id;
alter table l drop column t;
alter table l add column t text;
select id, length(e), t, md5(b) from l order by id;
update l set t = repeat('n', 4500) where id < 5;
delete from l where id = 2;
insert into l (id, t) values (2, 'again');
select id, length(e), length(t), md5(b) from l order by id;
check table l extended;
create table later (id int primary key, v varchar(10));
insert into later values (1, 'a');
alter table later add column x mediumtext;
update later set x = repeat('x', 200000);
insert into later values (2, 'b', repeat('y', 5000));
select id, length(x), md5(x) from later order by id;
alter table later modify x varchar(5100);
select count(*) from later;
delete from later where id = 1;
alter table later modify x tinytext;
check table later extended;
-- Versions of rows.
create table vv (id int primary key, n int, t text, key (n)) with system versioning;
insert into vv values (1, 1, repeat('v', 6000)), (2, 2, repeat('w', 6000));
update vv set n = n + 1;
update vv set id = id + 10 where n = 2;
delete from vv where n = 3;
select id, n, md5(t) from vv for system_time all order by id, n;
insert into vv values (11, 5, 'x') on duplicate key update n = 6;
replace into vv (id, n) values (11, 7);
select id, n, md5(t) from vv for system_time all order by id, n, length(t);
check table vv extended;
set binlog_format = row, binlog_row_image = minimal;
update vv set t = repeat('m', 9000), n = 8;
delete from vv where id = 11;
select id, n, md5(t) from vv for system_time all order by id, n, length(t);
create table vp (id int primary key, t mediumtext) with system versioning
  partition by system_time (partition h history, partition c current);
set binlog_row_image = full, binlog_format = statement;
insert into vp values (1, repeat('a', 300000)), (2, repeat('b', 5000));
delete from vp where id = 1;
update vp set id = 3 where id = 2;
delete from vp;
select id, md5(t) from vp for system_time all order by id;
check table vp extended;
set binlog_format = default;
-- Triggers, views, multi-table changes, generated columns.
create table log (id int auto_increment primary key, what text);
create trigger tr before update on l for each row set new.e = concat('was ', coalesce(length(old.t), 'null'), ' ', coalesce(left(old.t, 2), ''));
create trigger ta after delete on l for each row insert into log (what) values (old.t);
update l set n = 5 where id in (1, 3, 54);
select id, e from l order by id;
delete from l where id = 54;
select id, md5(what) from log order by id;
update l, log set l.t = log.what, log.what = 'moved' where l.id = 3;
select id, md5(t) from l order by id;
create table g (id int primary key, t text, u text as (upper(t)) stored, len int as (length(t)) virtual, key (len));
insert into g (id, t) values (1, repeat('g', 9000)), (2, 'h');
select id, len, md5(u) from g order by len;
update g set t = repeat('i', 9000) where id = 1;
select id, len, md5(u) from g where len > 100;
check table g extended;
-- No primary key; a binary one.
create table h (t text, n int);
insert into h values (repeat('1', 5000), 1), (repeat('2', 5000), 2), ('3', 3);
update h set n = n * 2 where n < 3;
delete from h where n = 2;
select n, md5(t) from h order by n;
create table k (b varbinary(40) primary key, t text);
insert into k values ('', repeat('1', 5000)), ('a', repeat('2', 5000)), (repeat('a', 8), repeat('3', 5000)), (repeat('a', 9), repeat('4', 5000));
delete from k where b = repeat('a', 8);
update k set b = 'zz' where b = '';
select b, md5(t) from k order by b;
check table k extended;
-- Truncated, renamed, partitioned.
truncate table k;
insert into k values ('a', repeat('k', 7000));
rename table k to k2;
select b, md5(t) from k2;
create table p (id int primary key, t text) partition by hash (id) partitions 3;
insert into p values (1, repeat('p', 5000)), (2, repeat('q', 5000)), (3, 'r');
update p set id = id + 10;
alter table p truncate partition p0;
select id, md5(t) from p order by id;
handler l open;
handler l read first;
handler l close;
