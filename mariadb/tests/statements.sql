# Statements of every kind on one connection. `mariadb/test` runs each file here on Seawall and on InnoDB in
# one server, and compares what they print.
create table t (id int auto_increment primary key, name varchar(20) collate utf8mb4_general_ci, n int, b text,
  key (name), unique key (n)) default charset=utf8mb4;
insert into t (name, n, b) values ('bob', 3, 'x'), ('Alice', 1, repeat('long ', 5000)), ('carol', 2, null), ('bob ', 5, 'y');
select id, name, n, length(b) from t order by name, id;
select id from t where name = 'BOB' order by id;
select id, n from t where n > 1 order by n desc;
insert into t (name, n) values ('dup', 3);
insert ignore into t (name, n) values ('dup', 3);
replace into t (name, n) values ('rep', 3);
insert into t (name, n) values ('odku', 1) on duplicate key update name = 'Alice2';
select id, name, n from t order by id;
update t set n = n + 10 where name like 'b%';
delete from t where id = 3;
select count(*), min(n), max(n), min(name), max(id) from t;
begin; insert into t (name, n) values ('tx', 100); savepoint a; insert into t (name, n) values ('tx2', 101);
rollback to a; commit;
begin; delete from t; select count(*) from t; rollback;
select id, name, n from t order by n;
update t set id = id + 100 order by id desc; select id, n from t order by id;
insert into t (name, n) values ('a', 1000), ('b', 1001), ('c', 3); select count(*) from t where n >= 1000;
create table n (a int, b int, unique key (a), key (b)); # no primary key
insert into n values (1, 1), (null, 1), (null, 2), (2, 2); insert into n values (1, 5);
update n set a = null where a = 1; delete from n where b = 2 and a is null; select * from n order by b, a;
create table u (a decimal(10,3), b datetime(3), c double, d enum('x','y'), e bit(9), f set('p','q'), g char(5),
  h varbinary(10), i time(6), j year, k bigint unsigned, l float, m date, o blob, key (a), key (b), key (c), key (d),
  key (e), key (g), key (h), key (i), key (k), key (m), key (o(4)));
insert into u values
  (-1.5, '2020-01-02 03:04:05.678', 1e100, 'y', b'101010101', 'p,q', 'ab', 'zz', '-10:11:12.000013', 1999, 18446744073709551615, -0.5, '1000-01-01', 'blobs'),
  (1.5, '1970-01-01', -1e100, 'x', b'1', 'p', 'AB ', x'00', '838:59:59', 2020, 0, 0.5, '9999-12-31', ''),
  (null, null, null, null, null, null, null, null, null, null, null, null, null, null);
select a, b, c, d, e + 0, f, g, hex(h), i, j, k, l, m, o from u order by a;
select a from u where a < 0; select g from u where g = 'AB' order by a; select a from u order by c; select a from u order by i;
select a from u where k > 9223372036854775807; select hex(h) from u where h >= x'00' order by h; select a from u where e = 341;
select a from u where m between '1000-01-01' and '2000-01-01'; select a from u where o like 'blo%';
alter table u add index (l), drop index g, add column p int default 7; select a, p from u order by l;
create table s (w varchar(10) collate latin1_swedish_ci, x varchar(10) collate utf8mb4_unicode_nopad_ci, y varchar(10) collate utf8mb4_bin, id int primary key, key (w), key (x), key (y)) default charset=utf8mb4;
insert into s values ('a', 'a', 'a', 1), ('a ', 'a ', 'a ', 2), ('a\t', 'a\t', 'a\t', 3), ('a  b', 'a  b', 'a  b', 4), ('a b', 'a b', 'a b', 5), ('ä', 'ä', 'ä', 6),
  ('A', 'A', 'A', 7), ('', '', '', 8), (' ', ' ', ' ', 9), ('a \t', 'a \t', 'a \t', 10), ('a!', 'a!', 'a!', 11), ('b', 'b', 'b', 12), (null, null, null, 13);
select id from s force index (w) where w < 'b' order by w, id; select id from s force index (x) where x < 'b' order by x, id;
select id from s force index (y) where y < 'b' order by y, id; select id from s where w = 'a' order by id; select id from s where x = 'a' order by id;
select id from s force index (w) where w like 'a%' order by id; select count(*) from s where w is null;
create table g (a int primary key, b int as (a * 2) stored, c int as (a + 1) virtual, key (b), key (c)); insert into g (a) values (1), (2), (3);
select * from g where c = 3; update g set a = 5 where b = 6; select * from g order by c;
create table p (id int, v int, primary key (id)) partition by hash (id) partitions 3; insert into p select seq, seq % 5 from seq_1_to_100;
select count(*), sum(v) from p where id between 10 and 50; alter table p truncate partition p1; select count(*) from p;
truncate t; select count(*) from t; insert into t (name, n) values ('after', 1); select id, name from t;
rename table n to n2; select count(*) from n2; create table l like t; select count(*) from l; drop table n2, l;
create table big (id int auto_increment primary key, k int, c varchar(100), key (k), key (c, k));
insert into big (k, c) select seq * 7919 % 10007, concat('row ', seq % 977) from seq_1_to_20000;
select count(*), sum(k) from big where k between 1000 and 2000; select c, count(*) from big where c between 'row 1' and 'row 102' group by c;
update big set k = k + 1 where c = 'row 5'; select sum(k) from big where c = 'row 5'; delete from big where id % 3 = 0; select count(*), sum(id) from big;
select max(k), min(k) from big where c = 'row 7'; select id from big where c = 'row 7' order by k desc limit 3; select k from big order by k limit 5;
select straight_join count(*) from big a join big b on a.k = b.id where a.c = 'row 11';
