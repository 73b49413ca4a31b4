-- 0002_metric.sql - points in blocks: one row holds many points of one series as parallel arrays.
-- Partitioned by the day on which they were stored, so that retention is a drop.

create table metric_series (
    id int8 generated always as identity primary key,
    job int8 not null,
    role text not null,
    rank int8 not null,
    name text not null,
    is_integer bool not null,
    unique (job, name, role, rank, is_integer)
);

create table metric_block (
    series_id int8 not null,
    attempt int8 not null,
    incarnation int8 not null,
    first_step int8 not null, -- smallest and largest step in here
    last_step int8 not null,
    n int8 not null,
    stored_at timestamptz not null default now(),
    steps int8[] not null,
    t_us int8[] not null,
    doubles float8[],         -- one of these two is there
    integers int8[]
) partition by range (stored_at);
create index metric_block_series on metric_block (series_id, attempt, first_step);

-- lz4 where this server has it: pglz is the slower part of storing a block otherwise.
do $$
begin
    alter table metric_block alter column steps set compression lz4;
    alter table metric_block alter column t_us set compression lz4;
    alter table metric_block alter column doubles set compression lz4;
    alter table metric_block alter column integers set compression lz4;
exception when feature_not_supported then
    null;
end
$$;

-- Points are never refused because a day has no partition.
create table metric_block_other partition of metric_block default;

-- Points that agents thinned away before they reached us.
create table metric_loss (
    job int8 not null,
    attempt int8 not null,
    role text not null,
    rank int8 not null,
    points int8 not null,
    primary key (job, attempt, role, rank)
);

-- Makes the partitions of today and the days ahead, drops those older than keep_days (0: none).
create function metric_partitions(days_ahead int8, keep_days int8) returns void
language plpgsql as $$
declare
    today date := (clock_timestamp() at time zone 'UTC')::date;
    day date;
    old record;
begin
    for i in 0..days_ahead loop
        day := today + i::int4;
        if to_regclass('metric_block_' || to_char(day, 'YYYYMMDD')) is not null then
            continue;
        end if;
        begin
            execute format('create table %I partition of metric_block for values from (%L) to (%L)',
                           'metric_block_' || to_char(day, 'YYYYMMDD'),
                           day::timestamp at time zone 'UTC',
                           (day + 1)::timestamp at time zone 'UTC');
        exception when check_violation then
            null; -- the default partition already has points of that day: they stay there
        end;
    end loop;
    if keep_days <= 0 then
        return;
    end if;
    for old in
        select c.oid::regclass as name from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = 'metric_block'::regclass
          and c.relname ~ '^metric_block_[0-9]{8}$'
          and substr(c.relname, 14) < to_char(today - keep_days::int4, 'YYYYMMDD')
    loop
        execute format('drop table %s', old.name);
    end loop;
    delete from metric_block_other where stored_at < now() - make_interval(days => keep_days::int4);
end
$$;

-- The last step of each attempt that still counts: an attempt's work after the checkpoint from which
-- any later attempt resumed was thrown away.
create function attempt_cutoff(want_job int8)
returns table (attempt int8, last_step int8) language sql stable as $$
    select a.number,
           coalesce(min(case when coalesce(a.resume_checkpoint, 0) = 0 then -9223372036854775808
                             else c.step end)
                        over (order by a.number rows between 1 following and unbounded following),
                    9223372036854775807)
    from attempt a
    left join checkpoint c on c.id = a.resume_checkpoint
    where a.job = want_job
$$;

-- Every stored point of one name, a row a point: select * from metric_points(7, 'loss') where effective.
create function metric_points(want_job int8, want_name text)
returns table (role text, rank int8, attempt int8, incarnation int8, step int8, t_us int8,
               value float8, number int8, effective bool)
language sql stable as $$
    select b.role, b.rank, b.attempt, b.incarnation, p.step, p.t_us, p.value, p.number,
           p.step <= coalesce(k.last_step, 9223372036854775807)
           and (b.next_first is null or p.step < b.next_first)
    from (select s.role, s.rank, m.*,
                 min(m.first_step) over (
                     partition by m.series_id, m.attempt order by m.incarnation
                     groups between 1 following and unbounded following) as next_first
          from metric_series s join metric_block m on m.series_id = s.id
          where s.job = want_job and s.name = want_name) b
    left join attempt_cutoff(want_job) k on k.attempt = b.attempt
    cross join lateral unnest(b.steps, b.t_us, b.doubles, b.integers)
        with ordinality as p(step, t_us, value, number, place)
    order by b.role, b.rank, b.attempt, b.incarnation, b.first_step, p.place
$$;
