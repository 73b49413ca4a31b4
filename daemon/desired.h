/* desired.h - the desired set of a node, from committed rows only. Level-triggered: the whole set
 * is sent whenever it may have changed. */
#pragma once
#include "daemon/hub.h"

void desired_send_dirty(struct hub *hub); /* after a durable turn */
