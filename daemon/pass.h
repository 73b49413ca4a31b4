/* pass.h - a scheduling pass: snapshot of the hub, the pure scheduler, and the one applier that
 * rechecks. Inside a turn. */
#pragma once
#include "daemon/hub.h"

void pass_run(struct hub *hub);
