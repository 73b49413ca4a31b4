/* ca_file.h - the files of a CA folder: keys, certificates, revocation lists.
 *
 * Any thread; blocking. Writing goes through a temporary file, fsync and rename. Keys are 0600.
 * Used by ca.c alone. */
#pragma once
#include "base/error.h"
#include <openssl/evp.h>
#include <openssl/x509.h>
#include <stdbool.h>

/* Makes the folder, 0700, and what is missing above it. */
enum status ca_file_dir(const char *dir, struct error *err) MUST_CHECK;
bool ca_file_is_same_dir(const char *a, const char *b);
/* Waits for whoever changes the folder now. */
enum status ca_file_lock(const char *dir, int *out, struct error *err) MUST_CHECK;
void ca_file_unlock(int lock);

/* dir NULL: name is a path. STATUS_NOT_FOUND, STATUS_INVALID. */
enum status ca_file_read_key(const char *dir, const char *name, EVP_PKEY **out,
                             struct error *err) MUST_CHECK;
enum status ca_file_read_cert(const char *dir, const char *name, X509 **out,
                              struct error *err) MUST_CHECK;
enum status ca_file_write_key(const char *dir, const char *name, EVP_PKEY *key,
                              struct error *err) MUST_CHECK;
enum status ca_file_write_cert(const char *dir, const char *name, X509 *cert,
                               struct error *err) MUST_CHECK;
/* The list that is there, if any, plus the serial (NULL: none), signed anew. */
enum status ca_file_write_crl(const char *dir, X509 *ca, EVP_PKEY *key, const ASN1_INTEGER *serial,
                              struct error *err) MUST_CHECK;
