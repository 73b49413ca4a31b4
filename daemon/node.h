/* node.h - the nodes we know: their agent's last word, what is used on them, their lease.
 *
 * Loop thread. Use (slots, ports, residents) is derived from open attempts and can be counted anew
 * at any time. A node is open for placement when it is in service, healthy, its agent is connected
 * and has told its whole set, and no worker of an older attempt is still being killed there. */
#pragma once
#include "daemon/hub.h"

struct node *node_load_take(struct hub *hub, Pb__Node *row_take);
void node_load_mark_take(struct hub *hub, Pb__MarkRow *row_take);
/* The node of that name, made (without a row yet) when it is new. */
struct node *node_obtain(struct hub *hub, const char *name);
void node_destroy(struct node *node);
enum status node_set_admin(struct node *node, Pb__Node__Admin admin, const char *note,
                           const char *actor, struct error *err);

void node_run(struct node *node); /* inside a turn: hello, reports, a lost lease */
void node_settle(struct node *node,
                 bool committed);       /* after it: acknowledge, or keep for the next */
void node_review(struct node *node);    /* after an undone turn: look at all of it again */
void node_heard(struct node *node);     /* a message came: the lease starts anew */
void node_leases_full(struct hub *hub); /* the store is back, or we have just taken over */
bool node_is_open(const struct node *node);

/* Use. */
void node_recount(struct hub *hub);
/* Recounts, logs and repairs what differs; answers how many nodes did (0 unless we have a fault).
 */
size_t node_audit(struct hub *hub);
void node_build_slots(struct node *node);
void node_take(struct node *node, struct job *job, const Pb__Role *role,
               const Pb__WorkerPlace *place);
uint32_t node_take_port(struct node *node, struct job *job);
void node_residents_add(struct job *job); /* on every node of its open attempt */
void node_release(struct job *job);       /* all that the job holds on all nodes of its attempt */
void node_desired_dirty(struct hub *hub, const char *name);
void node_desired_dirty_job(struct job *job); /* every node of the attempt */

void node_key_text(const Pb__WorkerKey *key, char *out, size_t cap);
struct actual *node_actual(const struct node *node, const Pb__WorkerKey *key);
