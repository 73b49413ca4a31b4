/* desired.h - what the daemon wants, applied: the difference to what there is. Idempotent. */
#pragma once
#include "agent/hub.h"

void desired_apply(struct agent *agent, const Pb__Desired *desired);
