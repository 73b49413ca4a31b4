/* event_line.h - one event as one line for people. Any thread; pure. */
#pragma once
#include "base/text.h"
#include "proto/pb.h"

struct event_line_options {
    bool with_job, colour;
};
/* "12:00:01 job 7  QUEUED -> STARTING  PLACED: nodes reserved", with a newline. */
void event_line(const Pb__Event *event, const struct event_line_options *options, struct text *out);
/* False for what becomes of old checkpoints: that is for `rondoctl events`. */
bool event_line_is_news(const Pb__Event *event);
