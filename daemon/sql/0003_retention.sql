-- 0003_retention.sql - old events and unused code go, in small batches; what a job that has not ended
-- needs stays.

-- Events up to `through` may be gone: a watch that wants to begin before it is told so.
create table retention (
    what text primary key,
    through int8 not null default 0
);
insert into retention (what) values ('event');
create index event_at on event using brin (at) with (pages_per_range = 16);

-- How many were deleted. 0 days or 0 rows to keep: no bound of that kind.
create function event_prune(keep_days int8, keep_count int8, batch_max int8) returns int8
language plpgsql as $$
declare
    newest int8 := (select max(seq) from event);
    due int8[];
begin
    if keep_days = 0 and keep_count = 0 then
        return 0;
    end if;
    due := array(
        select e.seq from event e
        where (keep_days > 0 and e.at < now() - make_interval(days => keep_days::int4)
               or keep_count > 0 and e.seq <= newest - keep_count)
          and not exists (select from job j where j.id = e.job and not j.ended)
        order by e.seq limit batch_max);
    if cardinality(due) > 0 then
        delete from event where seq = any(due);
        update retention set through = greatest(through, due[cardinality(due)])
        where what = 'event';
    end if;
    return cardinality(due);
end
$$;

-- Code goes in two steps, so that a submit which was just told "it is stored" finds it: first it is
-- doomed, which HaveCode already counts as gone; an hour later it is deleted, if no job has come.
alter table code add column doomed_at timestamptz;
create index job_code on job ((spec_json #>> '{code,digest}'))
    where spec_json #>> '{code,digest}' is not null;

create function code_used(want_digest text, keep_days int8) returns bool language sql stable as $$
    select exists (select from job j where j.spec_json #>> '{code,digest}' = want_digest
                   and (not j.ended or j.ended_at > now() - make_interval(days => keep_days::int4)))
$$;

-- How many were doomed or deleted.
create function code_prune(keep_days int8, batch_max int8) returns int8 language plpgsql as $$
declare
    found text[];
    count int8 := 0;
begin
    if keep_days = 0 then
        return 0;
    end if;
    found := array(select digest from code where doomed_at is not null);
    update code set doomed_at = null
    where digest = any(found) and doomed_at is not null and code_used(digest, keep_days);
    found := array(select digest from code where doomed_at < now() - interval '1 hour'
                   limit batch_max for update skip locked);
    delete from code where digest = any(found) and doomed_at is not null;
    count := cardinality(found);
    found := array(select digest from code
                   where doomed_at is null
                     and at < now() - make_interval(days => keep_days::int4)
                     and not code_used(digest, keep_days)
                   limit batch_max for update skip locked);
    update code set doomed_at = now() where digest = any(found);
    return count + cardinality(found);
end
$$;
