-- Reading of an index alone: every type that can be had from an entry, ascending and descending, with NULLs.
create table k (
  a int primary key, i8 tinyint, u8 tinyint unsigned, i16 smallint, i24 mediumint, i64 bigint, u64 bigint unsigned, y year,
  f float, d double, n decimal(12,3), dt date, tm time(3), ts timestamp(2) null, dtm datetime(6), e enum('x','y','z'), s set('p','q','r'),
  b bit(11), c char(5), vc varchar(20), bn binary(4), vb varbinary(20), tx text,
  key (i8, u8), key (i16 desc, i24), key (i64, u64 desc), key (y), key (f), key (d desc), key (n desc), key (dt), key (dt desc, tm), key (ts),
  key (dtm desc), key (e, s), key (b), key (c), key (vc desc), key (bn), key (vb desc, bn), key (vc(3)), key (tx(5)));
insert into k values
  (1, -128, 0, -32768, -8388608, -9223372036854775808, 0, 1901, -1.5, -1e300, -12345.678, '1000-01-01', '-838:59:59.999', '1970-01-02 00:00:01.25', '0001-01-01 00:00:00.000001', 'x', 'p', 0, '', '', '', '', ''),
  (2, 127, 255, 32767, 8388607, 9223372036854775807, 18446744073709551615, 2155, 1.5, 1e300, 99999.999, '9999-12-31', '838:59:59.999', '2030-01-19 03:14:07.99', '9999-12-31 23:59:59.999999', 'z', 'p,q,r', 2047, 'abcde', 'Straße  ', 0xff00ff00, 0x00ff00ff00ff00ff00, 'some longer text'),
  (3, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null),
  (4, 0, 1, 0, 0, 0, 1, 2026, 0, 0, 0, '2026-11-22', '00:00:00', '2026-11-22 12:00:00', '2026-11-22 12:00:00.5', 'y', '', 5, 'Ab ', 'ab', 'a', 'a ', 'ab'),
  (5, -1, 200, -1, -1, -1, 9, 2000, -0.25, 3.14159, -0.001, '1999-02-28', '-00:00:01.5', '2001-09-09 01:46:40', '1999-12-31 23:59:59.999999', 'x', 'q', 1024, 'aB', 'AB', 0x6100, 0x6100, 'abcdefgh');
select i8, u8 from k force index (i8) order by i8, u8;
select a, i16, i24 from k force index (i16) order by i16 desc, i24;
select i64, u64, a from k force index (i64) order by i64, u64 desc;
select y, a from k force index (y) order by y;
select f, a from k force index (f) order by f;
select d, a from k force index (d) order by d desc;
select n, a from k force index (n) order by n desc;
select dt, tm from k force index (dt_2) order by dt desc, tm;
select ts, a from k force index (ts) order by ts;
select dtm, a from k force index (dtm) order by dtm desc;
select e, s, e + 0, s + 0 from k force index (e) order by e, s;
select b + 0, a from k force index (b) order by b;
select c, length(c), a from k force index (c) order by c, a;
select vc, length(vc), a from k force index (vc) order by vc desc, a desc;
select hex(bn), a from k force index (bn) order by bn;
select hex(vb), hex(bn) from k force index (vb) order by vb desc, bn;
select vc, a from k force index (vc_2) where vc like 'a%' order by a;
select left(tx, 4), a from k force index (tx) where tx >= 'ab' order by a;
-- A change that the index's order does not show.
update k set c = 'AB', vc = 'Ab' where a = 4;
select c, a from k force index (c) where c = 'ab' order by a;
select vc, a from k force index (vc) where vc = 'ab' order by a;
-- Conditions on columns of the index, in both directions, with and without locks.
create table icp (a int primary key, b int, c varchar(10), d int, key bc (b, c));
insert into icp select seq, seq % 10, concat('v', seq % 7), seq from seq_1_to_500;
select a, d from icp force index (bc) where b between 3 and 5 and c like '%6' order by a;
select count(*), sum(d) from icp force index (bc) where b > 7 and c <> 'v1';
select a from icp force index (bc) where b < 3 and c like '%0' order by b desc, c desc, a desc limit 5;
begin;
select a from icp force index (bc) where b = 4 and c like '%3' order by a for update;
update icp force index (bc) set d = -d where b = 4 and c like '%3';
delete from icp where b = 5 and c like '%2';
commit;
select count(*), sum(d) from icp;
-- Changes in place. Each ends with a check of rows against indexes.
create table al (a int primary key, b int, c varchar(20), d decimal(8,2));
insert into al select seq, seq % 50, concat('text ', seq), seq / 3 from seq_1_to_1000;
alter table al add index ib (b), add index icd (c, d), algorithm = nocopy;
select count(*) from al force index (ib) where b = 7;
select a, c, d from al force index (icd) where c = 'text 77';
alter table al add unique uc (c), algorithm = nocopy;
create table du (a int primary key, b int);
insert into du values (1, 1), (2, 3), (3, 3), (4, null), (5, null);
alter table du add unique ub (b);
update du set b = 4 where a = 3;
alter table du add unique ub (b), algorithm = nocopy;
insert into du values (6, 4);
check table du;
show create table al\G
insert into al values (2000, 1, 'text 77', 0);
alter table al drop index icd, rename index ib to renamed, alter column d set default 5, comment = 'in place', algorithm = nocopy;
alter table al rename column b to bb, algorithm = instant;
insert into al (a, bb, c) values (2001, 7, 'new');
select bb, c, d from al force index (renamed) where bb = 7 order by a desc limit 2;
select bb, c, d from al where c = 'new';
alter table al auto_increment = 5000;
alter table al drop index renamed, add index renamed (c, bb), algorithm = nocopy;
select a from al force index (renamed) where c = 'text 99' and bb = 49;
update al set bb = bb + 1, c = concat(c, '!') where a % 100 = 0;
delete from al where a % 7 = 0;
check table al;
analyze table al;
show create table al\G
alter table al add column n int, drop primary key, add primary key (c);
select count(*), sum(a) from al;
check table al extended;
create table nopk (v int, w int);
insert into nopk select seq, -seq from seq_1_to_100;
alter table nopk add index (w), algorithm = nocopy;
select v from nopk force index (w) where w = -42;
alter table nopk add unique (v);
insert into nopk values (1, 1);
check table nopk;
select count(*), sum(v) from nopk;

-- Statistics steer joins without SHOW INDEX; those of a table that was empty are made again.
create table one (id int primary key);
insert into one select seq from seq_1_to_1000;
create table many (id int primary key, k int, l int, key (k), key (l));
select count(*) from many;
insert into many select seq, seq % 3, seq from seq_1_to_50000;
analyze table one, many;
select if(cardinality < 10, 'few', if(cardinality > 40000, 'each', cardinality)) from information_schema.statistics where table_schema = database() and table_name = 'many' order by index_name;
create table later (id int primary key, k int, key (k));
insert into later select seq, seq % 2 from seq_1_to_50000;
select count(*) from later where k = 1;
select if(cardinality < 10, 'few', cardinality) from information_schema.statistics where table_schema = database() and table_name = 'later' and index_name = 'k';

-- The entries of an index end with the primary key, by which they are searched, too.
create table ends (a int, b varchar(5), c int not null, d int not null, e int, primary key (c, d desc), key a (a), key bd (b, d), key ea (e, a desc), key dc (d, c));
insert into ends select seq % 7, if(seq % 3, char(97 + seq % 4), upper(char(97 + seq % 4))), seq % 50, seq, if(seq % 5, seq % 2, null) from seq_1_to_1000;
select c, d from ends force index (a) where a = 3 and c = 24 order by d;
select c, d from ends force index (a) where a = 3 and c = 24 and d < 500 order by d desc;
select c, d from ends force index (a) where a = 3 and c = 24 and d = 374;
select count(*), min(c), max(c) from ends force index (a) where a = 3 and c > 45;
select count(*), min(c), max(d) from ends force index (a) where a = 3 and (c, d) >= (45, 300);
select c, d from ends force index (bd) where b = 'B' and d = 101 and c = 1;
select count(*) from ends force index (bd) where b = 'b' and d between 100 and 120 and c > 10;
select c, d from ends force index (bd) where b = 'b' and d = 121 and c <= 21;
select count(*) from ends force index (ea) where e is null and a = 2 and c between 10 and 20;
select count(*), max(d) from ends force index (ea) where e = 1 and a = 2 and c = 11;
select count(*) from ends force index (dc) where d = 77 and c = 27;
select a, max(c) from ends force index (a) group by a order by a;
select a, min(c) from ends force index (a) where c > 20 group by a order by a;
select c, d from ends force index (a) where a = 3 order by c desc, d limit 5;
select count(*) from ends x straight_join ends y force index (a) on y.a = x.a and y.c = x.c where x.d < 100;
update ends force index (a) set e = -1 where a = 3 and c = 24 and d > 500;
delete from ends where a = 3 and c = 24 and d < 100;
select count(*), sum(d) from ends where e = -1;
check table ends;
