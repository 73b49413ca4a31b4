/* pb.h - every generated message of Rondo. Generated at build; this is the one place that names the
 * files. */
#pragma once
#include "rondo/v1/agent.pb-c.h"
#include "rondo/v1/checkpoint.pb-c.h"
#include "rondo/v1/control.pb-c.h"
#include "rondo/v1/event.pb-c.h"
#include "rondo/v1/job.pb-c.h"
#include "rondo/v1/metric.pb-c.h"
#include "rondo/v1/node.pb-c.h"
#include "rondo/v1/store.pb-c.h"
#include "rondo/v1/worker.pb-c.h"
