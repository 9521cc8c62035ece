-- Periods that must not overlap: the server searches for them, and every ALTER TABLE copies such a table.
create table o (id int, s date, e date, v int, period for p (s, e), primary key (id, p without overlaps));
insert into o values (1, '2020-01-01', '2020-02-01', 1), (1, '2020-02-01', '2020-03-01', 2), (2, '2020-01-01', '2020-06-01', 3);
insert into o values (1, '2020-01-15', '2020-01-20', 4);
insert into o values (1, '2019-12-15', '2020-01-02', 4);
update o set e = '2020-02-02' where v = 1;
alter table o add column x int default 7;
select * from o order by id, s;
update o for portion of p from '2020-03-01' to '2020-04-01' set v = 30 where id = 2;
delete from o for portion of p from '2020-01-10' to '2020-01-20' where id = 1;
select * from o order by id, s;
alter table o modify v bigint;
alter table o add key (v);
select id, s, v from o where v > 1 order by v, s;
create table n (id int primary key auto_increment, s date, e date, period for p (s, e));
insert into n (s, e) values ('2018-01-01', '2020-01-01');
update n for portion of p from '2019-01-01' to '2019-12-01' set id = id;
delete from n for portion of p from '2019-12-10' to '2019-12-20';
select * from n order by id;
create table oc as select * from o;
select count(*) from oc;
create table os like o;
insert into os select * from o;
insert into os select * from o;
select * from os order by id, s;
create table u (a int, s date, e date, b varchar(10), period for p (s, e), unique (b, p without overlaps));
insert into u values (1, '2020-01-01', '2020-02-01', 'x');
insert into u values (2, '2020-01-05', '2020-01-06', 'y');
insert into u values (3, '2020-02-01', '2020-02-06', null), (4, '2020-02-06', '2020-02-08', null);
insert ignore into u values (5, '2020-02-03', '2020-02-04', 'z'), (6, '2020-03-03', '2020-03-04', 'z');
alter table u add column c int first;
select * from u order by a;
set transaction isolation level read committed;
insert into u values (1, 7, '2020-03-03', '2020-03-05', 'w');
set session transaction isolation level read committed;
create table l (id int, s date, e date, period for p (s, e));
insert into l values (1, '2020-01-01', '2020-02-01');
alter table l add unique (id, p without overlaps);
insert into l values (1, '2020-01-15', '2020-01-20');
insert into l values (2, '2020-01-15', '2020-01-20'), (2, '2020-01-20', '2020-01-25');
select * from l order by id, s;
-- Partitions of history: filled in turn, and made by statements that define no table.
create table h (id int primary key, x int) with system versioning partition by system_time limit 100 partitions 4;
insert into h select seq, 0 from seq_1_to_10;
delimiter //
for i in 1..25 do update h set x = x + 1; end for//
delimiter ;
select count(*) from h partition (p0);
select count(*) from h partition (p1);
select count(*) from h partition (p2);
select count(*) from h;
create table ha (id int primary key, x int) with system versioning partition by system_time limit 100 auto;
insert into ha select seq, 0 from seq_1_to_10;
delimiter //
for i in 1..25 do update ha set x = x + 1; end for//
delimiter ;
select count(*) from ha partition (p0);
select count(*) from ha partition (p1);
select count(*) from ha for system_time all;
set timestamp = unix_timestamp('2020-01-01 00:00:00');
create table hi (id int primary key, x int, key (x)) with system versioning partition by system_time interval 1 hour auto;
insert into hi values (1, 1), (2, 2);
set timestamp = unix_timestamp('2020-01-01 02:30:00');
create table zz (a int primary key, b int, key k (b));
update hi set x = 2;
select count(*) from hi for system_time all;
set timestamp = default;
