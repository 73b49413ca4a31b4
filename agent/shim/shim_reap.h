/* shim_reap.h - finding and killing what is left below a shim.
 *
 * One thread. A shim is a subreaper: whatever its worker leaves, double-forked or in a session of
 * its own, becomes its child, so that killing children until there are none reaches all of it. */
#pragma once

/* Sends KILL to every child. How many there were. */
int shim_reap_kill(void);
