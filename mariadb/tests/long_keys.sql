-- Indexes of 3,072 bytes, whose entries with the primary key are longer than a key of the engine.
create table long_keys (a varbinary(1000) not null, b varbinary(1500) not null, c varbinary(3000), n int, s varchar(700) character set utf8mb4 collate utf8mb4_bin,
  primary key (a, b), key c (c), key s (s, n), key n (n)) character set binary;
-- Many rows have the same long column, and primary keys that differ only at their ends.
insert into long_keys select repeat('a', 990), concat(repeat('b', 1400), lpad(seq, 5, '0')), repeat('c', 2900 + seq % 3), seq, repeat('s', 600 + seq % 2) from seq_1_to_60;
insert into long_keys select lpad(seq, 3, '0'), lpad(seq, 900 + seq * 40 % 600, 'y'), if(seq % 7, lpad(seq, 2000 + seq * 300 % 1000, 'x'), null), seq, lpad(seq, seq * 40 % 700, 'é') from seq_100_to_140;
insert into long_keys values ('', '', '', 1000, ''), ('', repeat('z', 1500), repeat('c', 2900), 1001, repeat('s', 700)), (repeat('z', 1000), '', null, 1002, null);
analyze table long_keys;
check table long_keys;
select count(*), sum(n) from long_keys force index (c) where c = repeat('c', 2901);
select n from long_keys force index (c) where c = repeat('c', 2902) order by a, b;
select n from long_keys force index (c) where c = repeat('c', 2902) order by a desc, b desc limit 5;
select n from long_keys force index (c) where c = repeat('c', 2900) and a = repeat('a', 990) and b > concat(repeat('b', 1400), '00030') order by b;
select n from long_keys force index (c) where c = repeat('c', 2900) and a < repeat('a', 990);
select n from long_keys force index (c) where c in (repeat('c', 2901), repeat('c', 2902)) and a = repeat('a', 990) and b in (concat(repeat('b', 1400), '00001'), concat(repeat('b', 1400), '00002'));
select length(a), length(b), right(b, 5), length(c) from long_keys force index (c) where c like 'ccc%' order by c, a, b limit 12;
select length(a), length(b), length(c) from long_keys force index (c) where c is null order by a, b;
select length(c), count(*), min(right(b, 5)), max(right(b, 5)) from long_keys group by c order by c limit 8;
select count(distinct c), count(distinct c, a, b) from long_keys;
select min(c) is null, length(max(c)) from long_keys;
select n from long_keys force index (s) where s = repeat('s', 601) and n between 11 and 21 order by n;
select n from long_keys where s = repeat('s', 600) and c = repeat('c', 2900) order by n;
select n from long_keys where (n = 30 or c = concat(repeat('c', 2901))) and right(b, 1) = '0' order by n;
select x.n, y.n from long_keys x straight_join long_keys y force index (c) on y.c = x.c where x.n in (7, 8) and y.n < 20 order by x.n, y.n;
set join_cache_level = 8, optimizer_switch = 'mrr=on,mrr_sort_keys=on';
select x.n, y.n from long_keys x straight_join long_keys y force index (c) on y.c = x.c where x.n in (7, 8) and y.n < 20 order by x.n, y.n;
set join_cache_level = default, optimizer_switch = default;
update long_keys set c = repeat('d', 3000) where n between 10 and 20;
update long_keys set b = concat(b, 'x') where n between 15 and 25;
update long_keys set a = concat('z', a) where n > 50 and n < 100 order by n;
delete from long_keys where c = repeat('c', 2900) and n % 2;
check table long_keys;
select count(*), sum(n), sum(crc32(c)), sum(crc32(s)) from long_keys;
select n from long_keys force index (c) where c = repeat('d', 3000) order by a, b;
-- Unique, with NULLs; duplicates are found in the write, and in the build.
alter table long_keys add unique u (c, n);
insert into long_keys values ('new', 'new', repeat('d', 3000), 10, '');
insert ignore into long_keys values ('new', 'new', repeat('d', 3000), 10, '');
replace into long_keys values ('new', repeat('n', 1500), repeat('d', 3000), 10, '');
insert into long_keys values ('new2', 'new', repeat('d', 3000), 10, '') on duplicate key update n = n + 5000;
select n, length(b) from long_keys force index (u) where c = repeat('d', 3000) order by n;
alter table long_keys drop index u, add unique v (c);
alter table long_keys drop index c, add index c2 (c, s(10)), add index c3 (c desc);
select n from long_keys force index (c3) where c = repeat('d', 3000) order by n;
select n from long_keys force index (c2) where c > repeat('d', 2999) and s like 's%' order by n;
check table long_keys;
-- Longer columns, and a row's key that becomes longer.
create table longer (a varbinary(300) primary key, c varbinary(3000), key (c));
insert into longer select concat(repeat('a', 290), seq), repeat('c', 3000) from seq_1_to_20;
alter table longer modify a varbinary(2000);
insert into longer select concat(repeat('a', 1990), seq), repeat('c', 3000 - seq % 2) from seq_1_to_20;
select count(*), count(distinct a) from longer where c = repeat('c', 3000);
delete from longer where a like '%5' or length(a) = 291;
check table longer;
select length(a), right(a, 3), length(c) from longer force index (c) order by c, a;
-- Partitions, and a second transaction's view.
create table parts (a varbinary(2000), c varbinary(3000), primary key (a), key (c)) partition by key (a) partitions 3;
insert into parts select concat(repeat('a', 1900), seq), repeat('c', 2900 + seq % 2) from seq_1_to_30;
select count(*), min(right(a, 3)), max(right(a, 3)) from parts where c = repeat('c', 2901);
select right(a, 2) from parts force index (c) where c = repeat('c', 2900) order by c, a limit 5;
check table parts;
-- The server asks a partition that is not open what the indexes of the others can do.
create table merged (i int not null, w varchar(700) not null, a varbinary(3072) not null, b varbinary(3072) not null, c varchar(200),
  primary key (w, i), key ka (a), key kb (b)) partition by hash (i) partitions 2;
insert into merged select seq, concat(repeat('w', 650), sha1(seq)), repeat(char(97 + (seq div 2) % 10), 3072), repeat(char(97 + (seq div 20) % 10), 3072),
  repeat('c', 200) from seq_1_to_2000;
analyze table merged persistent for all;
set optimizer_switch = 'index_merge_sort_union=off';
flush tables;
select count(*), count(distinct i) from merged partition (p1) force index (ka, kb) where a = repeat('a', 3072) or b = repeat('b', 3072);
flush tables;
select count(*), count(distinct i) from merged partition (p0) force index (ka, kb) where a = repeat('a', 3072) and b = repeat('b', 3072);
set optimizer_switch = default;
drop table merged;
-- The longest column in each kind of collation.
create table texts (id int primary key, a varchar(768) character set utf8mb4 collate utf8mb4_unicode_ci, b varchar(768) character set utf8mb4 collate utf8mb4_unicode_nopad_ci,
  c varchar(768) character set utf8mb4 collate uca1400_as_cs, d varchar(768) character set utf8mb4 collate uca1400_nopad_ai_cs, e varchar(1536) character set ucs2 collate ucs2_general_ci,
  key (a), key (b), key (c), key (d), key (e));
insert into texts select seq, v, v, v, v, v from (select seq, concat(repeat('Wort ', 140 + seq % 3), elt(1 + seq % 5, '', 'a', 'A', 'ä', 'á'), repeat(' ', seq % 3)) v from seq_1_to_60) s;
check table texts;
select id, length(a) from texts force index (a) order by a, id;
select id from texts force index (b) order by b, id;
select id from texts force index (c) order by c, id;
select id from texts force index (d) order by d, id;
select id from texts force index (e) order by e, id;
select count(*) from texts force index (c) where c = concat(repeat('Wort ', 141), 'A');
select count(*) from texts force index (d) where d = concat(repeat('Wort ', 141), 'A');
drop table long_keys, longer, parts, texts;
