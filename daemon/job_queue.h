/* job_queue.h - jobs as the hub keeps them: by id, and the queue in scheduling order; and their
 * making and end. */
#pragma once
#include "daemon/hub.h"

/* In the queue exactly while QUEUED; order: priority descending, first submit, id. */
void job_queue_update(struct job *job);
void job_queue_rebuild(struct hub *hub);
/* Ended jobs beyond options.ended_max leave memory (their rows stay in the store). */
void job_queue_trim(struct hub *hub);
struct loop_timer *job_timer_get(struct job *job); /* made when first needed */
