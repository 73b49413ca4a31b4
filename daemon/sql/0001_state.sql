-- 0001_state.sql - current state, one row a thing. `packed` is the whole message (a job's without its
-- spec); the other columns repeat what operators ask for. Numbers are int8 whatever their wire type.

create table cluster (
    only_row bool primary key default true check (only_row),
    id text not null,
    created_at timestamptz not null default clock_timestamp()
);
insert into cluster (id) values (gen_random_uuid()::text);

-- What an interrupted commit did: its batch row is there, or it is not.
create table batch (
    lane int8 not null,
    term int8 not null,
    number int8 not null,
    at timestamptz not null default now(),
    primary key (lane, term, number)
);

-- Holds the term against a takeover until the transaction ends, or ends the transaction.
create function leadership_fence(want_term int8) returns int8 language plpgsql as $$
begin
    perform 1 from leadership where term = want_term for key share;
    if not found then
        raise exception 'a newer term leads than %', want_term using errcode = 'RD001';
    end if;
    return want_term;
end
$$;

create table project (
    name text primary key,
    unix_user text,
    created_at timestamptz,
    packed bytea not null
);

create table job (
    id int8 primary key,
    name text,
    project text,
    state text not null,
    ended bool not null,
    reason text,
    reason_text text,
    priority int8,
    version int8 not null,
    attempt int8 not null,
    restarts_used int8,
    step int8,
    samples int8,
    last_checkpoint int8,
    submitter text,
    submitted_at timestamptz,
    started_at timestamptz,
    ended_at timestamptz,
    packed bytea not null,
    spec bytea not null,
    spec_json jsonb not null
) with (fillfactor = 75);
create index job_active on job (id) where not ended;
create index job_name on job (name, id);

-- Updates come without the spec (`on conflict` keeps the stored one); an insert must have it.
create function job_refuse_bare() returns trigger language plpgsql as $$
begin
    raise exception 'job % has no spec', new.id using errcode = 'integrity_constraint_violation';
end
$$;
create trigger job_bare after insert on job for each row
    when (octet_length(new.spec) = 0) execute function job_refuse_bare();

create table attempt (
    job int8 not null,
    number int8 not null,
    workers int8 not null,
    nodes text[] not null,
    resume_checkpoint int8,
    reason text,
    reason_text text,
    placed_at timestamptz,
    running_at timestamptz,
    ended_at timestamptz,
    packed bytea not null,
    primary key (job, number)
) with (fillfactor = 75);

create table node (
    name text primary key,
    admin text,
    seen text,
    note text,
    address text,
    devices int8,
    memory_mib int8,
    boot_id text,
    joined_at timestamptz,
    seen_at timestamptz,
    version int8 not null,
    packed bytea not null
) with (fillfactor = 50);

create table checkpoint (
    id int8 primary key,
    job int8 not null,
    attempt int8,
    step int8,
    samples int8,
    state text,
    reason text,
    vault text,
    path text,
    node text,
    parts int8,
    parts_expected int8,
    bytes int8,
    manifest_digest text,
    world int8,
    parent int8,
    created_at timestamptz,
    committed_at timestamptz,
    version int8 not null,
    packed bytea not null
) with (fillfactor = 75);
create index checkpoint_job on checkpoint (job, id);

-- The files of every checkpoint, for people: select * from checkpoint_part where checkpoint = 7.
create table checkpoint_part (
    checkpoint int8 not null,
    role text not null,
    rank int8 not null,
    node text,
    files int8 not null,
    bytes int8 not null,
    samples int8,
    primary key (checkpoint, role, rank)
);

create table event (
    seq int8 primary key,
    at timestamptz,
    kind text,
    job int8,
    attempt int8,
    node text,
    from_state text,
    to_state text,
    reason text,
    text text,
    actor text
);
create index event_job on event (job, seq) where job is not null;
create index event_node on event (node, seq) where node is not null;

-- Answers given to mutating calls: a retry is answered from here.
create table request (
    id text primary key,
    actor text,
    method text,
    at timestamptz,
    digest bytea,
    reply bytea
);
create index request_at on request using brin (at) with (pages_per_range = 16);

-- How far each agent's bulk stream is stored.
create table mark (
    node text primary key,
    spool_id text,
    bulk_seq int8 not null
) with (fillfactor = 50);

create table code (
    digest text primary key,
    at timestamptz,
    bytes int8 not null,
    data bytea not null
);
alter table code alter column data set storage external;

-- Jobs that the daemon keeps in memory: all that have not ended, and the newest that have.
create function job_kept(ended_max int8) returns setof int8 language sql stable as $$
    select id from job where not ended
    union all
    (select id from job where ended order by id desc limit ended_max)
$$;
