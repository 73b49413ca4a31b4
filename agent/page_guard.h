/* page_guard.h - a worker may cut its own page file short; the agent must survive reading it.
 *
 * Reading a mapped page behind its file's end raises SIGBUS. The guard then puts an empty page of
 * memory in its place: the worker has cut itself off from gates, nobody else is harmed. add and
 * remove: any thread. */
#pragma once

void page_guard_install(void); /* once, at start */
void page_guard_add(void *page);
void page_guard_remove(void *page);
