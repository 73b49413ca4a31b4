/* fake_store_query.h - inside the fake store: its rows in order, and answers to questions of
 * history. */
#pragma once
#include "tests/support/fake_store.h"

const ProtobufCMessage *fake_store_next(const struct store *store, enum change_kind kind,
                                        size_t *at);
/* *reply is given. */
enum status fake_store_query(const struct store *store, const ProtobufCMessage *request,
                             ProtobufCMessage **reply) MUST_CHECK;
