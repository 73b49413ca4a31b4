-- 0004_shard_copy.sql - where the parts of checkpoints live, for people:
-- select * from shard_copy where checkpoint = 7.
create table shard_copy (
    checkpoint int8 not null,
    role text not null,
    rank int8 not null,
    node text not null,
    durability text not null, -- what it outlives: MEMORY nothing, NODE a restart of its node, SHARED its node
    vault text,
    bytes int8,
    made_at timestamptz,
    lost boolean not null,
    primary key (checkpoint, role, rank, node, durability)
);
