-- Columns that are added, dropped and moved without a copy: rows of all layouts are read, changed and indexed.
create table c (id int primary key, v varchar(300), n int, key (n)) default charset utf8mb4;
insert into c values (1, 'one', 1), (2, null, 2), (3, repeat('x', 300), null);
alter table c add column a int not null default 7, add column b text, algorithm = instant;
insert into c values (4, 'four', 4, 44, 'text of four');
select * from c order by id;
alter table c add column first_one char(5) not null default 'abc' first, add column after_v decimal(10,2) default 1.25 after v, algorithm = instant;
insert into c (id, v) values (5, 'five');
select first_one, id, left(v, 5), after_v, n, a, b from c order by id;
update c set b = 'changed', a = a + 1 where id in (1, 5);
alter table c drop column v, algorithm = instant;
insert into c (id, n, b) values (6, 6, repeat('y', 70000));
select first_one, id, after_v, n, a, left(b, 12) from c order by id;
-- The same name again is another column.
alter table c add column v varchar(20) default 'new', algorithm = instant;
alter table c drop column b, modify column id int not null first, algorithm = instant;
select * from c order by id;
alter table c add index (v, a), algorithm = nocopy;
select id from c force index (v) where v = 'new' and a >= 7 order by id;
update c set v = concat(v, id), after_v = null where id > 2;
select * from c where v = 'new3';
delete from c where id = 1;
check table c;
alter table c alter column v set default 'later', algorithm = instant;
select id, v from c order by id;
alter table c add column d datetime(3) not null default '2000-01-01 00:00:00.5', add column e enum('x', 'y') default 'y', add column f double default 0.5,
  add column g varbinary(10) default 'bin', add column h bit(9) default b'100000001', algorithm = instant;
select id, d, e, f, g, hex(h) from c order by id;
alter table c drop column d, drop column f, algorithm = instant;
insert into c (id) values (7);
select id, e, g, hex(h) from c order by id;
alter table c add column virt int as (id * 2) virtual, algorithm = instant;
select id, virt from c where virt > 8 order by id;
alter table c drop column virt, algorithm = instant;
-- With other changes, and of what is not the same for all rows, by copy.
alter table c add column z int, add index (z);
alter table c add column now_ timestamp default current_timestamp;
alter table c add column auto_ int auto_increment, add unique (auto_);
select count(*), count(now_), max(auto_) from c;
check table c;
create table p (a int primary key, b int) partition by hash (a) partitions 3;
insert into p select seq, seq from seq_1_to_20;
alter table p add column c int default 3, algorithm = instant;
alter table p drop column b, algorithm = instant;
update p set c = a where a % 2 = 0;
select sum(a), sum(c) from p;
truncate table p;
insert into p values (1, 1);
select * from p;
start transaction;
insert into p values (2, 2);
rollback;
select * from p;

-- Statements that read some of the columns, of all types, in all layouts.
create table some (id int primary key, a char(100), b varchar(300), c tinyint, d decimal(20,5), e char(10) not null default 'e', f double, g bit(11), h enum('x','y','z'),
  i set('a','b','c'), j time(3), k datetime(6), l timestamp(2) null, m year, n date, o bigint unsigned, p blob, q json, r binary(7), s inet6, t uuid, u float, v mediumint) default charset utf8mb4;
insert into some select seq, if(seq % 5, repeat('ä', seq % 100), null), if(seq % 7, repeat('ö', seq % 300), null), seq % 100, seq / 7, concat('e', seq % 9), seq / 3, seq, 1 + seq % 3, seq % 8,
  sec_to_time(seq + 0.125), '2020-01-01' + interval seq second, if(seq % 4, '2020-01-01' + interval seq minute, null), 1901 + seq % 200, '2020-01-01' + interval seq day, seq * 1000000007,
  repeat('p', seq % 200), json_array(seq), left(seq, 7), concat('::', hex(seq)), concat('00000000-0000-0000-0000-', lpad(hex(seq), 12, '0')), seq / 9, -seq from seq_1_to_600;
select c, r from some where id between 3 and 9;
select e, left(b, 3), h, s from some where id in (5, 7, 35);
select sum(c), sum(d), min(e), max(f), bit_or(g), max(h), min(i), max(j), min(k), max(l), min(m), max(n), sum(o), sum(length(p)), max(q), min(r), max(s), min(t), sum(u), sum(v) from some;
select a from some where b is null and id < 40;
select length(a), t from some where v < -590 order by k desc;
select x.e, y.r from some x join some y on y.id = x.id + 1 where x.c = 50 order by x.id;
select e, count(*), sum(v) from some group by e order by e;
alter table some drop column a, add column a int default 5 first, drop column r, algorithm = instant;
insert into some (id, b, e) values (1000, 'b', 'new');
select id, e, a, s from some where id in (1, 5, 600, 1000);
select a, v, t, n from some where id in (1, 5, 600, 1000);
update some set e = 'changed' where id in (5, 1000);
select sum(c), sum(d), min(e), max(f), bit_or(g), max(h), min(i), max(j), min(k), max(l), min(m), max(n), sum(o), sum(length(p)), max(q), max(s), min(t), sum(u), sum(v), sum(length(b)), sum(a) from some;
alter table some drop column e, drop column t, drop column s, algorithm = instant;
select b, h, j from some where id in (2, 7, 1000);
check table some;
