/* shim_wire.h - wire format 1 between an agent and the shims it, or an earlier agent, started.
 *
 * Constants only, shared by the shim and the agent; README.md here is the prose. Jobs outlive
 * upgrades: numbers below are never changed or reused, fields are only added. */
#pragma once
#include <stdint.h>

#define SHIM_WIRE_VERSION 1
#define SHIM_WIRE_MAGIC   "RNDOSHIM"

/* Descriptors that a shim finds open. */
enum { SHIM_WIRE_READY_FD = 3, SHIM_WIRE_REQUEST_FD = 4 };

/* Asks a shim to kill everything below it: pidfd_send_signal(shim, SHIM_WIRE_KILL). */
#define SHIM_WIRE_KILL SIGUSR1

/* `rondo-shim --wait ROOM`: waits on descriptor 3, a SOCK_SEQPACKET socket, for one message: the
 * directory, with the ready pipe and the request as SCM_RIGHTS in that order. Goes on as if it had
 * been started with them; ends when the socket closes. ROOM is spaces, overwritten by the
 * directory. */
#define SHIM_WIRE_WAIT         "--wait"
#define SHIM_WIRE_WAIT_DIR_MAX 1024u /* with its NUL */

/* Bounds that both sides hold. */
#define SHIM_WIRE_REQUEST_MAX ((uint64_t)4 << 20)
#define SHIM_WIRE_STRINGS_MAX 65536u
#define SHIM_WIRE_RECORD_MAX  4096u
#define SHIM_WIRE_NAME_MAX    255u
#define SHIM_WIRE_PATH_MAX    1024u
#define SHIM_WIRE_GROUPS_MAX  1024u
#define SHIM_WIRE_CPUS_MAX    8192u
#define SHIM_WIRE_RLIMITS_MAX 16u
/* Bytes written in advance into the records' temporary files, so that a disk that fills up later
 * cannot take an exit status away. */
#define SHIM_WIRE_RESERVE 1024u

/* `request`: this header, then `fields` times a field header and its bytes. Little endian. */
struct shim_wire_header {
    char magic[8];
    uint32_t version;
    uint32_t fields;
    uint64_t length; /* of the whole file */
};
struct shim_wire_field {
    uint16_t type;
    uint16_t flags; /* SHIM_WIRE_MUST: a shim that does not know the type refuses the request */
    uint32_t length;
};
struct shim_wire_rlimit {
    uint32_t resource;
    uint32_t zero;
    uint64_t soft, hard;
};
#define SHIM_WIRE_MUST 1u

enum shim_wire_type {
    SHIM_WIRE_ARGV = 1,    /* strings, each with its NUL; at least one */
    SHIM_WIRE_ENV = 2,     /* strings, each with its NUL */
    SHIM_WIRE_CWD = 3,     /* text without NUL, as all texts below */
    SHIM_WIRE_UID = 4,     /* u32; UID, GID and GROUPS come together or not at all */
    SHIM_WIRE_GID = 5,     /* u32 */
    SHIM_WIRE_GROUPS = 6,  /* u32 each */
    SHIM_WIRE_UMASK = 7,   /* u32 */
    SHIM_WIRE_RLIMITS = 8, /* struct shim_wire_rlimit each */
    SHIM_WIRE_CPUS = 9,    /* u32 each: numbers of the kernel's CPUs */
    SHIM_WIRE_OUT = 10,    /* file name in the worker's directory */
    SHIM_WIRE_ERR = 11,
    SHIM_WIRE_CGROUP2 = 12, /* absolute path of a directory in the v2 tree */
    SHIM_WIRE_CGROUP1 = 13, /* absolute path of a directory in the v1 memory tree */
    SHIM_WIRE_TAG = 14,
    SHIM_WIRE_BOOT_ID = 15,
    SHIM_WIRE_CGROUP_PIDS = 16, /* absolute path of a directory in the v1 pids tree; no MUST */
};

/* Where a start failed; the record's `stage`. */
enum shim_wire_stage {
    SHIM_STAGE_NONE = 0,
    SHIM_STAGE_REQUEST = 1, /* the request cannot be read or is malformed */
    SHIM_STAGE_FILES = 2,   /* out, err or a record cannot be created */
    SHIM_STAGE_FORK = 3,
    SHIM_STAGE_CGROUP = 4,
    SHIM_STAGE_LIMITS = 5,
    SHIM_STAGE_AFFINITY = 6,
    SHIM_STAGE_USER = 7,
    SHIM_STAGE_CHDIR = 8,
    SHIM_STAGE_EXEC = 9,
};

/* Names in the worker's directory. */
#define SHIM_WIRE_REQUEST_FILE "request"
#define SHIM_WIRE_PID_FILE     "pid"
#define SHIM_WIRE_EXIT_FILE    "exit"
