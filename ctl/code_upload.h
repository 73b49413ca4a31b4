/* code_upload.h - packed code to the daemon, each digest once.
 *
 * Loop thread. A failed upload is tried again while --timeout lasts: code is named by its digest,
 * so that doing it twice changes nothing. */
#pragma once
#include "ctl/connect.h"
#include "ctl/pack.h"

/* Asks whether the daemon has it, and sends it if not. */
enum status code_upload(struct connect *connect, const struct pack *pack,
                        struct error *err) MUST_CHECK;
