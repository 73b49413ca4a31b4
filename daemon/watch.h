/* watch.h - events: drafted in a turn, numbered, kept in a ring once committed, told to watchers.
 *
 * Loop thread. The ring holds the newest HUB_EVENTS_MAX; older ones are in the store. */
#pragma once
#include "daemon/hub.h"

void watch_begin(struct hub *hub); /* a turn begins */
/* A new event of the turn: fill its fields (strings by draft_text). Loan until the turn settles. */
Pb__Event *watch_event(struct hub *hub, const char *kind);
void watch_settle(struct hub *hub, bool committed);           /* ring and watchers, or forgotten */
void watch_load_take(struct hub *hub, Pb__Event *event_take); /* while loading, oldest first */
void watch_fini(struct hub *hub);
