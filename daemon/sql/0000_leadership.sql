-- 0000_leadership.sql - what must exist before anybody leads. Runs on every start, changes nothing
-- the second time. One row says who leads: term is the fence of every write (it is a unique key,
-- so that a takeover waits for commits that hold it, and a renewal of the lease does not); the
-- lease is measured by this database's clock alone.

create table if not exists schema_migration (
    number int8 primary key,
    name text not null,
    applied_at timestamptz not null default clock_timestamp()
);

create table if not exists leadership (
    only_row bool primary key default true check (only_row),
    term int8 not null unique,
    holder text not null,
    taken_at timestamptz,
    lease_until timestamptz not null
);

insert into leadership (term, holder, lease_until)
values (0, '', '-infinity')
on conflict do nothing;
