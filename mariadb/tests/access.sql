-- Rows reached through an index in less usual ways, and definitions that change little.

-- Several rows of one value of a virtual column.
create table t (id int primary key, a int, v int as (a % 2) virtual, key (v));
insert into t (id, a) values (1, 1), (2, 3), (3, 5), (4, 4), (5, null);
select * from t force index (v) where v = 1 order by id;
select v from t force index (v) where v = 1 for update;
select v, id from t force index (v) where v = 1 for update;
update t force index (v) set a = a + 2 where v = 1;
select * from t force index (v) where v = 1 order by id;
select * from t force index (v) where v is null;
delete from t where v = 1;
select * from t order by id;

-- A loose scan leaves each group by the next entry.
create table d (id int primary key, a int not null, b int not null, c int, key ab (a, b), key abc (a, b, c));
insert into d select seq, seq, 1, seq % 7 from seq_1_to_1000;
insert into d select 1000 + seq, seq % 100, 2, seq % 7 from seq_1_to_1000;
analyze table d;
select count(distinct a) from d where b = 1;
select count(distinct a) from d force index (ab) where b = 2;
select count(distinct a, b) from d force index (ab);
select a, min(b), max(b) from d where b >= 2 group by a order by a limit 5;
select a, b, min(c), max(c) from d where b = 2 group by a, b order by a limit 5;

-- HANDLER goes on from what it has sought, there or not.
create table h (id int primary key, k int, key (k));
insert into h values (1, 1), (2, 6), (3, 9), (4, 10), (6, 6);
handler h open;
handler h read k = (9);
handler h read k = (5);
handler h read k next;
handler h read k = (7);
handler h read k prev;
handler h read `primary` = (5);
handler h read `primary` next;
handler h read `primary` = (2);
handler h read `primary` prev;
handler h read k = (6);
handler h read k next;
handler h read k next;
handler h close;

-- The case of an index's name.
create table i (a int primary key, b int, c int, key ix (b), unique uq (c));
insert into i values (1, 1, 1), (2, 2, 2);
-- (Together, InnoDB of 11.8 does not find the index afterwards.)
alter table i rename index ix to IX;
alter table i add column d int;
select * from i force index (ix) where b = 2;
alter table i drop key ix, add key Ix (b, c), comment = 'x';
select * from i force index (ix) where b = 2;
alter table i drop key UQ;
insert into i values (3, 3, 2, 3);
select * from i order by a;
check table i;

-- Keys on the bytes of geometries.
create table g (id int primary key, p point not null, key k (p(8)));
insert into g values (1, point(1, 2)), (2, point(3, 4)), (3, point(1, 2));
select id from g force index (k) where p = point(1, 2) order by id;
set max_sort_length = 64;
flush tables;
delete from g where id = 1;
set max_sort_length = default;
select id from g force index (k) where p = point(1, 2);
check table g;

-- The next number of a partitioned table is that of all its partitions.
create table p (a int auto_increment primary key, b int) partition by range (a) (partition p0 values less than (100), partition p1 values less than maxvalue);
alter table p auto_increment = 1000;
alter table p truncate partition p0;
insert into p (b) values (1);
select a from p;

-- Rows of an index merge are found by their primary key, which an index has whole or by a prefix; so are the ends of its ranges.
create table m (p varchar(100) not null, a int, b int, c int, primary key (p(10)), key (a), key (b));
insert into m select concat('p', seq), seq, seq, seq from seq_1_to_10000;
analyze table m;
select count(*), min(c), max(c) from m where a < 5 or b > 9995;
select count(*), sum(c) from m force index (a, b) where a < 5 or b > 9995;
update m force index (a, b) set c = -1 where a < 5 or b > 9995;
select count(*) from m where c = -1;
create table n (id int primary key, w varchar(40), x text, b int, c int, key (w(10)), key (x(5)), key (b), key bw (b, w(10)));
insert into n select seq, concat(char(97 + seq % 26), seq), concat(char(97 + seq % 26), seq), seq, seq from seq_1_to_10000;
analyze table n;
select count(*), sum(c) from n where (w < 'c' and w < 'z') or b > 9995;
select count(*), sum(c) from n force index (w, b) where (w < 'c' and w < 'z') or b > 9995;
select count(*), sum(c) from n force index (x, b) where (x < 'c' and x < 'z') or b > 9995;
select c from n force index (bw) where b = 5 and w < 'm' and w < 'z' and id % 2 = 1;

-- A statement that changes rows while it reads them backwards goes on from the entry that it has read.
create table r (id int primary key, a int, b int, x int, key k (a, b));
create table s (id int primary key, y int);
insert into r select seq, seq % 100, seq, 0 from seq_1_to_10000;
insert into s select seq, 0 from seq_1_to_10000;
analyze table r, s;
update r force index (k) straight_join s set r.x = 9, s.y = 9 where r.a = 1 and s.id = r.id order by r.b desc limit 3;
select count(*), sum(id), min(a), max(a) from r where x = 9;
select count(*), sum(id) from s where y = 9;
update r force index (k) straight_join s set r.x = 8, s.y = 8 where r.a = 99 and s.id = r.id order by r.a desc, r.b desc limit 4;
select count(*), sum(id), min(a), max(a) from r where x = 8;
select count(*), sum(id) from s where y = 8;
-- A loose scan of an index over several ranges, of which each ends.
create table loose (id int primary key, k int, l int, key (k), key kl (k, l));
insert into loose select seq, seq % 10, seq % 7 from seq_1_to_10000;
analyze table loose;
select k, max(id) from loose force index (k) where k in (1, 5, 9) group by k;
select distinct k from loose force index (k) where k < 3 or k > 7;
select k, min(l) from loose force index (kl) where k in (1, 5) and l > 3 group by k;
update loose set l = 0 where k = 1;
select k, min(l) from loose force index (kl) where k in (1, 5) and l > 3 group by k;
select k, min(l), max(l) from loose force index (kl) where k between 2 and 3 or k = 8 group by k;
select distinct k, l from loose force index (kl) where k in (0, 9) and l in (2, 5);
-- Virtual columns of indexes that have a part which cannot be read from them.
create table virtuals (id int primary key, a int, b int, s varchar(50), v int as (a * 10) virtual, key kv (v, s(5)), key vd (v desc, s(5)), key kb (b));
insert into virtuals (id, a, b, s) select seq, seq, seq % 7, concat('s', seq) from seq_1_to_100;
select max(v), min(v) from virtuals;
select sum(v) from virtuals force index (kv);
select id, v from virtuals force index (kv) where v = 10;
select count(*) from virtuals force index (kv) where v > 5;
select id, v from virtuals force index (vd, kb) where v = 10 or b = 5 order by id;
select id, v from virtuals force index (kv, kb) where v = 20 and b = 2 order by id;
select v, min(id) from virtuals force index (kv) where v < 50 group by v;
update virtuals force index (kv) set a = a + 1000 where v >= 900;
select count(*), sum(v), sum(a) from virtuals;
-- They are computed from a long value, which the plan does not read.
create table computed (p varchar(20) not null, t mediumtext, b int, v int as (200 - ascii(t)) virtual, primary key (p(10)), key v (v), key b (b));
insert into computed (p, t, b) select concat('p', seq), repeat(char(97 + seq % 26), 5000), seq from seq_1_to_2000;
analyze table computed;
select count(*) from computed force index (v, b) where v = 103 or b = 5;
create table computed_too (id int primary key, a int, t longtext, s varchar(20), v int unsigned as (crc32(t)) virtual, key k (a, v, s(5)));
insert into computed_too (id, a, t, s) values (1, 1, repeat('x', 100000), 's'), (2, 2, repeat('y', 100000), 's');
update computed_too force index (k) set a = a + 1 where a > 0;
select id, a, v, length(t) from computed_too;
-- A long value that is set to what it is, and that the statement does not read.
create table same (id int primary key, a int, b mediumtext);
insert into same values (1, 1, repeat('x', 5000)), (2, 2, repeat('y', 5000));
update same set b = repeat('x', 5000) where id = 1;
select row_count();
update same set b = repeat('x', 5000);
select row_count();
update same set b = concat(repeat('x', 4999), 'y') where id = 1;
select row_count(), sum(crc32(b)) from same;
