/* call_checkpoint.h - the mutating calls about one checkpoint: pin, verify, hold. See call.h. */
#pragma once
#include "daemon/call.h"

enum status call_checkpoint_pin(struct hub *hub, struct call *call) MUST_CHECK;
enum status call_checkpoint_verify(struct hub *hub, struct call *call) MUST_CHECK;
enum status call_checkpoint_hold(struct hub *hub, struct call *call) MUST_CHECK;
