/* openssl.h - OpenSSL's objects as scoped variables.
 *
 * Any thread. Included by the files of rpc/ that read or make certificates. */
#pragma once
#include "base/mem.h"
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

SCOPED_DESTRUCTOR(BIO *, BIO_free_all)
SCOPED_DESTRUCTOR(X509 *, X509_free)
SCOPED_DESTRUCTOR(X509_CRL *, X509_CRL_free)
SCOPED_DESTRUCTOR(EVP_PKEY *, EVP_PKEY_free)
