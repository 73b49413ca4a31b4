/* call_fsck.h - repairs of the daemon's own rows, one a call: FsckRepair, and FsckReply's
 * differences that an agent has repaired, which are noted.
 *
 * Loop thread, inside a turn. The row is the one that was compared, or nothing is done. */
#pragma once
#include "daemon/call.h"

enum status call_fsck_repair(struct hub *hub, struct call *call);
